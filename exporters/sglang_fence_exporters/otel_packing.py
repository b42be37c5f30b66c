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
    (step, mode, backend, batch_size, tokens, phases, declared, resolved, downgrade, fence, reason, *rest) = trace
    start_ns, end_ns, spans, *durations = rest
    return marshal.dumps(
        (
            trace_id,
            step,
            str(mode),  # plain text: marshal takes no subclass of anything
            backend,
            batch_size,
            tokens,
            tuple(
                [  # sooner done than a generator
                    (str(of), role, name, int(says), int(ends), cause) for of, role, name, says, ends, cause in phases
                ]
            ),
            int(declared),
            int(resolved),
            downgrade,
            str(fence),
            None if reason is None else str(reason),
            start_ns,
            end_ns,
            tuple([(name, str(track), *times) for name, track, *times in spans]),
            *durations,
        ),
        _MARSHAL,
    )


def unpack(payload: bytes) -> PackedStep:
    """Return what :func:`pack` was given.

    Raises:
        ValueError: the bytes are none of :func:`pack`'s; or EOFError, KeyError, TypeError.
    """
    trace_id, step, mode, backend, batch_size, tokens, phases, declared, resolved, downgrade, *rest = marshal.loads(
        payload
    )
    fence, reason, start_ns, end_ns, spans, *durations = rest
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
        *durations,
    )
    return PackedStep(trace_id, trace)
