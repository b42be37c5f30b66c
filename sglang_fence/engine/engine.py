"""``Engine``: builds the runtime from its options, and serves requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.attention.registry import make_backend
from sglang_fence.engine.memory import RequestMemory
from sglang_fence.engine.pdmux import PDMuxScheduler
from sglang_fence.engine.pdmux_planner import PDMuxPlanner
from sglang_fence.engine.planner import Planner
from sglang_fence.engine.results import ResultProcessor
from sglang_fence.engine.scheduler import Scheduler
from sglang_fence.engine.worker import Worker
from sglang_fence.errors import CapacityError
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool
from sglang_fence.memory.kv_pool import PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool
from sglang_fence.models.loading import load_model
from sglang_fence.observe.observer import Observer, Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.runners.decode import DecodeRunner
from sglang_fence.runners.forward import capture_sizes
from sglang_fence.runners.model_runner import FenceSettings, ModelRunner
from sglang_fence.runners.multiplexed_decode import MultiplexedDecodeRunner
from sglang_fence.runners.prefill import PrefillRunner
from sglang_fence.runners.stream_groups import StreamGroups, make_stream_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.engine.options import EngineOptions
    from sglang_fence.engine.requests import Request

_PREFILL_GRAPH_TOKENS = (32, 128, 512)


class Engine:
    """One model on one device.

    Args:
        device: where it runs.
        options: how.
        observers: who hears of each step.

    Raises:
        UserError: options that can't be served.
    """

    def __init__(self, device: DeviceModule, options: EngineOptions, observers: Sequence[Observer] = ()) -> None:
        self.device = device
        self.options = options
        self.policy = FencePolicy.decide(device, options.switches, options.fence)
        self.model = load_model(options.model, device.torch_device)
        self.observers = Observers(observers)
        self._schedule_stream = device.Stream("schedule")
        forward_stream = device.Stream("prefill" if options.pdmux else "forward")
        # A priority of its own keeps the observer's stream from being one of the others in disguise.
        observer_stream = device.Stream("observer", priority=-1)
        self.probe = StepProbe(self.observers, device, (forward_stream, self._schedule_stream, observer_stream))
        requests, kv = self._pools()
        self.memory = RequestMemory(requests, kv)
        pool = EventPool(device)
        runner = ModelRunner(
            device,
            self.model,
            make_backend(options.attention, device, requests, kv),
            requests=requests,
            kv=kv,
            forward_stream=forward_stream,
            pool=pool,
            probe=self.probe,
            fence=FenceSettings(options.switches, self.policy),
        )
        self.runner = runner
        sizes = capture_sizes(options.max_running)
        self.groups: StreamGroups | None = None
        """The decode streams of PD multiplexing; None without."""
        if options.pdmux:
            self.groups = make_stream_groups(device, lambda: make_backend(options.attention, device, requests, kv))
            for stream in self.groups.streams:
                self.probe.add_forward_stream(stream, device.Stream(f"observer_{stream.name}", priority=-1))
            self.decode: DecodeRunner = MultiplexedDecodeRunner(runner, options.graph, sizes, self.groups)
        else:
            self.decode = DecodeRunner(runner, options.graph, sizes)
        self.prefill = PrefillRunner(runner, options.graph, _prefill_sizes(options.chunk))
        self.worker = Worker(runner, self.decode, self.prefill)
        self.barrier = WarBarrier(device, self._schedule_stream, self.policy, pool, self.probe)
        with torch.inference_mode():
            self.decode.capture()
            self.prefill.capture()

    def check(self, request: Request) -> None:
        """Cut a request to the context; one that can't be served fails alone, with a message of its own."""
        context, prompt = self.model.context_len, len(request.prompt)
        if prompt == 0:
            request.fail("the prompt has no tokens")
            return
        bad = next((token for token in request.prompt if not 0 <= token < self.model.vocab_size), None)
        if bad is not None:
            request.fail(f"token {bad} of the prompt is outside the vocabulary, 0 to {self.model.vocab_size - 1}")
            return
        if prompt >= context:
            request.fail(
                f"the prompt has {prompt} tokens; the context takes {context}, and one must be left to generate"
            )
            return
        request.max_new_tokens = min(request.params.max_new_tokens, context - prompt)
        longest = prompt + request.max_new_tokens - 1
        if longest > self.memory.most_tokens():
            request.fail(
                f"the request may take {longest} tokens of KV; the pool holds {self.memory.most_tokens()}"
                " (raise --kv-tokens, or ask for fewer new tokens)",
            )

    def serve(self, requests: Iterable[Request], on_finish: Callable[[Request], None] = lambda _: None) -> Scheduler:
        """Serve requests until all are finished; failed ones are passed over. Returns the scheduler, for its counts."""
        scheduler, planner = self._scheduler(on_finish)
        planner.waiting.extend(request for request in requests if not request.finished)
        with torch.inference_mode():
            scheduler.run(overlap=self.options.overlap)
        self.probe.flush()
        return scheduler

    def close(self) -> None:
        """End the run for the observers."""
        self.probe.close()

    def _scheduler(self, on_finish: Callable[[Request], None]) -> tuple[Scheduler, Planner]:
        kind = Planner if self.groups is None else PDMuxPlanner
        planner = kind(self.device, self._schedule_stream, self.memory, chunk=self.options.chunk)
        results = ResultProcessor(self.device, self.model, self.memory, planner, on_finish)
        parts: dict[str, Any] = {
            "worker": self.worker,
            "results": results,
            "barrier": self.barrier,
            "probe": self.probe,
        }
        if self.groups is None or not isinstance(planner, PDMuxPlanner):
            return Scheduler(self.device, self._schedule_stream, planner=planner, **parts), planner
        mux = PDMuxScheduler(
            self.device,
            self._schedule_stream,
            planner=planner,
            groups=self.groups,
            kv=self.memory.kv,
            **parts,
        )
        return mux, planner

    def _pools(self) -> tuple[ReqToTokenPool, PagedKV]:
        options, context = self.options, self.model.context_len
        requests = ReqToTokenPool(self.device, max_running=options.max_running, context_len=context)
        wanted = options.kv_tokens if options.kv_tokens is not None else options.max_running * context
        pages = wanted // options.page_size
        if pages < 1:
            msg = f"--kv-tokens {wanted}: not even one page of {options.page_size} tokens"
            raise CapacityError(msg)
        kv = PagedKV(
            self.device,
            self.model.kv_layout(),
            pages=pages,
            page_size=options.page_size,
            context_len=context,
            prefix_cache=options.prefix_cache,
        )
        return requests, kv


def _prefill_sizes(chunk: int) -> list[int]:
    return sorted({min(size, chunk) for size in _PREFILL_GRAPH_TOKENS})
