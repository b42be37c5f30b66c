"""Counting: what the runs of one case showed, by claim, candidate end and buffer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.audit.cases import CANDIDATES
from sglang_fence.audit.verdicts import BufferResult, ClaimVerdict, EndVerdict, Status
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.audit.cases import Claim

TRIES = 3
"""How often a run may be repeated whose overwriting came too late."""

_CONTROLS = 3
"""In how many steps a buffer must go unread to count as one that the claim doesn't read."""


@dataclass(slots=True)
class Count:
    """One candidate end against one buffer."""

    runs: int = 0
    diverged: int = 0
    missed: int = 0
    """Runs whose late reader did not see the overwriting."""
    blank: int = 0
    """Runs in which the other values would have been the true ones."""
    rows: set[int] = field(default_factory=set[int])
    lines: set[int] = field(default_factory=set[int])
    """Batch sizes of the runs: each has a graph, and a marker, of its own."""
    first: str = ""

    def add(self, lines: int, difference: str | None, *, in_time: bool | None) -> bool:
        """Count a run in; return whether it diverged.

        Args:
            lines: requests of its step.
            difference: the first between it and the clean run; None: there is none.
            in_time: whether its late reader saw the overwriting; None: the other values would have been the true ones.
        """
        if not in_time:
            self.blank += in_time is None
            self.missed += in_time is False
            return False
        self.runs += 1
        self.lines.add(lines)
        if difference is None:
            return False
        self.diverged += 1
        self.first = self.first or difference
        return True


@dataclass(slots=True)
class Known:
    """One claim, as the steps so far showed it."""

    declared: SharedReadEnds
    resolved: SharedReadEnds
    available: set[SharedReadEnds] = field(default_factory=set[SharedReadEnds])
    """Candidates whose moment there is."""
    counts: dict[tuple[SharedReadEnds | None, str], Count] = field(
        default_factory=dict[tuple[SharedReadEnds | None, str], Count],
    )
    """By candidate (None: before anything is read) and buffer."""
    last: bool = False
    """Whether it was the last of a step to read, by the algorithm's answer (R3)."""
    steps: int = 0
    noisy: int = 0
    """Steps whose clean runs differed."""


class Tally:
    """All claims of one case.

    Args:
        candidates: ends to try.
        repeats: runs with fresh data for each claim, end and buffer.
    """

    def __init__(self, candidates: Sequence[SharedReadEnds] = CANDIDATES, repeats: int = 20) -> None:
        self.candidates = tuple(candidates)
        self.repeats = repeats
        self.known: dict[Claim, Known] = {}
        self.buffers: list[str] = []

    def see(self, claim: Claim, declared: SharedReadEnds, resolved: SharedReadEnds) -> Known:
        """Take up a claim; of several resolutions the earliest is the one to be borne out."""
        known = self.known.get(claim)
        if known is None:
            known = self.known[claim] = Known(declared, resolved)
        known.resolved = min(known.resolved, resolved)
        return known

    def wants(self, claim: Claim, ends: SharedReadEnds | None, buffer: str, lines: int | None = None) -> bool:
        """Whether another run is wanted; one of a batch size that wasn't there yet always is.

        Args:
            claim: known already.
            ends: None: before anything is read.
            buffer: by name.
            lines: requests of the step at hand; None: whether it is worth waiting for another step.
        """
        known = self.known[claim]
        count = known.counts.get((ends, buffer), Count())
        if count.missed + count.blank >= TRIES * self.repeats:
            return False
        if ends is None:
            return count.runs < min(_CONTROLS, self.repeats) and not count.diverged
        return count.runs < self.repeats or (lines is not None and lines not in count.lines)

    @property
    def wanting(self) -> list[str]:
        """What is still to be done of what is known, in words."""
        return [
            f"{claim} at {ends.name}: {buffer}"
            for claim, known in self.known.items()
            for ends in self.candidates
            if ends in known.available
            for buffer in self.buffers
            if known.noisy < TRIES * self.repeats and self.wants(claim, ends, buffer)
        ]

    def count(self, claim: Claim, ends: SharedReadEnds | None, buffer: str) -> Count:
        """Return the count to add to."""
        return self.known[claim].counts.setdefault((ends, buffer), Count())

    @property
    def missed(self) -> list[str]:
        """Late readers that were planted and never caught, in words."""
        return [
            f"{claim} at {'its start' if ends is None else ends.name}: a late reader of {buffer} was planted, and"
            f" missed in {count.missed} of {count.missed + count.runs} runs"
            for claim, known in self.known.items()
            for (ends, buffer), count in known.counts.items()
            if count.missed and not count.runs
        ]

    def verdicts(self) -> list[ClaimVerdict]:
        """Judge every claim."""
        return [
            ClaimVerdict(
                claim,
                known.declared,
                known.resolved,
                {
                    ends: self._judge(known, ends)
                    for ends in self.candidates
                    if claim.scope == "phase" or ends is known.resolved
                },
                last=known.last,
            )
            for claim, known in sorted(self.known.items(), key=lambda entry: entry[0].scope)
        ]

    def _judge(self, known: Known, ends: SharedReadEnds) -> EndVerdict:
        if ends not in known.available:
            why = "no marker in what replays" if ends is SharedReadEnds.IN_REPLAY else "its moment never came"
            return EndVerdict(ends, Status.NOT_EXERCISED, why=why)
        found = [self._buffer(known, ends, buffer) for buffer in self.buffers if (ends, buffer) in known.counts]
        if any(result.diverged for result in found):
            return EndVerdict(ends, Status.UNSOUND, found)
        if known.noisy and not any(result.runs for result in found):
            return EndVerdict(ends, Status.NOT_DETERMINISTIC, found, f"clean runs differed in {known.noisy} steps")
        if not any(result.runs for result in found):
            return EndVerdict(ends, Status.NOT_EXERCISED, found, "no run was conclusive")
        if not any(result.read for result in found):
            return EndVerdict(ends, Status.SOUND, found, "nothing on trial is read at all")
        return EndVerdict(ends, Status.SOUND, found)

    def _buffer(self, known: Known, ends: SharedReadEnds, buffer: str) -> BufferResult:
        count = known.counts[ends, buffer]
        control = known.counts.get((None, buffer))
        read = count.diverged > 0 or control is None or control.diverged > 0 or control.runs == 0
        return BufferResult(
            buffer, count.runs, count.missed, count.diverged, tuple(sorted(count.rows)), count.first, read
        )
