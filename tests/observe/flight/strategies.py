"""Any dump, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.observe.flight.facts import Cause, Clock, Dump, ProgressFacts, StepFacts
from sglang_fence.observe.record import Phase

_NUMBERS = st.integers(0, 2**63)
_MAYBE = st.none() | _NUMBERS
_TEXTS = st.text(max_size=20)
_ENDS = st.sampled_from(SharedReadEnds)
_MODES = st.sampled_from(ForwardMode)

phases = st.builds(Phase, _MODES, _TEXTS, _TEXTS, _ENDS, _ENDS, st.none() | _TEXTS)

steps = st.builds(
    StepFacts,
    step=_NUMBERS,
    mode=_MODES,
    backend=_TEXTS,
    batch_size=_NUMBERS,
    tokens=_NUMBERS,
    phases=st.lists(phases, max_size=3).map(tuple),
    declared=_ENDS,
    resolved=_ENDS,
    downgrade=st.none() | _TEXTS,
    fence=st.sampled_from(FenceKind),
    reason=st.none() | st.sampled_from(FallbackReason),
    record=_MAYBE,
    event=_MAYBE,
    started_ns=_NUMBERS,
    launched_ns=_MAYBE,
    entered_ns=_MAYBE,
    issued_ns=_MAYBE,
)

dumps = st.builds(
    Dump,
    version=_TEXTS,
    rank=_TEXTS,
    pid=_NUMBERS,
    cause=st.sampled_from(Cause),
    detail=st.none() | _TEXTS,
    wall_ns=st.integers(0, 4 * 10**18),
    now_ns=_NUMBERS,
    clock=st.sampled_from(Clock),
    capacity=_NUMBERS,
    progress=st.builds(
        ProgressFacts, awaited=_MAYBE, in_hand=_MAYBE, timed=_MAYBE, in_order=st.booleans(), settled_ns=_MAYBE
    ),
    steps=st.lists(steps, max_size=4).map(tuple),
    stack=st.lists(_TEXTS, max_size=3).map(tuple),
)
