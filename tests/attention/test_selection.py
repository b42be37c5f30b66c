"""Which pages a query selects, and what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.selection import Reach, score_pages, select_pages
from sglang_fence.attention.sparse import SparseAttnBackend
from sglang_fence.contract import ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.attention.stores import HEAD_DIM, HEADS, KV_HEADS, PAGE_SIZE, Store, point, tiny_store

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERYTHING = Reach(top_pages=100, window=1)


def _seen(scores: torch.Tensor, position: int, reach: Reach) -> set[int]:
    """Return the positions that one query of one head sees; a position that it sees twice fails."""
    pages, seen = select_pages(scores[None, None], torch.tensor([position]), PAGE_SIZE, reach)
    at = pages[..., None] * PAGE_SIZE + torch.arange(PAGE_SIZE)
    found = at[seen].tolist()
    assert len(found) == len(set(found))
    return set(found)


@given(
    scores=st.lists(st.integers(-2, 2), min_size=1, max_size=12),
    data=st.data(),
    top=st.integers(0, 14),
    window=st.integers(1, 60),
)
def test_a_query_sees_its_window_and_the_best_pages_before_it(
    scores: list[int],
    data: st.DataObject,
    top: int,
    window: int,
) -> None:
    position = data.draw(st.integers(0, len(scores) * PAGE_SIZE - 1))
    first = max(0, position - window + 1) // PAGE_SIZE
    best = sorted(range(first), key=lambda page: (-scores[page], page))[:top]  # of equals, the earlier
    expected = {page * PAGE_SIZE + at for page in best for at in range(PAGE_SIZE)}
    expected |= set(range(first * PAGE_SIZE, position + 1))
    assert _seen(torch.tensor(scores, dtype=torch.float32), position, Reach(top, window)) == expected


def test_scores_are_the_same_with_and_without_line_numbers() -> None:
    query, compressed = torch.randn(6, HEADS, HEAD_DIM), torch.randn(3, 5, KV_HEADS, HEAD_DIM)
    lines = torch.arange(6) // 2
    expected = torch.stack(
        [
            (compressed[line] * query[token].unflatten(0, (KV_HEADS, -1)).sum(1)).sum(-1).T
            for token, line in enumerate(lines.tolist())
        ],
    )
    torch.testing.assert_close(score_pages(query, compressed, lines), expected)
    torch.testing.assert_close(score_pages(query, compressed, None), expected)


def _extend(row: int, first: int, last: int) -> ForwardBatch:
    count = last - first
    return ForwardBatch(
        ForwardMode.EXTEND,
        req_rows=torch.tensor([row]),
        seq_lens=torch.tensor([last]),
        tokens=torch.zeros(count, dtype=torch.int64),
        positions=torch.arange(first, last),
        token_lines=torch.zeros(count, dtype=torch.int64),
        lines=1,
        rows=(row,),
        query_lens=(count,),
        kv_lens=(last,),
    )


def _run(store: Store, reach: Reach, qkv: torch.Tensor, cuts: Sequence[int]) -> torch.Tensor:
    """Attend to one request, cut into chunks at ``cuts``; ``qkv`` is ``[tokens, heads + 2 kv_heads, head_dim]``."""
    backend = SparseAttnBackend(*store, reach=reach)
    outputs: list[torch.Tensor] = []
    for first, last in zip([0, *cuts], [*cuts, len(qkv)], strict=True):
        batch = _extend(1, first, last)
        query, key, value = qkv[first:last].split([HEADS, KV_HEADS, KV_HEADS], dim=1)
        outputs.append(backend.attend(batch, 0, query, key, value))
    return torch.cat(outputs)


def _request(tokens: int) -> tuple[Store, torch.Tensor]:
    torch.manual_seed(tokens)
    store = tiny_store(SimulatedDevice())
    pages = torch.randperm(39)[: -(-tokens // PAGE_SIZE)] + 1
    point(store, 1, pages.tolist(), tokens)
    return store, torch.randn(tokens, HEADS + 2 * KV_HEADS, HEAD_DIM)


def _dense(qkv: torch.Tensor) -> torch.Tensor:
    query, key, value = (part.transpose(0, 1) for part in qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1))
    return scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True).transpose(0, 1)


def test_it_is_dense_attention_where_all_pages_are_selected() -> None:
    store, qkv = _request(50)
    torch.testing.assert_close(_run(store, EVERYTHING, qkv, []), _dense(qkv))


def test_it_is_not_where_some_are_left_out() -> None:
    store, qkv = _request(50)
    sparse, dense = _run(store, Reach(2, 1), qkv, []), _dense(qkv)
    torch.testing.assert_close(sparse[: 3 * PAGE_SIZE], dense[: 3 * PAGE_SIZE])  # two pages and the query's own
    assert (sparse[3 * PAGE_SIZE :] - dense[3 * PAGE_SIZE :]).abs().amax() > 0.1


@pytest.mark.parametrize("reach", [Reach(2, 1), Reach(1, 6)])
@pytest.mark.parametrize("cuts", [[1, 2, 3], [7, 21, 22], list(range(1, 50))])
def test_how_a_prompt_is_cut_into_chunks_changes_nothing(reach: Reach, cuts: list[int]) -> None:
    store, qkv = _request(50)
    torch.testing.assert_close(_run(store, reach, qkv, cuts), _run(store, reach, qkv, []))


def test_tokens_that_were_taken_back_leave_no_trace() -> None:
    store, qkv = _request(30)
    rejected = torch.cat([qkv[:17], torch.randn_like(qkv[17:25])])
    backend = SparseAttnBackend(*store, reach=Reach(1, 1))
    outputs = [
        backend.attend(_extend(1, first, last), 0, *rows[first:last].split([HEADS, KV_HEADS, KV_HEADS], dim=1))
        for rows, first, last in ((rejected, 0, 25), (qkv, 17, 30))
    ]
    torch.testing.assert_close(outputs[1], _run(store, Reach(1, 1), qkv, [])[17:])


def test_the_same_call_gives_the_same_bits() -> None:
    store, qkv = _request(60)
    assert torch.equal(_run(store, Reach(2, 5), qkv, []), _run(store, Reach(2, 5), qkv, []))


def test_bf16_is_served() -> None:
    pages, seen = select_pages(torch.zeros(1, KV_HEADS, 3), torch.tensor([11]), PAGE_SIZE, Reach(1, 1))
    assert pages[0, 0].tolist() == [0, 2]
    assert seen.all()
    query, compressed = torch.randn(1, HEADS, HEAD_DIM).bfloat16(), torch.randn(1, 3, KV_HEADS, HEAD_DIM)
    assert score_pages(query, compressed, None).dtype is torch.float32
