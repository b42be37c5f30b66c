"""R12: what a forward uses stays referenced until that forward has ended."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import pytest

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.lifetimes import StepLifetimes
from sglang_fence.engine.scheduler import Scheduler

if TYPE_CHECKING:
    from sglang_fence.engine.batch import ScheduledBatch
    from tests.fence.conftest import Serve


class Thing:
    """Something that a step uses."""


def test_things_are_held_until_the_forwards_end_is_done_and_no_longer() -> None:
    device = SimulatedDevice(CostTable(default_us=10))
    lifetimes = StepLifetimes()
    alive: list[weakref.ref[Thing]] = []
    for _ in range(2):
        thing, done = Thing(), device.Event()
        alive.append(weakref.ref(thing))
        device.launch("layer", lambda: None)
        done.record()
        lifetimes.hold(done, thing, None)
        del thing
    lifetimes.reap()
    assert len(lifetimes) == 2
    device.host("work")
    lifetimes.reap()
    assert [ref() is None for ref in alive] == [True, False]
    device.host("work")
    lifetimes.reap()
    assert [ref() is None for ref in alive] == [True, True]
    assert len(lifetimes) == 0


def test_a_younger_step_waits_for_an_older_one() -> None:
    device = SimulatedDevice(CostTable(default_us=10))
    lifetimes = StepLifetimes()
    older, younger = device.Event(), device.Event()
    device.launch("layer", lambda: None)
    older.record()
    younger.record(device.Stream("idle"))
    lifetimes.hold(older, Thing())
    lifetimes.hold(younger, Thing())
    lifetimes.reap()
    assert len(lifetimes) == 2


class ForgetfulScheduler(Scheduler):
    """Its batches drop their step tensors once launched, so that the lifetimes alone keep them."""

    def _launch(self, batch: ScheduledBatch) -> None:
        super()._launch(batch)
        del batch.work.inputs
        batch.params = None


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines use the forgetful scheduler."""
    monkeypatch.setattr("sglang_fence.engine.engine.Scheduler", ForgetfulScheduler)


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_the_lifetimes_alone_keep_a_steps_tensors_from_being_freed_early(
    graph: str,
    attention: str,
    serve: Serve,
) -> None:
    run = serve(graph=graph, attention=attention)
    assert run.hazards == []


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_without_them_the_checker_names_the_buffers_that_were_freed_under_the_forward(
    graph: str,
    attention: str,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StepLifetimes, "hold", lambda *_: None)
    hazards = serve(graph=graph, attention=attention).hazards
    assert {hazard.kind for hazard in hazards} == {"WAR"}
    freed = {hazard.second.split("#")[0] for hazard in hazards}
    assert freed >= {"free(inputs_decode)", "free(sampling)"}
    readers = {hazard.first.split("#")[0] for hazard in hazards if "inputs_decode" in hazard.second}
    assert readers == ({"load_batch", "sample"} | ({"embed", "layer", "lm_head"} if graph == "off" else set()))


def test_a_run_leaves_nothing_held(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Scheduler] = []

    class Kept(Scheduler):
        def run(self, *, overlap: bool) -> None:
            made.append(self)
            super().run(overlap=overlap)

    monkeypatch.setattr("sglang_fence.engine.engine.Scheduler", Kept)
    serve()
    assert [len(scheduler.lifetimes) for scheduler in made] == [0]
