"""What comes out of an audit: verdicts by buffer, by candidate end, by claim, by case."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.audit.cases import Case, Claim


class Status(StrEnum):
    """What is known of one end."""

    SOUND = "sound"
    """Nothing read a shared buffer past it."""

    UNSOUND = "unsound"
    """Something did."""

    NOT_EXERCISED = "not exercised"
    """The moment never came, or nothing that it could have torn was ever read."""

    NOT_DETERMINISTIC = "not deterministic"
    """Two clean runs of the same step differ, so that a difference tells nothing."""


@dataclass(slots=True)
class BufferResult:
    """One candidate end against one buffer."""

    buffer: str
    runs: int = 0
    """How often it was overwritten at that moment, and the late reader behind it saw that."""
    missed: int = 0
    """How often the late reader did not see it, so that the run counts for nothing (experiment)."""
    diverged: int = 0
    """In how many of them something changed."""
    rows: tuple[int, ...] = ()
    """Rows that were read too late."""
    first: str = ""
    """Where the first change showed (experiment), or the first kernel that reads too late (happens-before)."""
    read: bool = True
    """Whether the phase reads the buffer at all, at whatever time."""

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {
            "buffer": self.buffer,
            "runs": self.runs,
            "missed": self.missed,
            "diverged": self.diverged,
            "rows": list(self.rows),
            "first": self.first,
            "read": self.read,
        }


@dataclass(slots=True)
class EndVerdict:
    """One candidate end."""

    ends: SharedReadEnds
    status: Status
    buffers: list[BufferResult] = field(default_factory=list[BufferResult])
    why: str = ""
    """Why it was not exercised."""

    @property
    def torn(self) -> tuple[str, ...]:
        """The buffers that are read past it."""
        return tuple(sorted(result.buffer for result in self.buffers if result.diverged))

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {
            "ends": self.ends.name,
            "status": self.status.value,
            "why": self.why,
            "buffers": [result.to_json() for result in self.buffers],
        }


@dataclass(slots=True)
class ClaimVerdict:
    """All candidates of one claim, and what they say of the end that is declared."""

    claim: Claim
    declared: SharedReadEnds
    resolved: SharedReadEnds
    """What the runner makes of the declaration (R4), or the barrier of what was published."""
    ends: dict[SharedReadEnds, EndVerdict]
    cost_us: float | None = None
    """How long the tightest sound end comes before the resolved one, a step; None where it doesn't, or isn't timed."""
    last: bool = True
    """Whether nothing that follows in the step reads: else the schedule stream waits for that all the same."""
    note: str = ""

    @property
    def status(self) -> Status:
        """Of the resolved end. The coarse fence waits for everything: nothing can be read past it."""
        if self.resolved is SharedReadEnds.UNKNOWN:
            return Status.SOUND
        found = self.ends.get(self.resolved)
        return Status.NOT_EXERCISED if found is None else found.status

    @property
    def tightest(self) -> SharedReadEnds | None:
        """The earliest end that is sound, as are all that come after it; None where none is."""
        tightest = None
        for ends in sorted(self.ends, reverse=True):
            status = self.ends[ends].status
            if status is Status.SOUND:
                tightest = ends
            elif status is not Status.NOT_EXERCISED:
                break
        return tightest

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        tightest = self.tightest
        return {
            **self.claim.to_json(),
            "declared": self.declared.name,
            "resolved": self.resolved.name,
            "status": self.status.value,
            "tightest": None if tightest is None else tightest.name,
            "cost_us": self.cost_us,
            "last": self.last,
            "note": self.note,
            "ends": [self.ends[ends].to_json() for ends in sorted(self.ends)],
        }


@dataclass(slots=True)
class CaseVerdict:
    """One case, by one of the two ways."""

    case: Case
    by: str
    """``poison on NVIDIA H200``, say, or ``happens-before``."""
    claims: list[ClaimVerdict] = field(default_factory=list[ClaimVerdict])
    missed: list[str] = field(default_factory=list[str])
    """Late readers that were planted and not caught. Where there are any, the claims say nothing, and are left out."""
    hazards: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Of the run as it is served, fence and all: anything that nothing orders (happens-before alone)."""
    unheard: list[str] = field(default_factory=list[str])
    """Buffers that the schedule stream writes and that were not on trial."""
    not_done: list[str] = field(default_factory=list[str])
    """What an interruption left undone."""

    @property
    def unsound(self) -> bool:
        """Whether a declared end is wrong, or the run as served has a hazard."""
        return bool(self.hazards) or any(one.status is Status.UNSOUND for one in self.claims)

    @property
    def failed(self) -> bool:
        """Whether anything is wrong: an unsound end, a hazard, a plant that was missed."""
        return self.unsound or bool(self.missed)

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {
            **self.case.to_json(),
            "by": self.by,
            "missed": self.missed,
            "claims": [] if self.missed else [one.to_json() for one in self.claims],
            "hazards": self.hazards,
            "unheard": self.unheard,
            "not_done": self.not_done,
        }
