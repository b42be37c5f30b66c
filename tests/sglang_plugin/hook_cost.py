"""What the plugin's hooks cost a decode step on the host, in ns: SGLang's own classes, its own hook registry, no model.

    python -m tests.sglang_plugin.hook_cost [ROUNDS]        in an environment with SGLang, in the repository's root

A scheduler, a model runner and a decode graph's runner of SGLang's own are made without their constructors, with what
a step touches and no more. What a launch computes is left out; the functions that are hooked are SGLang's own, but for
the launch around them. Blocks of steps with the hooks and without are run in turn, and the difference is what the hooks
cost, SGLang's wrappers included. "By hook" is the plugin's own account, which leaves out its guards.

"Cold": between two steps the core's own caches are filled with something else, as by a server's own work; then the
plugin's own account is the only figure.

``timed``: device times on every step, taken with events of the host: what CUDA's own calls cost comes on top.
"""

# ruff: noqa: T201, ANN401 - it prints; what it takes apart is SGLang's

from __future__ import annotations

import logging
import os
import statistics
import sys
from importlib import import_module
from time import thread_time_ns
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.device_times import DeviceTimes
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe
from sglang_fence.observe.sampling import Sampling
from sglang_fence.sglang_plugin.host_traces import Host

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 5_000
COLD_STEPS, COLD_ROUNDS = 61, 60
EVICTING = 1 << 23
"""Bytes that are read between two cold steps: more than a core's own caches hold."""
WIDTH = 32
"""Requests of the batch."""


class Bare:
    """The functions of SGLang that one step calls, as they are before any plugin."""

    def __init__(self) -> None:
        scheduling: Any = import_module("sglang.srt.managers.scheduler")
        inputs: Any = import_module("sglang.srt.managers.overlap_utils")
        graphs: Any = import_module("sglang.srt.model_executor.runner.decode_cuda_graph_runner")
        self.modes: Any = import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode
        self.scheduler_class: Any = scheduling.Scheduler
        self.graph_class: Any = graphs.DecodeCudaGraphRunner
        self.inputs = inputs

        def run_batch(self: Any, batch: Any, pp_proxy_tensors: Any = None) -> None:
            del pp_proxy_tensors
            inputs.resolve_forward_inputs(batch, self.future_map)
            runner = self.graph_runner
            if runner._resolve_shared_read_ends(runner.attn_backend, batch.forward_mode).value:
                runner._publish_read_done(in_graph=True)

        self.scheduler_class.run_batch = run_batch

    def calls(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the launch and the barrier, as they are now."""
        return self.scheduler_class.run_batch, self.scheduler_class._apply_war_barrier


def make_scheduler(bare: Bare) -> Any:
    """Make a scheduler that decodes one batch for ever."""
    torch: Any = import_module("torch")
    native: Any = import_module("sglang.srt.layers.attention.torch_native_backend").TorchNativeAttnBackend
    algorithms: Any = import_module("sglang.srt.speculative.spec_info").SpeculativeAlgorithm
    model_runner: Any = import_module("sglang.srt.model_executor.model_runner").ModelRunner
    worker: Any = import_module("sglang.srt.managers.tp_worker").TpModelWorker
    runner = object.__new__(model_runner)
    runner.is_draft_worker = False
    runner.attn_backend = object.__new__(native)
    runner.spec_algorithm = algorithms.NONE
    runner.shared_read_done_event = None
    graph = object.__new__(bare.graph_class)
    graph.model_runner, graph.attn_backend = runner, runner.attn_backend
    graph.in_graph_metadata_prep_done = torch.cpu.Event()
    scheduler = object.__new__(bare.scheduler_class)
    scheduler.model_worker = object.__new__(worker)
    scheduler.model_worker._model_runner = runner
    scheduler.graph_runner = graph
    scheduler.future_map = SimpleNamespace(spec_algo=algorithms.NONE)
    scheduler.forward_stream, scheduler.schedule_stream = torch.cpu.Stream(), torch.cpu.Stream()
    scheduler._war_barrier_enabled = True
    scheduler.device = "cpu"
    scheduler.gracefully_exit = True
    scheduler.last_batch, scheduler.result_queue = None, []
    scheduler.cur_batch_for_debug = SimpleNamespace(
        forward_mode=bare.modes.DECODE,
        reqs=[object()] * WIDTH,
        extend_num_tokens=None,
        prefill_input_ids_cpu=None,
        input_ids=object(),
        enable_overlap=False,
        spec_algorithm=algorithms.NONE,
    )
    return scheduler


class Stepping:
    """Runs blocks of steps with one set of functions."""

    def __init__(self, bare: Bare, scheduler: Any) -> None:
        self._launch, self._barrier = bare.calls()
        self._inputs = bare.inputs.resolve_forward_inputs
        self._resolve = bare.graph_class._resolve_shared_read_ends
        self._bare = bare
        self._scheduler = scheduler

    def cold_block(self) -> None:
        """Run steps from cold caches."""
        torch: Any = import_module("torch")
        evicting = torch.zeros(EVICTING // 8, dtype=torch.int64)
        self._use()
        for _ in range(COLD_STEPS):
            evicting.add_(1)
            self._launch(self._scheduler, self._scheduler.cur_batch_for_debug)
            self._barrier(self._scheduler)

    def block(self) -> float:
        """Return ns of processor time a step: what else runs on the machine is left out."""
        self._use()
        launch, barrier, scheduler = self._launch, self._barrier, self._scheduler
        batch = scheduler.cur_batch_for_debug
        begun = thread_time_ns()
        for _ in range(STEPS):
            launch(scheduler, batch)
            barrier(scheduler)
        return (thread_time_ns() - begun) / STEPS

    def _use(self) -> None:
        self._bare.inputs.resolve_forward_inputs = self._inputs
        self._bare.graph_class._resolve_shared_read_ends = self._resolve


def load(bare: Bare, scheduler: Any) -> tuple[Stepping, Any]:
    """Load the plugin as SGLang does and let a loop begin; return what steps with it, and its session."""
    plugin: Any = import_module("sglang_fence.sglang_plugin.session")
    sessions: list[Any] = []
    made = plugin.Session.__init__

    def keep(self: Any, *args: Any) -> None:
        made(self, *args)
        sessions.append(self)

    plugin.Session.__init__ = keep
    import_module("sglang.srt.plugins").load_plugins()
    bare.scheduler_class.event_loop_overlap(scheduler)  # returns at once, and begins all that a loop begins
    scheduler.last_batch, scheduler.result_queue = object(), [object()]  # the last launch's results are still to come
    sessions[0].watch.loop = import_module("sglang_fence.sglang_plugin.targets").LOOPS["event_loop_overlap"]
    return Stepping(bare, scheduler), sessions[0]


class HostStream:
    """Where observers wait, on a host whose work is done as it is enqueued."""

    def wait_event(self, _: object, /) -> None:
        """It is over."""


def time_on_the_host(session: Any) -> None:
    """Let every step be timed, with events of the host in place of CUDA's."""
    host = Host()
    times = DeviceTimes(host, object(), HostStream(), DeviceClock(host, None, virtual=False))
    session.steps.current.arm(None)
    session.steps.probe = StepProbe(Observers([session.ledger]), times, sampling=Sampling(timing_every=1))


def differences(without: Stepping, hooked: Stepping, rounds: int) -> tuple[list[float], list[float]]:
    """Return ns a step without the hooks, and what they add, in each round; one more round warms up."""
    bare: list[float] = []
    added: list[float] = []
    for number in range(rounds + 1):
        turn = (without, hooked) if number % 2 else (hooked, without)
        figures = {stepping: stepping.block() for stepping in turn}
        if number:
            bare.append(figures[without])
            added.append(figures[hooked] - figures[without])
    return bare, added


def main(rounds: int) -> None:
    """Measure."""
    os.environ.setdefault("SGLANG_PLUGINS", "sglang_fence")
    logging.disable(logging.WARNING)  # there is no server, whose labels metrics could carry
    bare = Bare()
    scheduler = make_scheduler(bare)
    without = Stepping(bare, scheduler)
    hooked, session = load(bare, scheduler)
    for name in ("counted only", "timed"):
        if name == "timed":
            time_on_the_host(session)
        before = account(session)
        nothing, costs = differences(without, hooked, rounds)
        steps = (rounds + 1) * STEPS
        own = {hook: round((ns - before.get(hook, 0)) / steps) for hook, ns in account(session).items() if ns}
        print(
            f"{name}: {statistics.median(costs):.0f} ns a step, {min(costs):.0f} to {max(costs):.0f}, {rounds} rounds"
        )
        print(f"  without: {statistics.median(nothing):.0f}; by hook, own account: {own}, {sum(own.values())} in all")
        cold: dict[str, list[float]] = {}
        for _ in range(COLD_ROUNDS):
            before = account(session)
            hooked.cold_block()
            for hook, ns in account(session).items():
                cold.setdefault(hook, []).append((ns - before.get(hook, 0)) / COLD_STEPS)
        own = {hook: round(statistics.median(found)) for hook, found in cold.items() if any(found)}
        print(f"  cold, by own account, median: {own}, {sum(own.values())} in all")


def account(session: Any) -> dict[str, int]:
    """Return the plugin's own account in ns, by hook, with all that was measured."""
    session.steps.current.give_up(pending=False)
    return dict(session.ledger.health.cost_ns)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
