"""What the happens-before relation says of one claim, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.audit.device import OWN
from sglang_fence.audit.verdicts import BufferResult, ClaimVerdict, EndVerdict, Status
from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.simulated.accesses import Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sglang_fence.audit.cases import Claim
    from sglang_fence.device.simulated.timeline import Record

_PS_PER_US = 1e6

Access = tuple[Op, str, frozenset[int]]
"""Who touches which buffer on trial, and which rows."""


@dataclass(slots=True)
class Findings:
    """Everything about one claim so far."""

    declared: SharedReadEnds
    resolved: SharedReadEnds
    whole_step: bool = False
    last: bool = False
    """Whether it was the last of a step to read, by the algorithm's answer (R3)."""
    results: dict[tuple[SharedReadEnds, str], BufferResult] = field(
        default_factory=dict[tuple[SharedReadEnds, str], BufferResult],
    )
    touched: set[str] = field(default_factory=set[str])
    """Buffers that are read, or written, at whatever time."""
    reasons: set[str] = field(default_factory=set[str])
    """Why steps were coarse."""
    missed: list[str] = field(default_factory=list[str])
    times_us: dict[SharedReadEnds, dict[Record, float]] = field(
        default_factory=dict["SharedReadEnds", "dict[Record, float]"],
    )
    """From each moment to the end of its step, which is the key: of several forwards of a step the last one counts."""
    order: dict[str, bool] = field(default_factory=dict[str, bool])
    """Moments of all the step's phases, in their order; whether every access came before each."""

    def take(self, at: Mapping[SharedReadEnds, Record], accesses: Sequence[Access], end: Record | None) -> None:
        """Take in one step: moments, and all accesses that have to come before one of them.

        Late readers are among the accesses: at the end of each forward, so behind every moment but its last.
        """
        self.touched.update(name for op, name, _ in accesses if not op.name.startswith(OWN))
        for ends, record in at.items():
            if end is not None:
                self.times_us.setdefault(ends, {})[end] = (end.time - record.time) / _PS_PER_US
            late = [access for access in accesses if not access[0].comes_before(record)]
            for name in {name for _, name, _ in accesses}:
                self._result(ends, name, [(op, rows) for op, touched, rows in late if touched == name])

    def compare(self, moments: Sequence[tuple[str, Record]], accesses: Sequence[Access]) -> None:
        """Take in all moments of a step, to find the earliest that nothing comes after."""
        own = [op for op, _, _ in accesses if not op.name.startswith(OWN)]
        for name, record in moments:
            sound = all(op.comes_before(record) for op in own)
            self.order[name] = self.order.get(name, True) and sound

    def judge(self, claim: Claim, candidates: Sequence[SharedReadEnds], buffers: Sequence[str]) -> ClaimVerdict:
        """Return the verdict."""
        ends = {one: self._judge(one, buffers) for one in candidates if claim.scope == "phase" or one is self.resolved}
        verdict = ClaimVerdict(
            claim, self.declared, self.resolved, ends, last=self.last, note=", ".join(sorted(self.reasons))
        )
        if claim.scope == "step":
            earliest = next((name for name, sound in self.order.items() if sound), None)
            verdict.note = "; ".join(one for one in (verdict.note, earliest and f"tightest: {earliest}") if one)
        tightest = verdict.tightest
        if tightest is not None and tightest < self.resolved:
            later = 0.0 if self.resolved is SharedReadEnds.UNKNOWN else self._mean_us(self.resolved)
            verdict.cost_us = self._mean_us(tightest) - later
        return verdict

    def _judge(self, ends: SharedReadEnds, buffers: Sequence[str]) -> EndVerdict:
        found = [self.results[ends, buffer] for buffer in buffers if (ends, buffer) in self.results]
        for result in found:
            result.read = result.buffer in self.touched
        if not found:
            why = "no marker in what replays" if ends is SharedReadEnds.IN_REPLAY else "its moment never came"
            return EndVerdict(ends, Status.NOT_EXERCISED, why=why)
        status = Status.UNSOUND if any(result.diverged for result in found) else Status.SOUND
        return EndVerdict(ends, status, found)

    def _check_plant(self, ends: SharedReadEnds, buffer: str, *, planted: bool) -> None:
        if planted is (ends is not SharedReadEnds.POST_REPLAY):
            return
        if planted and self.whole_step:  # of a forward that follows in the same step
            return
        what = "was not ordered before it" if planted else "was ordered before it"
        self.missed.append(f"{ends.name}: a late reader of {buffer} {what}")

    def _result(self, ends: SharedReadEnds, buffer: str, late: Sequence[tuple[Op, frozenset[int]]]) -> None:
        result = self.results.setdefault((ends, buffer), BufferResult(buffer))
        real = [(op, rows) for op, rows in late if not op.name.startswith(OWN)]
        self._check_plant(ends, buffer, planted=len(real) < len(late))
        result.runs += 1
        if real:
            result.diverged += 1
            result.first = result.first or real[0][0].label
            result.rows = tuple(sorted(set(result.rows).union(*(rows for _, rows in real))))

    def _mean_us(self, ends: SharedReadEnds) -> float:
        times = self.times_us[ends].values()
        return sum(times) / len(times)
