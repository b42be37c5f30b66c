"""Many cases: each audited by poison on the device asked for and by happens-before, and both compared."""

from __future__ import annotations

import gc
import multiprocessing
import signal
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.audit.auditing import happens_before, poison, remaining
from sglang_fence.audit.costs import set_cost
from sglang_fence.audit.delays import simulated_costs
from sglang_fence.audit.verdicts import Status
from sglang_fence.audit.wording import sentence
from sglang_fence.device import open_device
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.models.loading import EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sglang_fence.audit.auditing import AuditOptions
    from sglang_fence.audit.cases import Case
    from sglang_fence.audit.verdicts import CaseVerdict
    from sglang_fence.device.protocol import DeviceModule

_MOST_HAZARDS = 5
_HAZARD = "As it is served: {kind} on {buffer}, rows {rows}: {first}, then {second}; {missing}."


@dataclass(frozen=True, slots=True)
class CaseReport:
    """Both answers to one case."""

    case: Case
    poisoned: CaseVerdict
    ordered: CaseVerdict
    disagreements: list[str] = field(default_factory=list[str])

    @property
    def unsound(self) -> bool:
        """Whether either found something wrong."""
        return self.poisoned.unsound or self.ordered.unsound

    @property
    def missed(self) -> list[str]:
        """Plants that either missed."""
        return [*self.poisoned.missed, *self.ordered.missed]

    def sentences(self) -> list[str]:
        """Return what was found, a sentence or two a claim; where a plant was missed, that and nothing else."""
        if self.missed:
            return [f"{self.case}: the audit missed what it planted, so it says nothing.", *self.missed]
        refuted = [one for one in self.ordered.claims if one.status is Status.UNSOUND]
        return [
            *(sentence(one, self.poisoned.by) for one in self.poisoned.claims),
            *(sentence(one, self.ordered.by) for one in refuted),
            *(_HAZARD.format(**one) for one in self.ordered.hazards[:_MOST_HAZARDS]),
            *(f"Experiment and order differ: {text}." for text in self.disagreements),
            *(
                f"Not on trial, though the schedule stream writes it: {name}."
                for name in sorted({*self.poisoned.unheard, *self.ordered.unheard})
            ),
            *(f"Not done: {text}." for text in self.poisoned.not_done),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {
            **self.case.to_json(),
            "unsound": self.unsound,
            "verdicts": [self.poisoned.to_json(), self.ordered.to_json()],
            "disagreements": self.disagreements,
        }


def audit_case(
    case: Case,
    device: str,
    options: AuditOptions,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> CaseReport:
    """Audit one case both ways.

    Args:
        case: what.
        device: ``cuda`` or ``simulated``, for the experiment.
        options: how.
        stop: asked before each run.

    Raises:
        UserError: the case can't be served, or there is no such device.
    """
    opened = _open(device)
    poisoned = poison(case, opened, options, stop=stop)
    ordered = happens_before(case, options)
    gc.collect()  # an engine's graphs hold memory of the device until then
    _say_costs(poisoned, ordered, opened, options, stop)
    gc.collect()
    comparable = options.model == EMBEDDED and not stop() and not poisoned.missed and not ordered.missed
    return CaseReport(case, poisoned, ordered, compare(poisoned, ordered) if comparable else [])


def compare(poisoned: CaseVerdict, ordered: CaseVerdict) -> list[str]:
    """Return in what the two differ, in words; nothing where they agree in every claim, end and buffer."""
    found: list[str] = []
    ours, theirs = ({one.claim: one for one in verdict.claims} for verdict in (poisoned, ordered))
    found += [f"{claim}: only one of the two saw it" for claim in sorted(ours.keys() ^ theirs.keys())]
    for claim in sorted(ours.keys() & theirs.keys()):
        mine, other = ours[claim], theirs[claim]
        for ends in sorted(mine.ends.keys() & other.ends.keys()):
            one, two = mine.ends[ends], other.ends[ends]
            if (one.status, one.torn) != (two.status, two.torn):
                words = [f"{verdict.status} {list(verdict.torn)}" for verdict in (one, two)]
                found.append(f"{claim} at {ends.name}: {words[0]} by {poisoned.by}, {words[1]} by {ordered.by}")
        if mine.tightest is not other.tightest:
            names = [one.tightest.name if one.tightest else "none" for one in (mine, other)]
            found.append(f"{claim}: tightest sound end {names[0]} by {poisoned.by}, {names[1]} by {ordered.by}")
    return found


def audit_all(
    cases: Sequence[Case],
    device: str,
    options: AuditOptions,
    *,
    jobs: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> Generator[CaseReport]:
    """Audit cases, in ``jobs`` processes; yields each report when it is there, and no more once ``stop`` says so.

    Raises:
        UserError: as :func:`audit_case`.
    """
    if jobs == 1:
        for case in cases:
            if stop():
                return
            yield audit_case(case, device, options, stop=stop)
        return
    context = multiprocessing.get_context("spawn")  # CUDA doesn't survive a fork
    with ProcessPoolExecutor(jobs, context, initializer=_prepare_process) as pool:
        futures = [pool.submit(audit_case, case, device, options) for case in cases]
        try:
            for future in as_completed(futures):
                yield future.result()
                if stop():
                    return
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare_process() -> None:
    """Leave interruptions to the parent; and processors to the other processes."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _open(device: str) -> DeviceModule:
    """Open a device of its own for each case: graphs of one engine must not share memory with those of another."""
    if device == "simulated":
        return SimulatedDevice(simulated_costs(), check_hazards=False)
    return open_device(device)


def _say_costs(
    poisoned: CaseVerdict,
    ordered: CaseVerdict,
    device: DeviceModule,
    options: AuditOptions,
    stop: Callable[[], bool],
) -> None:
    """Time what an earlier end would be worth, on the device itself; in virtual time that is known already."""
    wanting = [one for one in poisoned.claims if one.tightest is not None and one.tightest < one.resolved]
    if device.virtual_seconds() is not None:
        known = {one.claim: one.cost_us for one in ordered.claims}
        for one in wanting:
            one.cost_us = known.get(one.claim)
    elif wanting and options.costs and not stop():
        times = remaining(poisoned.case, device, options)
        for one in wanting:
            set_cost(one, times)
