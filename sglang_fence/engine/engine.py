"""``Engine``: builds the runtime from its options, and serves requests."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.attention.registry import make_backend, parse_spec
from sglang_fence.engine.memory import RequestMemory
from sglang_fence.engine.observation import announce, make_probe
from sglang_fence.engine.pdmux import PDMuxScheduler
from sglang_fence.engine.pdmux_planner import PDMuxPlanner
from sglang_fence.engine.planner import Planner
from sglang_fence.engine.results import ResultProcessor
from sglang_fence.engine.scheduler import Scheduler
from sglang_fence.engine.worker import Worker
from sglang_fence.errors import CapacityError, ConfigError, ContractError
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool
from sglang_fence.memory.budget import check_fits
from sglang_fence.memory.kv_pool import PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool
from sglang_fence.models.loading import load_model
from sglang_fence.runners.decode import DecodeRunner
from sglang_fence.runners.forward import capture_sizes
from sglang_fence.runners.model_runner import FenceSettings, ModelRunner
from sglang_fence.runners.multiplexed_decode import MultiplexedDecodeRunner
from sglang_fence.runners.prefill import PrefillRunner
from sglang_fence.runners.stream_groups import StreamGroups, make_stream_groups
from sglang_fence.speculative.algorithm import SpecContext, built_in_algorithms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.registry import BackendSpec
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.engine.options import EngineOptions
    from sglang_fence.engine.requests import Request
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.observe.flight.ring import FlightRing
    from sglang_fence.observe.observer import Observer
    from sglang_fence.observe.sampling import Sampling
    from sglang_fence.speculative.algorithm import AlgorithmRegistry
    from sglang_fence.speculative.worker import SpeculativeWorker

_PREFILL_GRAPH_TOKENS = (32, 128, 512)


class Engine:
    """One model on one device.

    Args:
        device: where it runs.
        options: how.
        observers: who hears of each step.
        algorithms: speculative algorithms by name; None: the built-in ones.
        sampling: which steps are timed and traced; None: the default.
        ring: the flight recorder's; None: there is none.

    Raises:
        UserError: options that can't be served.
    """

    def __init__(
        self,
        device: DeviceModule,
        options: EngineOptions,
        observers: Sequence[Observer] = (),
        algorithms: AlgorithmRegistry | None = None,
        sampling: Sampling | None = None,
        ring: FlightRing | None = None,
    ) -> None:
        self.device = device
        self.options = options
        self._algorithm = algorithm = (algorithms or built_in_algorithms()).get(options.speculative)
        self._round = 1 if algorithm is None else options.draft_tokens + 1
        spec = _check_attention(options)
        order = count()
        self.policy = FencePolicy.decide(device, options.switches, options.fence)
        self.model = load_model(options.model, device.torch_device)
        self._schedule_stream = device.Stream("schedule")
        forward_stream = device.Stream("prefill" if options.pdmux else "forward")
        self.probe = make_probe(device, observers, sampling, forward_stream, self._schedule_stream, ring)
        self.probe.progress.in_order = not options.pdmux
        requests, kv = self._pools(prefix_cache=options.prefix_cache and not spec.keeps_state)
        self.memory = RequestMemory(requests, kv)
        pool = EventPool(device)
        runner = ModelRunner(
            device,
            self.model,
            self._make_backend(kv),
            requests=requests,
            kv=kv,
            forward_stream=forward_stream,
            pool=pool,
            probe=self.probe,
            fence=FenceSettings(
                options.switches,
                self.policy,
                spec_reader_follows_prefill=not (algorithm is None or algorithm.supports_prefill_shared_read_done()),
            ),
            order=order,
        )
        self.runner = runner
        self.groups: StreamGroups | None = None
        """The decode streams of PD multiplexing; None without."""
        self.worker = self._worker(runner, order)
        self.barrier = WarBarrier(device, self._schedule_stream, self.policy, pool, self.probe)
        with torch.inference_mode():
            self.worker.capture()
        announce(self.probe, device, options, self.policy, self._backends())

    @property
    def decode(self) -> DecodeRunner:
        """The decode runner of an engine without speculation, for those who look at its graphs.

        Raises:
            ContractError: with speculation there is none; the worker has its phases.
        """
        if not isinstance(self.worker, Worker):
            msg = f"{self.options.speculative} has no decode runner: look at the worker's phases"
            raise ContractError(msg)
        return self.worker.decode

    def check(self, request: Request) -> None:
        """Cut a request to the context; one that can't be served fails alone, with a message of its own."""
        context, prompt = self.model.context_len, len(request.prompt)
        if self._algorithm is not None and not request.params.greedy:
            request.fail(
                f"speculative decoding accepts greedily; temperature {request.params.temperature} can't be had"
            )
            return
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
        longest = prompt + request.max_new_tokens - 1 + self._reserved
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

    def _backends(self) -> list[AttentionBackend]:
        """Every attention backend that serves a phase."""
        runners = [self.runner] if isinstance(self.worker, Worker) else list(self.worker.runners)
        return [*(runner.attn_backend for runner in runners), *(() if self.groups is None else self.groups.members)]

    @property
    def _reserved(self) -> int:
        """Positions beyond a request's own that two rounds in flight may write, if every draft were right."""
        return 0 if self._algorithm is None else 2 * self._round

    def _worker(self, runner: ModelRunner, order: Iterator[int]) -> Worker | SpeculativeWorker:
        if self._algorithm is not None:
            return self._algorithm.make_worker(self._spec_context(runner, order))
        options, sizes = self.options, capture_sizes(self.options.max_running)
        prefill = PrefillRunner(runner, options.graph, _prefill_sizes(options.chunk))
        if not options.pdmux:
            return Worker(runner, DecodeRunner(runner, options.graph, sizes), prefill)
        kept = [buffer.name for buffer in runner.attn_backend.side_buffers]
        if kept:
            msg = (
                f"--pdmux --attention {options.attention}: it keeps {', '.join(kept)} beside the KV pool, unseen by "
                "the other streams' members; use a backend that keeps nothing, such as native"
            )
            raise ConfigError(msg)
        self.groups = make_stream_groups(self.device, lambda: self._make_backend(self.memory.kv))
        for stream in self.groups.streams:
            self.probe.add_forward_stream(stream, self.device.observer_stream(f"observer_{stream.name}"))
        return Worker(runner, MultiplexedDecodeRunner(runner, options.graph, sizes, self.groups), prefill)

    def _spec_context(self, runner: ModelRunner, order: Iterator[int]) -> SpecContext:
        options, draft_model = self.options, self.model
        if options.draft_model is not None:
            draft_model = load_model(replace(options.model, model=options.draft_model), self.device.torch_device)
            if draft_model.vocab_size != self.model.vocab_size:
                msg = (
                    f"--draft-model {options.draft_model}: its vocabulary has {draft_model.vocab_size} tokens, the "
                    f"target's {self.model.vocab_size}; a draft must speak the target's"
                )
                raise ConfigError(msg)
        return SpecContext(
            target=runner,
            target_kv=self.memory.kv,
            draft_tokens=options.draft_tokens,
            draft_model=draft_model,
            graph=options.graph,
            capture_bs=capture_sizes(options.max_running),
            prefill_tokens=_prefill_sizes(options.chunk),
            make_backend=self._make_backend,
            order=order,
        )

    def _make_backend(self, kv: KVStore) -> AttentionBackend:
        dspark = self._algorithm is not None and self._algorithm.verifies_in_one_graph
        return make_backend(self.options.attention, self.device, self.memory.requests, kv, dspark=dspark)

    def _scheduler(self, on_finish: Callable[[Request], None]) -> tuple[Scheduler, Planner]:
        kind = Planner if self.groups is None else PDMuxPlanner
        planner = kind(
            self.device,
            self._schedule_stream,
            self.memory,
            chunk=self.options.chunk,
            round_tokens=self._round,
        )
        results = ResultProcessor(self.device, self.model, self.memory, planner, on_finish, self.probe.progress)
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

    def _pools(self, *, prefix_cache: bool) -> tuple[ReqToTokenPool, PagedKV]:
        options, context = self.options, self.model.context_len + self._reserved
        # By default each request may have pages of its own for all of its context.
        each = -(-context // options.page_size) * options.page_size
        wanted = options.kv_tokens if options.kv_tokens is not None else options.max_running * each
        pages = wanted // options.page_size
        if pages < 1:
            msg = f"--kv-tokens {wanted}: not even one page of {options.page_size} tokens"
            raise CapacityError(msg)
        layout = self.model.kv_layout()
        table = (options.max_running + 1) * context * torch.int64.itemsize
        asked = f"--kv-tokens {wanted}, --max-running {options.max_running}"
        check_fits(self.device, asked, wanted * layout.token_bytes + table)
        requests = ReqToTokenPool(self.device, max_running=options.max_running, context_len=context)
        kv = PagedKV(
            self.device,
            layout,
            pages=pages,
            page_size=options.page_size,
            context_len=context,
            prefix_cache=prefix_cache,
        )
        return requests, kv


def _check_attention(options: EngineOptions) -> BackendSpec:
    """Refuse what the attention backend can't serve, before a model is loaded.

    A backend with a recurrent state a request can't take tokens back (speculation), nor start from a cached prefix;
    the engine then goes without a prefix cache.
    """
    spec = parse_spec(options.attention)
    if spec.keeps_state and options.speculative != "none":
        msg = (
            f"--attention {options.attention} --speculative {options.speculative}: its linear layers keep a state that "
            "rejected drafts can't be taken out of; use --speculative none"
        )
        raise ConfigError(msg)
    if spec.splits_batches and options.max_running < 2:  # noqa: PLR2004 - two halves
        msg = f"--attention {options.attention} --max-running 1: one request has no halves; give 2 or more"
        raise ConfigError(msg)
    return spec


def _prefill_sizes(chunk: int) -> list[int]:
    return sorted({min(size, chunk) for size in _PREFILL_GRAPH_TOKENS})
