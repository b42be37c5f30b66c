"""A sampled step as bytes and back, for the way to the process that sends it. In C for the most part: some 6 µs a step.

Numbers and plain text alone go over, by :mod:`marshal`: it reads nothing but such, in nested tuples. It may change from
one Python to the next, which is no matter here: both ends are run by the same one.
"""

from __future__ import annotations

import marshal
from typing import NamedTuple

from sglang_fence.catalogue.schema import Track
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.record import Phase
from sglang_fence.observe.trace import SpanTimes, StepTrace

VERSION = 1
"""Of all that the two processes say to one another. They differ where a package was replaced under a running server."""

_MARSHAL = 2
"""The newest format would look for values that come twice, which takes longer than writing them."""

_PLAIN_FROM = StepTrace._fields.index("slack_us")
"""From there on a step has plain values alone."""

_ENDS = {ends.value: ends for ends in SharedReadEnds}
_FENCES = {kind.value: kind for kind in FenceKind}
_MODES = {mode.value: mode for mode in ForwardMode}
_REASONS = {reason.value: reason for reason in FallbackReason}
_TRACKS = {track.value: track for track in Track}


class PackedStep(NamedTuple):
    """What was packed."""

    trace_id: str
    """32 hexadecimal digits: the identifier that the step's trace is to have."""
    trace: StepTrace


def pack(trace_id: str, trace: StepTrace) -> bytes:
    """Return the step as bytes.

    Raises:
        ValueError: something in it is neither a number nor text.
    """
    reason = trace.reason
    plain = (
        trace_id,
        trace.step,
        str(trace.mode),  # plain text: marshal takes no subclass of anything
        trace.backend,
        trace.batch_size,
        trace.tokens,
        tuple([(str(of), role, name, int(says), int(ends), why) for of, role, name, says, ends, why in trace.phases]),
        int(trace.declared),
        int(trace.resolved),
        trace.downgrade,
        str(trace.fence),
        None if reason is None else str(reason),
        trace.start_ns,
        trace.end_ns,
        tuple([(name, str(on), start, end, of, nth) for name, on, start, end, of, nth in trace.spans]),
        *trace[_PLAIN_FROM:],
    )
    return marshal.dumps(plain, _MARSHAL)


def unpack(payload: bytes) -> PackedStep:
    """Return what :func:`pack` was given.

    Raises:
        ValueError: the bytes are none of :func:`pack`'s; or EOFError, KeyError, TypeError.
    """
    plain = marshal.loads(payload)  # noqa: S302 - from the other end of our own pipe, and it makes plain values alone
    trace_id, step, mode, backend, batch_size, tokens, phases, declared, resolved, downgrade, *rest = plain
    fence, reason, start_ns, end_ns, spans, *as_they_are = rest
    trace = StepTrace(
        step,
        _MODES[mode],
        backend,
        batch_size,
        tokens,
        tuple(
            Phase(_MODES[of], role, name, _ENDS[says], _ENDS[ends], cause)
            for of, role, name, says, ends, cause in phases
        ),
        _ENDS[declared],
        _ENDS[resolved],
        downgrade,
        _FENCES[fence],
        None if reason is None else _REASONS[reason],
        start_ns,
        end_ns,
        tuple(SpanTimes(name, _TRACKS[track], *times) for name, track, *times in spans),
        *as_they_are,
    )
    return PackedStep(trace_id, trace)
