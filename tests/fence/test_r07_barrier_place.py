"""R7: the barrier stands right behind each launch, before the results of the step before are processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.engine.planner import Planner
from sglang_fence.engine.results import ResultProcessor
from sglang_fence.engine.scheduler import Scheduler
from sglang_fence.engine.worker import Worker
from sglang_fence.fence.barrier import WarBarrier

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.engine.batch import ScheduledBatch
    from tests.fence.conftest import Serve

Call = tuple[str, int]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Write down what the loop calls, and for which step."""
    noted: list[Call] = []

    def note(cls: type, name: str, step_of: Callable[[Any], int]) -> None:
        original = getattr(cls, name)

        def noting(self: object, first: object, *others: object) -> object:
            noted.append((name, step_of(first)))
            return original(self, first, *others)

        monkeypatch.setattr(cls, name, noting)

    note(Planner, "next_batch", int)
    note(Worker, "run", lambda work: int(work.step))
    note(WarBarrier, "apply", int)
    note(ResultProcessor, "process", lambda batch: int(batch.work.step))
    return noted


def test_every_barrier_comes_right_after_its_launch_and_before_older_results(serve: Serve, calls: list[Call]) -> None:
    run = serve()
    launched = [(index, step) for index, (name, step) in enumerate(calls) if name == "run"]
    assert [step for _, step in launched] == list(range(run.steps))
    for index, step in launched:
        assert calls[index + 1] == ("apply", step)
        if step:
            assert calls[index + 2] == ("process", step - 1)
    assert [step for name, step in calls if name == "apply"] == list(range(run.steps))


def test_the_next_step_is_prepared_only_behind_the_barrier(serve: Serve, calls: list[Call]) -> None:
    serve()
    asked = [index for index, (name, _) in enumerate(calls) if name == "next_batch"]
    before = [calls[: index + 1] for index in asked]
    for past in before:
        names = [name for name, _ in past]
        assert names.count("apply") == names.count("run")


class LateBarrier(Scheduler):
    """Processes results first: the barrier comes too late for what that writes."""

    def _event_loop_overlap(self) -> None:
        last: ScheduledBatch | None = None
        while True:
            batch = self._next_batch()
            if batch is not None:
                self._launch(batch)
            if last is not None:
                self._process(last)
            elif batch is None:
                break
            if batch is not None:
                self._barrier.apply(batch.work.step, self._worker, self._worker.forward_stream)
            self._probe.drain()
            self.lifetimes.reap()
            last = batch


class TopOfLoopBarrier(Scheduler):
    """Applies the barrier of a step at the top of the next iteration."""

    def _event_loop_overlap(self) -> None:
        last: ScheduledBatch | None = None
        while True:
            if last is not None:
                self._barrier.apply(last.work.step, self._worker, self._worker.forward_stream)
            batch = self._next_batch()
            if batch is not None:
                self._launch(batch)
            if last is not None:
                self._process(last)
            elif batch is None:
                break
            self._probe.drain()
            self.lifetimes.reap()
            last = batch


RESULT_WRITES = {"evict_swa", "rewrite_req_to_token", "map_full_to_swa"}


@pytest.mark.parametrize("scheduler", [LateBarrier, TopOfLoopBarrier])
@pytest.mark.parametrize("graph", ["full", "off"])
def test_a_barrier_anywhere_else_is_caught_by_the_checker(
    scheduler: type[Scheduler],
    graph: str,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sglang_fence.engine.engine.Scheduler", scheduler)
    hazards = serve(graph=graph).hazards
    assert {hazard.kind for hazard in hazards} == {"WAR"}
    assert {hazard.second.split("#")[0] for hazard in hazards} & RESULT_WRITES
    assert all(hazard.first_step == hazard.second_step + 1 for hazard in hazards)


@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_where_it_stands_nothing_races(graph: str, attention: str, serve: Serve) -> None:
    run = serve(graph=graph, attention=attention)
    assert run.hazards == []
    assert run.total.fence["fine"] > run.steps // 2


def test_results_do_write_while_the_next_forward_runs(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without such writes the tests above would show nothing."""
    writes: list[str] = []
    original = ResultProcessor.process

    def process(self: ResultProcessor, batch: ScheduledBatch) -> None:
        before = dict(run_names)
        original(self, batch)
        after = self._device._core._appearances  # type: ignore[attr-defined]
        writes.extend(name for name in RESULT_WRITES if after.get(name, 0) > before.get(name, 0))
        run_names.update(after)

    run_names: dict[str, int] = {}
    monkeypatch.setattr(ResultProcessor, "process", process)
    serve()
    assert {"evict_swa", "rewrite_req_to_token"} <= set(writes)
