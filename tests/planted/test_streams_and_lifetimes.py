"""Planted: readers on other streams that the fine fence doesn't order, and a tensor that is freed too early."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.lifetimes import StepLifetimes
from sglang_fence.engine.planner import Planner
from sglang_fence.engine.scheduler import Scheduler
from sglang_fence.speculative.block import BlockWorker
from tests.planted.planting import LONG, NEXT, SAME, Found, hazards_of, run

if TYPE_CHECKING:
    from sglang_fence.engine.batch import ScheduledBatch
    from sglang_fence.engine.worker import Worker
    from sglang_fence.speculative.worker import SpeculativeWorker

SCHEDULER = "sglang_fence.engine.engine.Scheduler"


class Offloads(Scheduler):
    """Copies what a prefill computes to the host, on a stream that waits for the schedule stream alone."""

    launched: ScheduledBatch

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - passes them on
        super().__init__(*args, **named)
        self.copies = self._device.Stream("offload")

    def _launch(self, batch: ScheduledBatch) -> None:
        super()._launch(batch)
        self.launched = batch

    def _process(self, batch: ScheduledBatch) -> None:
        """Called right behind the barrier of the step launched last."""
        work, device = self.launched.work, self._device
        if work.mode is ForwardMode.EXTEND:
            kv = self._planner._memory.kv
            self.copies.wait_stream(self._schedule_stream)
            with device.stream(self.copies):
                device.launch("offload", lambda: None, reads=((kv.buffer, work.pages),))
            self._schedule_stream.wait_stream(self.copies)
        super()._process(batch)


class TestOffload:
    """A host cache copies behind the schedule stream."""

    @staticmethod
    def check(seen: set[Found]) -> None:
        assert seen == {Found("RAW", "kv_cache", "extend/extend_layer", "offload", SAME)}

    def test_behind_a_coarse_fence_it_is_ordered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SCHEDULER, Offloads)
        assert hazards_of(run(LONG, attention="trtllm_mha", fence="coarse")) == set()

    def test_the_gate_makes_prefills_coarse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SCHEDULER, Offloads)
        built = Engine._worker

        def with_a_host_cache(self: Engine, runner: Any, order: Any) -> Worker | SpeculativeWorker:  # noqa: ANN401
            runner.fence = replace(runner.fence, host_cache=True)
            return built(self, runner, order)

        monkeypatch.setattr(Engine, "_worker", with_a_host_cache)
        served = run(LONG, attention="trtllm_mha")
        assert {step.reason for step in served.prefills} == {FallbackReason.HOST_CACHE}
        assert {step.fence for step in served.steps} == {FenceKind.FINE, FenceKind.COARSE}
        assert hazards_of(served) == set()

    def test_behind_a_fine_fence_it_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert hazards_of(run(LONG, attention="trtllm_mha")) == set()
        monkeypatch.setattr(SCHEDULER, Offloads)
        self.check(hazards_of(run(LONG, attention="trtllm_mha")))


class TestAcceptedLengths:
    """The schedule stream reads how many drafts were accepted, before the host knows."""

    @pytest.fixture(autouse=True)
    def _reads_lengths(self, monkeypatch: pytest.MonkeyPatch) -> None:
        workers: list[BlockWorker] = []
        built, planned = BlockWorker.__init__, Planner._next_decode

        def build(self: BlockWorker, *args: Any) -> None:  # noqa: ANN401 - passes them on
            built(self, *args)
            workers.append(self)

        def plan(self: Planner, step: int) -> ScheduledBatch | None:
            if step:
                newest = workers[-1].state.newest

                def read() -> None:
                    newest.tensor.sum()

                self._device.launch("read_lengths", read, reads=((newest, range(newest.rows)),))
            return planned(self, step)

        monkeypatch.setattr(BlockWorker, "__init__", build)
        monkeypatch.setattr(Planner, "_next_decode", plan)

    @pytest.mark.parametrize("algorithm", ["dflash", "dspark"])
    def test_behind_a_coarse_fence_they_are_there(self, algorithm: str) -> None:
        assert hazards_of(run(speculative=algorithm, fence="coarse")) == set()

    @pytest.mark.parametrize("graph", ["full", "breakable", "off"])
    def test_behind_a_fine_fence_it_is_caught(self, graph: str) -> None:
        seen = hazards_of(run(speculative="dflash", attention="trtllm_mha", graph=graph))
        assert seen >= {Found("RAW", "relay_positions", "accept", "read_lengths", NEXT)}
        assert {(one.kind, one.buffer, one.second, one.apart) for one in seen} == {
            ("RAW", "relay_positions", "read_lengths", NEXT),
        }
        assert {one.first for one in seen} <= {"accept", "sample"}


def test_without_the_read_nothing_races() -> None:
    assert hazards_of(run(speculative="dflash", attention="trtllm_mha")) == set()


class DropsInputs(Scheduler):
    """Lets go of a step's inputs once its fence is applied, long before its forward ends."""

    launched: ScheduledBatch

    def _launch(self, batch: ScheduledBatch) -> None:
        super()._launch(batch)
        self.launched = batch

    def _process(self, batch: ScheduledBatch) -> None:
        """Called right behind the barrier of the step launched last."""
        self.launched.work.inputs = SharedBuffer(self._device, "nothing", torch.zeros(1))
        super()._process(batch)


class TestFreed:
    """R12: a step's tensor lives as long as its forward."""

    @staticmethod
    def hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
        def hold(_: StepLifetimes, *__: object) -> None:
            """Keep nothing."""

        monkeypatch.setattr(StepLifetimes, "hold", hold)

    def test_while_the_record_holds_it_nothing_is_freed_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SCHEDULER, DropsInputs)
        assert hazards_of(run()) == set()

    def test_a_coarse_fence_gives_it_for_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SCHEDULER, DropsInputs)
        self.hold_nothing(monkeypatch)
        assert hazards_of(run(fence="coarse")) == set()

    @pytest.mark.parametrize("algorithm", ["none", "dflash"])
    def test_behind_a_fine_fence_it_is_caught(self, algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SCHEDULER, DropsInputs)
        self.hold_nothing(monkeypatch)
        seen = hazards_of(run(speculative=algorithm))
        name, last = ("inputs_decode", "sample") if algorithm == "none" else ("inputs_target_verify", "accept")
        assert seen == {Found("WAR", name, last, f"free({name})", SAME)}
