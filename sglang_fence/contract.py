"""The words of the contract: where shared reads end, forward modes, fence kinds, and why a step was coarse.

A leaf: it imports nothing of the project. The rules R1 to R12 that other modules name are listed in CONTRIBUTING.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class SharedReadEnds(IntEnum):
    """Where a forward's reads of the shared buffers end, ordered by lateness."""

    PRE_REPLAY = 1
    """After ``init_forward_metadata_out_graph``, before the replay is launched."""

    IN_REPLAY = 2
    """After ``init_forward_metadata_in_graph``, at a marker inside the graph."""

    POST_REPLAY = 3
    """Metadata isn't snapshotted: reads go on until the whole replay is done."""

    UNKNOWN = 4
    """Not audited: nothing is published, the fence is coarse."""

    @staticmethod
    def max_of(items: Iterable[SharedReadEnds]) -> SharedReadEnds:
        """Return the latest of ``items``; one unaudited child makes the whole UNKNOWN (R1).

        Raises:
            ValueError: ``items`` is empty. A wrapper without children has nothing to answer for.
        """
        latest = max(items, default=None)
        if latest is None:
            msg = "SharedReadEnds.max_of() needs at least one item: a wrapper must name the children that read"
            raise ValueError(msg)
        return latest


class ForwardMode(StrEnum):
    """What a forward computes. Predicates carry the names that the field uses."""

    EXTEND = "extend"
    DECODE = "decode"
    MIXED = "mixed"
    IDLE = "idle"
    TARGET_VERIFY = "target_verify"
    DRAFT_EXTEND = "draft_extend"

    def is_extend(self) -> bool:
        """Whether new prompt-like tokens are computed, with their keys and values (EXTEND, MIXED, speculative)."""
        return self in _EXTENDING

    def is_prefill(self) -> bool:
        """Whether prompt tokens are computed (EXTEND, MIXED)."""
        return self in {ForwardMode.EXTEND, ForwardMode.MIXED}

    def is_decode(self) -> bool:
        """Whether each request computes exactly one new token."""
        return self is ForwardMode.DECODE

    def is_mixed(self) -> bool:
        """Whether prefill chunks and decode tokens share the batch."""
        return self is ForwardMode.MIXED

    def is_idle(self) -> bool:
        """Whether the forward has no request, and runs only to keep its peers company."""
        return self is ForwardMode.IDLE

    def is_target_verify(self) -> bool:
        """Whether the target model scores drafted tokens."""
        return self is ForwardMode.TARGET_VERIFY

    def is_draft_extend(self) -> bool:
        """Whether a draft model catches up with the tokens that verification accepted."""
        return self is ForwardMode.DRAFT_EXTEND

    def is_decode_or_idle(self) -> bool:
        """Whether it is DECODE or IDLE."""
        return self in {ForwardMode.DECODE, ForwardMode.IDLE}

    def is_cuda_graph(self) -> bool:
        """Whether decode graphs may serve it (DECODE, TARGET_VERIFY, IDLE)."""
        return self in {ForwardMode.DECODE, ForwardMode.TARGET_VERIFY, ForwardMode.IDLE}


_EXTENDING = frozenset(
    {ForwardMode.EXTEND, ForwardMode.MIXED, ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND},
)


class FenceKind(StrEnum):
    """How the schedule stream was held back behind a step."""

    FINE = "fine"
    """It waited for the read-done event alone (PRE_REPLAY, IN_REPLAY, or a late POST_REPLAY)."""

    COARSE = "coarse"
    """It waited for the whole forward stream."""

    DISABLED = "disabled"
    """The barrier is switched off: it did not wait."""

    ABSENT = "absent"
    """The loop that ran the step has no barrier."""


class FallbackReason(StrEnum):
    """Why a step was coarse. A closed set: each coarse step has exactly one."""

    BACKEND_UNKNOWN = "backend_unknown"
    NOT_LAST_PHASE = "not_last_phase"
    OWNER_SILENT = "owner_silent"
    STALE = "stale"
    UNRECORDED = "unrecorded"
    FORCED = "forced"
    PREFILL_DISABLED = "prefill_disabled"
    MODE_UNSUPPORTED = "mode_unsupported"
    SNAPSHOT_MISSING = "snapshot_missing"
    SPEC_READER_FOLLOWS = "spec_reader_follows"
    HOST_CACHE = "host_cache"
    NO_GRAPH = "no_graph"
    IDLE = "idle"

    @property
    def info(self) -> ReasonInfo:
        """What it means, and whether it is expected in a healthy deployment."""
        return REASONS[self]


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """A row of the table of reasons."""

    expected: bool
    """Whether a healthy deployment shows it. Alerts look at the others."""

    meaning: str


REASONS: dict[FallbackReason, ReasonInfo] = {
    FallbackReason.BACKEND_UNKNOWN: ReasonInfo(
        expected=False,
        meaning="the backend declares UNKNOWN for this mode: nobody has audited where its reads end",
    ),
    FallbackReason.NOT_LAST_PHASE: ReasonInfo(
        expected=False,
        meaning="the last publication of the step came from a phase after which others still read",
    ),
    FallbackReason.OWNER_SILENT: ReasonInfo(
        expected=False,
        meaning="the runner that owns the last shared read published nothing for the step",
    ),
    FallbackReason.STALE: ReasonInfo(
        expected=False,
        meaning="the mailbox held a publication of another step",
    ),
    FallbackReason.UNRECORDED: ReasonInfo(
        expected=False,
        meaning="the publication named an event that was never recorded; waiting on it would be a no-op",
    ),
    FallbackReason.FORCED: ReasonInfo(
        expected=True,
        meaning="the coarse fence was asked for (SGLANG_FORCE_COARSE_WAR_BARRIER or --fence coarse)",
    ),
    FallbackReason.PREFILL_DISABLED: ReasonInfo(
        expected=True,
        meaning="prefill publication is switched off (SGLANG_ENABLE_PREFILL_WAR_READ_DONE)",
    ),
    FallbackReason.MODE_UNSUPPORTED: ReasonInfo(
        expected=True,
        meaning="prefill publishes in mode EXTEND at PRE_REPLAY alone, and this step was neither",
    ),
    FallbackReason.SNAPSHOT_MISSING: ReasonInfo(
        expected=False,
        meaning="the backend declares PRE_REPLAY but built no snapshot for this very batch",
    ),
    FallbackReason.SPEC_READER_FOLLOWS: ReasonInfo(
        expected=True,
        meaning="a later speculative phase of the same step reads the shared buffers again",
    ),
    FallbackReason.HOST_CACHE: ReasonInfo(
        expected=True,
        meaning="a host or storage cache copies behind the schedule stream alone",
    ),
    FallbackReason.NO_GRAPH: ReasonInfo(
        expected=True,
        meaning="an eager runner that publishes nothing served the batch",
    ),
    FallbackReason.IDLE: ReasonInfo(
        expected=True,
        meaning="the forward had no request",
    ),
}
