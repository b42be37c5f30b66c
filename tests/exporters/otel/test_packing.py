"""A step survives the way to the process that sends it, whatever is in it and however its bytes are cut."""

from __future__ import annotations

import marshal
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import FenceKind
from sglang_fence.observe.record import Phase
from sglang_fence.observe.trace import SpanTimes, StepTrace
from sglang_fence_exporters.otel_frames import FrameReader, FrameWriter, framed
from sglang_fence_exporters.otel_packing import VERSION, pack, unpack
from sglang_fence_exporters.otel_talk import Counts, Line, heard, hello_heard, said
from tests.exporters.otel.traces import decode_step, step_traces

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


@given(step_traces())
def test_any_step_comes_out_as_it_went_in_with_every_type_it_had(trace: StepTrace) -> None:
    trace_id, unpacked = unpack(pack(TRACE_ID, trace))
    assert trace_id == TRACE_ID
    assert unpacked == trace
    assert [type(value) for value in unpacked] == [type(value) for value in trace]
    assert all(type(phase) is Phase for phase in unpacked.phases)
    assert all(type(span) is SpanTimes for span in unpacked.spans)
    assert [type(span.track) for span in unpacked.spans] == [type(span.track) for span in trace.spans]
    assert type(unpacked.fence) is FenceKind


def test_what_is_neither_a_number_nor_text_is_refused_where_it_is_packed() -> None:
    with pytest.raises(ValueError, match="unmarshallable"):
        pack(TRACE_ID, decode_step(0, batch_size=object()))


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(1, 200), min_size=1))
def test_messages_come_out_whole_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, messages))
    reader = FrameReader()
    got: list[bytes] = []
    at = turn = 0
    while at < len(stream):
        reader.feed(stream[at : at + cuts[turn % len(cuts)]])
        got.extend(reader.messages())
        at += cuts[turn % len(cuts)]
        turn += 1
    assert got == messages


def test_half_a_message_is_none() -> None:
    reader = FrameReader()
    reader.feed(framed(b"whole") + framed(b"cut short")[:-1])
    assert list(reader.messages()) == [b"whole"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the ends of a pipe, to read from and to write to."""
    reads, writes = os.pipe()
    yield reads, writes
    os.close(reads)
    os.close(writes)


def test_a_full_pipe_is_not_waited_for_and_a_large_message_goes_through_piece_by_piece(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    message = bytes(range(256)) * 2000
    writer, reader = FrameWriter(writes), FrameReader()
    writer.write(message)
    assert not writer.is_clear
    got: list[bytes] = []
    while not got:
        reader.feed(os.read(reads, 10_000))
        got.extend(reader.messages())
        writer.push()
    assert got == [message]
    assert writer.is_clear


def test_where_nobody_reads_any_more_nothing_waits() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    writer = FrameWriter(writes)
    writer.write(b"lost")
    assert writer.is_clear
    os.close(writes)


@pytest.mark.parametrize("word", [Counts(1, 2, 3, 4, 5), Line("a.logger", 30, "text ü\nof two lines")])
def test_what_the_sender_says_is_understood(word: Counts | Line) -> None:
    assert heard(said(word)) == word


def test_another_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"was replaced, restart"):
        hello_heard(marshal.dumps((VERSION + 1, "whatever else it says")))
