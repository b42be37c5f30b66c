"""The probe behind the hooks, and what stands in for it while no loop runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from sglang_fence.contract import ForwardMode
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import Phase
    from sglang_fence.sglang_plugin.session import Session
    from sglang_fence.sglang_plugin.shapes import SchedulerLike
    from sglang_fence.sglang_plugin.steps import Probe, Verdict


class NoProbe:
    """Hears of nothing."""

    def step_started(self, step: int, mode: ForwardMode, backend: str, batch_size: int, tokens: int) -> None: ...
    def forward_started(self, stream: object) -> None: ...
    def resolved(self, phase: Phase) -> None: ...
    def launched(self) -> None: ...
    def reads_end(self, event: object | None, forward: object) -> None: ...
    def before_wait(self) -> None: ...
    def after_wait(self, verdict: Verdict) -> None: ...
    def no_barrier(self) -> None: ...
    def drain(self) -> None: ...
    def idle(self) -> None: ...
    def close(self) -> None: ...


class OldProbe:
    """The core's probe, by the calls that the hooks make."""

    def __init__(self, probe: StepProbe) -> None:
        self._probe = probe
        self.step_started = probe.step_started
        self.resolved = probe.resolved
        self.launched = probe.launched
        self.reads_end = probe.reads_end
        self.no_barrier = probe.no_barrier
        self.close = probe.close
        self._event: object | None = None

    def forward_started(self, stream: object) -> None: ...
    def before_wait(self) -> None:
        self._probe.before_wait(None)

    def after_wait(self, verdict: Verdict) -> None:
        self._probe.after_wait(verdict)

    def drain(self) -> None:
        self._probe.drain()

    def idle(self) -> None:
        self._probe.drain()


def make_probe(session: Session, scheduler: SchedulerLike, observers: Observers) -> Probe:
    facts = session.ledger.facts
    cuda = session.border.is_cuda()
    facts.timing_why = "timing_events" if cuda else "no_timing_events"
    facts.timing_enabled = cuda
    if not cuda:
        return OldProbe(StepProbe(observers))
    device: Any = torch.cuda
    streams = (scheduler.forward_stream, scheduler.schedule_stream, torch.cuda.Stream(priority=-1))
    return OldProbe(StepProbe(observers, device, streams))
