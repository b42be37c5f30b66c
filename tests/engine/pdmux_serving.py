"""Serves prompts under PD multiplexing on the simulated device, and keeps all there is to see."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.pdmux import PDMuxScheduler
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions
from sglang_fence.models.tokenizer import ByteTokenizer
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.protocol import Stream
    from sglang_fence.device.simulated.accesses import Hazard
    from sglang_fence.device.simulated.costs import CostTable
    from sglang_fence.engine.batch import ScheduledBatch
    from sglang_fence.engine.scheduler import Scheduler

NEW_TOKENS = 24


class Prompt(NamedTuple):
    """What is asked for."""

    ids: list[int]
    new: int = NEW_TOKENS
    stop: tuple[str, ...] = ()


def varied(seed: int = 5, count: int = 16) -> list[Prompt]:
    """1 to 200 tokens; both occur. Half share an opening, and every fourth is its predecessor once more."""
    rng = random.Random(seed)  # noqa: S311 - the same each time
    opening = [rng.randrange(256) for _ in range(90)]
    prompts: list[Prompt] = []
    for index in range(count):
        length = {0: 1, 1: 200}.get(index, rng.randint(1, 200))
        ids = [rng.randrange(256) for _ in range(length)]
        if index % 2:
            ids = (opening + ids)[:200]
        if index % 4 == 3:
            ids = list(prompts[-1].ids)
        prompts.append(Prompt(ids))
    return prompts


def handing_over(greedy: Callable[[Sequence[int], int], list[int]], pairs: int = 8) -> list[Prompt]:
    """Short prompts that a stop text ends at once, each followed by a long one that gets their row and pages.

    The stop is seen when the next decode is in flight already, with a line for the dead request.
    """
    rng = random.Random(5)  # noqa: S311 - the same each time
    prompts: list[Prompt] = []
    for _ in range(pairs):
        short = [rng.randrange(256) for _ in range(rng.randint(1, 20))]
        text = ByteTokenizer().decode(greedy(short, NEW_TOKENS))
        prompts.append(Prompt(short, stop=(text[rng.randint(2, 8)],)))
        prompts.append(Prompt([rng.randrange(256) for _ in range(rng.randint(100, 200))], new=16))
    return prompts


class Launch(NamedTuple):
    """A step, as it was launched."""

    step: int
    mode: str
    stream: str


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    device: SimulatedDevice
    engine: Engine
    scheduler: Scheduler
    summary: Summary
    requests: list[Request]
    launches: list[Launch]

    @property
    def outputs(self) -> list[list[int]]:
        return [request.output for request in self.requests]

    @property
    def hazards(self) -> list[Hazard]:
        return self.device.hazards

    def steps_on(self, stream: str) -> set[int]:
        return {launch.step for launch in self.launches if launch.stream == stream}


def serve(
    prompts: Sequence[Prompt],
    *,
    costs: CostTable | None = None,
    window: int | None = None,
    device: SimulatedDevice | None = None,
    **options: Any,  # noqa: ANN401 - whatever EngineOptions takes
) -> Run:
    """Serve all of ``prompts``, multiplexed unless ``options`` say otherwise; none may fail."""
    device = SimulatedDevice(costs) if device is None else device
    summary = Summary()
    chosen: dict[str, Any] = {"pdmux": True, "max_running": 6, **options}
    engine = Engine(device, EngineOptions(model=ModelOptions(sliding_window=window), **chosen), [summary])
    requests = [
        Request(index, list(prompt.ids), SamplingParams(max_new_tokens=prompt.new, stop=prompt.stop))
        for index, prompt in enumerate(prompts)
    ]
    for request in requests:
        engine.check(request)
        assert request.error is None
    launches: list[Launch] = []
    with pytest.MonkeyPatch.context() as patch:
        original = PDMuxScheduler._launch_on

        def launch_on(self: PDMuxScheduler, batch: ScheduledBatch, stream: Stream, backend: str) -> None:
            launches.append(Launch(batch.work.step, str(batch.work.mode), stream.name))
            original(self, batch, stream, backend)

        patch.setattr(PDMuxScheduler, "_launch_on", launch_on)
        scheduler = engine.serve(requests)
    assert all(request.finished for request in requests)
    return Run(device, engine, scheduler, summary, requests, launches)
