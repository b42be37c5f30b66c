"""Linear attention: the recurrence, its state, and whose state it is."""

from __future__ import annotations

import torch
from torch.nn.functional import elu

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.hybrid_linear import HybridLinearAttnBackend
from sglang_fence.attention.linear import LinearAttnBackend
from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.contract import ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.attention.stores import HEAD_DIM, HEADS, KV_HEADS, tiny_store

GROUP = HEADS // KV_HEADS
Spans = list[tuple[int, int, int]]
"""Row, first position, position after the last, for each line."""


def _naive(qkv: torch.Tensor) -> torch.Tensor:
    """Return the recurrence, token by token."""
    state = torch.zeros(KV_HEADS, HEAD_DIM, HEAD_DIM)
    norm = torch.zeros(KV_HEADS, HEAD_DIM)
    out = torch.empty(len(qkv), HEADS, HEAD_DIM)
    for token, (query, key, value) in enumerate(zip(*_split(qkv), strict=True)):
        feature = elu(key) + 1
        state += feature[..., None] * value[:, None]
        norm += feature
        for head in range(HEADS):
            asked = elu(query[head]) + 1
            out[token, head] = asked @ state[head // GROUP] / (asked @ norm[head // GROUP])
    return out


def _split(qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    return query, key, value


def _batch(spans: Spans, mode: ForwardMode) -> ForwardBatch:
    counts = [last - first for _, first, last in spans]
    tokens = sum(counts)
    lines = torch.repeat_interleave(torch.arange(len(spans)), torch.tensor(counts))
    return ForwardBatch(
        mode,
        req_rows=torch.tensor([row for row, _, _ in spans]),
        seq_lens=torch.tensor([last for _, _, last in spans]),
        tokens=torch.zeros(tokens, dtype=torch.int64),
        positions=torch.cat([torch.arange(first, last) for _, first, last in spans]),
        token_lines=None if mode.is_decode() else lines,
        width=1 if mode.is_decode() else 0,
    )


def _run(backend: LinearAttnBackend, spans: Spans, inputs: dict[int, torch.Tensor], *, decode: bool = False) -> None:
    """Run one forward and compare each line with the recurrence over its whole request."""
    batch = _batch(spans, ForwardMode.DECODE if decode else ForwardMode.EXTEND)
    qkv = torch.cat([inputs[row][first:last] for row, first, last in spans])
    out = backend.attend(batch, 3, *_split(qkv))
    expected = torch.cat([_naive(inputs[row][:last])[first:] for row, first, last in spans])
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def _backend() -> LinearAttnBackend:
    return LinearAttnBackend(*tiny_store(SimulatedDevice()), layers=(1, 3))


def _inputs(*rows: int) -> dict[int, torch.Tensor]:
    torch.manual_seed(len(rows))
    return {row: torch.randn(24, HEADS + 2 * KV_HEADS, HEAD_DIM) for row in rows}


def test_chunks_and_decodes_carry_the_state_on_whatever_line_a_request_has() -> None:
    backend, inputs = _backend(), _inputs(1, 2, 3)
    _run(backend, [(1, 0, 7), (2, 0, 1)], inputs)
    _run(backend, [(2, 1, 9), (3, 0, 5), (1, 7, 12)], inputs)
    _run(backend, [(3, 5, 6), (1, 12, 13), (2, 9, 10)], inputs, decode=True)
    _run(backend, [(2, 10, 11), (3, 6, 7)], inputs, decode=True)


def test_a_prefill_from_position_0_forgets_the_rows_last_owner() -> None:
    backend = _backend()
    _run(backend, [(1, 0, 9)], _inputs(1))
    _run(backend, [(1, 0, 4), (2, 0, 3)], _inputs(1, 2))


def test_padding_keeps_the_state_of_row_0_finite() -> None:
    backend, inputs = _backend(), _inputs(1)
    _run(backend, [(1, 0, 3)], inputs)
    for _ in range(50):
        padded = _batch([(0, 0, 1), (0, 0, 1)], ForwardMode.DECODE)
        backend.attend(padded, 3, *_split(torch.full((2, HEADS + 2 * KV_HEADS, HEAD_DIM), 1e19)))
    assert torch.isfinite(backend.state.tensor).all()
    _run(backend, [(1, 3, 4)], inputs, decode=True)


def test_a_line_without_tokens_changes_no_state() -> None:
    backend, inputs = _backend(), _inputs(1, 2)
    _run(backend, [(1, 0, 3), (2, 0, 5)], inputs)
    before = backend.state.tensor[2].clone()
    batch = _batch([(1, 3, 6)], ForwardMode.EXTEND)
    batch.req_rows, batch.seq_lens = torch.tensor([1, 2]), torch.tensor([6, 5])
    backend.attend(batch, 3, *_split(inputs[1][3:6]))
    assert torch.equal(backend.state.tensor[2], before)
    _run(backend, [(1, 6, 7), (2, 5, 6)], inputs, decode=True)


def test_the_state_has_a_layer_for_each_linear_one() -> None:
    store = tiny_store(SimulatedDevice())
    backend = HybridLinearAttnBackend(NativeAttnBackend(*store))
    assert isinstance(backend.children[1], LinearAttnBackend)
    assert backend.children[1].state.tensor.shape == (5, 2, KV_HEADS, HEAD_DIM, HEAD_DIM + 1)
    assert [backend.child(layer).name for layer in range(4)] == ["native", "linear"] * 2
    one = HybridLinearAttnBackend(NativeAttnBackend(*store), full_layers=(0, 1, 2))
    assert [one.child(layer).name for layer in range(4)] == ["native", "native", "native", "linear"]
