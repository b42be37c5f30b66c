"""Halves of a batch: views of it, and numbers of their own where they count anew."""

from __future__ import annotations

import torch

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.splitting import halves
from sglang_fence.attention.tbo import TboAttnBackend
from sglang_fence.contract import ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.attention.stores import tiny_store


def _decode(lines: int, *, width: int = 1, static: bool = True) -> ForwardBatch:
    return ForwardBatch(
        ForwardMode.DECODE,
        req_rows=torch.zeros(lines, dtype=torch.int64),
        seq_lens=torch.ones(lines, dtype=torch.int64),
        tokens=torch.zeros(lines * width, dtype=torch.int64),
        positions=torch.zeros(lines * width, dtype=torch.int64),
        width=width,
        static=static,
    )


def _extend(query_lens: tuple[int, ...], *, static: bool = False) -> ForwardBatch:
    lines = torch.repeat_interleave(torch.arange(len(query_lens)), torch.tensor(query_lens))
    return ForwardBatch(
        ForwardMode.EXTEND,
        req_rows=torch.arange(len(query_lens)) + 1,
        seq_lens=torch.tensor(query_lens),
        tokens=torch.arange(len(lines)),
        positions=torch.arange(len(lines)),
        token_lines=lines,
        last_tokens=torch.tensor(query_lens).cumsum(0) - 1,
        static=static,
        step=3,
        lines=len(query_lens),
        rows=tuple(range(1, len(query_lens) + 1)),
        query_lens=query_lens,
        kv_lens=query_lens,
    )


def test_halves_of_a_captured_batch_see_what_is_loaded_into_it() -> None:
    batch = _decode(5, width=2)
    batch.acts.features = torch.zeros(10, 3)
    split = halves(batch)
    assert split is not None
    batch.req_rows.copy_(torch.arange(5))
    batch.tokens.copy_(torch.arange(10))
    batch.acts.features[4:] = 1
    assert (split.first.req_rows.tolist(), split.second.req_rows.tolist()) == ([0, 1], [2, 3, 4])
    assert (split.first.tokens.tolist(), split.second.tokens.tolist()) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
    assert split.second.acts.features is not None
    assert split.second.acts.features.shape == (6, 3)
    assert split.second.acts.features.all()
    assert split.first.acts is not split.second.acts


def test_padding_may_fill_the_second_half() -> None:
    device = SimulatedDevice()
    for real, expected in ((1, (1, 0)), (2, (2, 0)), (3, (2, 1)), (4, (2, 2))):
        batch = _decode(4)
        batch.step, batch.lines, batch.rows, batch.pages = 9, real, (4, 2, 0), (7,)
        split = halves(batch)
        assert split is not None
        split.load(device)
        assert (split.first.lines, split.second.lines) == expected
        assert split.second.step == 9
        assert split.first.read_rows() == (4, 2, 0)
        assert split.first.read_pages() == (7,)


def test_the_second_half_of_an_extend_counts_from_its_own_first_line() -> None:
    device = SimulatedDevice()
    split = halves(batch := _extend((2, 1, 3)))
    assert split is not None
    split.load(device)
    device.synchronize()
    assert split.first.query_lens == (2,)
    assert split.second.query_lens == split.second.kv_lens == (1, 3)
    assert split.second.token_lines is not None
    assert split.second.token_lines.tolist() == [0, 1, 1, 1]
    assert split.second.last_tokens is not None
    assert split.second.last_tokens.tolist() == [0, 3]
    assert batch.token_lines is not None
    assert batch.token_lines.tolist() == [0, 0, 1, 2, 2, 2]


def test_what_is_loaded_later_is_renumbered_in_its_turn() -> None:
    """The halves are made on the host, before the kernel that loads the batch has run."""
    device = SimulatedDevice()
    expected = _extend((2, 3))
    batch = _extend((2, 3))
    assert batch.token_lines is not None
    loaded = batch.token_lines.clone()
    batch.token_lines.zero_()
    device.launch("load_batch", lambda: batch.token_lines is not None and batch.token_lines.copy_(loaded))
    split = halves(batch)
    assert split is not None
    split.load(device)
    device.synchronize()
    assert split.second.token_lines is not None
    assert split.second.token_lines.tolist() == [0, 0, 0]
    assert expected.token_lines is not None
    assert torch.equal(batch.token_lines, expected.token_lines)


def test_one_line_and_a_captured_extend_stay_whole() -> None:
    assert halves(_decode(1)) is None
    assert halves(_extend((5,))) is None
    assert halves(_extend((5, 5), static=True)) is None


def _overlap() -> TboAttnBackend:
    store = tiny_store(SimulatedDevice())
    return TboAttnBackend(NativeAttnBackend(*store), (NativeAttnBackend(*store), NativeAttnBackend(*store)))


def test_a_captured_batch_keeps_its_halves_and_an_eager_one_is_split_anew() -> None:
    backend = _overlap()
    captured, eager = _decode(4), _decode(4, static=False)
    for batch, same in ((captured, True), (eager, False)):
        backend.init_forward_metadata_out_graph(batch, in_capture=batch.static)
        before = [part for _, part in backend.lanes(batch)]
        backend.init_forward_metadata_out_graph(batch)
        after = [part for _, part in backend.lanes(batch)]
        assert all((one is other) is same for one, other in zip(before, after, strict=True))


def test_halves_of_halves_answer_for_the_whole() -> None:
    inner = [_overlap() for _ in range(3)]
    backend = TboAttnBackend(inner[0], (inner[1], inner[2]))
    batch = _decode(4)
    batch.rows, batch.pages = (1, 2, 3, 4), (5, 6)
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    lanes = backend.lanes(batch)
    assert [len(part.tokens) for _, part in lanes] == [1, 1, 1, 1]
    assert {owner.name for owner, _ in lanes} == {"native"}
    batch.rows = (9,)
    assert {part.read_rows() for _, part in lanes} == {(9,)}
