"""The fine fence lets the schedule stream go before the forward ends, and not before its reads have ended."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.contract import FenceKind, ForwardMode
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.memory.request_pool import RowUpdates
from sglang_fence.models.loading import ModelOptions
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.sampling import Sampling
from sglang_fence.runners.work import ForwardWork, pack_decode, upload_inputs

if TYPE_CHECKING:
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.observe.record import StepRecord
    from tests.gpu.conftest import Opened

SMALL = ModelOptions(dtype="float32", context_len=64)


class Releases(Observer):
    """Of each decode: its slack, and how long before the forward's end the schedule stream was let go, in µs."""

    def __init__(self) -> None:
        self.slack: list[float] = []
        self.early: list[float] = []

    def step_finished(self, record: StepRecord) -> None:
        if record.mode is ForwardMode.DECODE and record.slack_us is not None and record.timers is not None:
            self.slack.append(record.slack_us)
            timers = record.timers
            end, wait, released = timers.end_us, timers.wait_us, timers.released_us
            assert end is not None
            assert wait is not None
            let_go = end if released is None or record.fence is FenceKind.COARSE else released
            self.early.append(end - max(wait, let_go))


def length_of_a_delay(opened: Opened) -> float:
    """Measure a delay on the device, in µs."""
    start, end = (opened.device.Event(enable_timing=True) for _ in range(2))
    with opened.device.stream(opened.device.Stream("clock")):
        start.record()
        opened.delay()
        end.record()
    opened.device.synchronize()
    return 1e3 * start.elapsed_time(end)


@pytest.mark.parametrize("graph", ["full", "breakable"])
def test_most_of_a_slow_end_is_slack_behind_the_fine_fence_and_none_behind_the_coarse(
    opened: Opened,
    graph: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened.slow_head(monkeypatch)
    delay = length_of_a_delay(opened)
    seen: dict[str, Releases] = {}
    for fence in ("fine", "coarse"):
        seen[fence] = Releases()
        engine = Engine(
            opened.device,
            EngineOptions(model=SMALL, max_running=2, graph=graph, fence=fence),
            [seen[fence]],
            sampling=Sampling(timing_every=1),
        )
        requests = [Request(index, [5, 6, index], SamplingParams(max_new_tokens=16)) for index in range(2)]
        for request in requests:
            engine.check(request)
        engine.serve(requests)
    fine, coarse = seen["fine"], seen["coarse"]
    assert len(fine.slack) > 5
    assert median(fine.slack) > 0.8 * delay
    assert median(fine.early) > 0.8 * delay
    assert max(coarse.slack) == 0.0
    assert median(coarse.early) < 0.1 * delay


class Table:
    """A decode whose gather comes late and whose end comes later, and a schedule stream that rewrites its table."""

    def __init__(self, opened: Opened, patch: pytest.MonkeyPatch) -> None:
        opened.slow_head(patch)
        self.opened, self.device = opened, opened.device
        self.engine = Engine(self.device, EngineOptions(model=SMALL, max_running=2, prefix_cache=False))
        self.schedule, self.forward = self.engine._schedule_stream, self.engine.runner.forward_stream
        kv = self.engine.memory.kv
        pages = kv.allocate(4)
        assert pages is not None
        self.pages = tuple(pages)
        self.length = len(pages) * kv.page_size
        self.slots = kv.slots(pages, 0, self.length)
        generator = torch.Generator().manual_seed(0)
        for layer in range(self.engine.model.num_layers):
            for part in kv.layer(layer):
                part.copy_(torch.randn(part.shape, generator=generator))
        self._delay_the_gather(patch)

    def _delay_the_gather(self, patch: pytest.MonkeyPatch) -> None:
        backend = self.engine.runner.attn_backend
        prepare = backend.init_forward_metadata_out_graph

        def late(batch: ForwardBatch) -> None:
            prepare(batch)
            self.opened.delay()

        patch.setattr(backend, "init_forward_metadata_out_graph", late)

    def write(self, slots: list[int]) -> None:
        updates = RowUpdates()
        updates.add(1, 0, slots)
        with self.device.stream(self.schedule):
            self.engine.memory.requests.write("assign_req_to_token", updates)

    def decode(self, *, overwrite: bool, wait: bool) -> torch.Tensor:
        """Run one decode and return its logits; the table may be overwritten at, or before, the read-done event."""
        self.write(self.slots)
        with self.device.stream(self.schedule):
            inputs = upload_inputs(self.device, "inputs", pack_decode((1,), (self.length,)), self.schedule)
        self.device.synchronize()
        work = ForwardWork(0, ForwardMode.DECODE, (1,), (self.length,), (1,), self.pages, inputs)
        end = self.device.Event()
        with self.device.stream(self.forward):
            acts = self.engine.decode.execute(work)
            end.record()
        done = self.engine.runner.shared_read_done.take()
        assert done is not None
        assert done.event is not None
        if overwrite:
            if wait:
                self.schedule.wait_event(done.event)
            self.write([self.slots[0]] * self.length)
            self.schedule.synchronize()
            assert not end.query(), "the overwrite came after the forward, and shows nothing"
        self.device.synchronize()
        assert acts.logits is not None
        return acts.logits[0].clone()


@torch.inference_mode()
def test_a_table_overwritten_at_the_event_changes_nothing_and_before_it_everything(
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(opened, monkeypatch)
    expected = table.decode(overwrite=False, wait=False)
    assert torch.equal(table.decode(overwrite=False, wait=False), expected)
    for _ in range(3):
        assert torch.equal(table.decode(overwrite=True, wait=True), expected)
    assert not torch.equal(table.decode(overwrite=True, wait=False), expected)
