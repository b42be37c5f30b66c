"""``StepTrace``: one sampled step, finished, with every span that a timeline shows. Immutable; made to be kept.

Observers get it through :meth:`~sglang_fence.observe.observer.Observer.step_traced`, on the serving thread: keep it
(in something bounded) and work on it elsewhere. All times are nanoseconds of the wall clock since the Unix epoch, as
OpenTelemetry and Perfetto take them; on the simulated device virtual time since :data:`VIRTUAL_EPOCH_NS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sglang_fence.catalogue.schema import Track
    from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import Phase

VIRTUAL_EPOCH_NS = 1_577_836_800_000_000_000
"""2020-01-01T00:00:00Z: where virtual time begins, so that traces of one command are the same byte for byte."""


class SpanTimes(NamedTuple):
    """One span below the step. Spans of one track nest, or follow one another."""

    name: str
    """A span of the catalogue: ``replay``."""
    track: Track
    """``HOST``, ``FORWARD`` or ``SCHEDULE``."""
    start_ns: int
    end_ns: int
    phase: int | None = None
    """Which of the step's phases it belongs to, where it belongs to one."""
    segment: int | None = None
    """Place of a segment in its graph, from 0."""


class StepTrace(NamedTuple):
    """One sampled step. Durations in µs, None as in :class:`~sglang_fence.observe.record.StepRecord`."""

    step: int
    mode: ForwardMode
    backend: str
    batch_size: int
    tokens: int
    phases: tuple[Phase, ...]
    declared: SharedReadEnds
    resolved: SharedReadEnds
    downgrade: str | None
    fence: FenceKind
    reason: FallbackReason | None
    start_ns: int
    """The host begins with the step."""
    end_ns: int
    """The last of its spans ends."""
    spans: tuple[SpanTimes, ...]
    slack_us: float | None
    wait_us: float | None
    forward_us: float | None
    gap_us: float | None
    gap_last: str | None
    lost_slack_us: float | None
    assumed: bool
    lost_us: float | None
    released_ns: int | None
    """When the record that the fence is bound to was reached: the arrow from read-done to the barrier's wait."""
    bound_record: int | None
    """Number of that record; None for a coarse fence, and where there is none."""
    waited_for: int | None
    """The step whose fence stood before the preparation of this one."""
    links: tuple[str, ...]
    """W3C ``traceparent`` of each of its requests that came with one."""
    error_ns: int
    """How far device times may be off against host times, at the most."""
