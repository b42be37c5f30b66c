"""``Rank``: one engine on a simulated device of its own, with a ledger, whose backend can be told to say UNKNOWN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device import open_device
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.prompts import built_in, to_request
from sglang_fence.engine.requests import SamplingParams
from sglang_fence.observe.ledger import Ledger
from sglang_fence.observe.observer import Observer
from sglang_fence.observe.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.memory.kv_pool import KVStore

REQUESTS = 4
"""Of a round."""
NEW_TOKENS = 24

HOOKED = (
    "sglang.srt.managers.scheduler.Scheduler._apply_war_barrier",
    "sglang.srt.managers.scheduler.Scheduler.run_batch",
)
"""What a server with the plugin would say that it hooks."""
LOSSES = ("in_flight", "end")
"""Causes for which the observer loses steps, here at 0."""


class SwitchableBackend(NativeAttnBackend):
    """The native backend, until it is told that nobody has audited it."""

    audited = True

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """UNKNOWN for every mode, or what the native backend declares."""
        return super().shared_read_ends(mode) if self.audited else SharedReadEnds.UNKNOWN


class SwitchableEngine(Engine):
    """An engine whose backends are switchable."""

    def __init__(self, options: EngineOptions, ledger: Ledger) -> None:
        self.switchable: list[SwitchableBackend] = []
        """Every backend that serves a phase."""
        device = open_device("simulated", check_hazards=False)
        # A step that is traced is timed in any case, also where a second run of the engine numbers steps from 1 again.
        super().__init__(device, options, [ledger], sampling=Sampling(timing_every=1, trace_ratio=1.0))

    def _make_backend(self, kv: KVStore) -> AttentionBackend:
        backend = SwitchableBackend(self.device, self.memory.requests, kv)
        self.switchable.append(backend)
        return backend


class Rank:
    """One scheduler of a server.

    Args:
        labels: what tells it from the others on the page of metrics.
        speculative: an algorithm, or ``none``.
        fence: as ``run --fence``.

    Raises:
        ConfigError: there is no such algorithm or fence.
    """

    def __init__(self, labels: Mapping[str, str], *, speculative: str = "none", fence: str | None = None) -> None:
        self.labels = dict(labels)
        self.ledger = Ledger()
        options = EngineOptions(max_running=REQUESTS, speculative=speculative, fence=fence)
        self._engine = SwitchableEngine(options, self.ledger)
        self._policy = self._engine.policy
        self._prompts = built_in(REQUESTS, seed=0)
        self._say_what_a_server_says()

    def enter(self, *, audited: bool, forced: bool) -> None:
        """Enter a phase: what the steps of the next round find."""
        for backend in self._engine.switchable:
            backend.audited = audited
        self._engine.barrier.policy = replace(self._policy, forced_coarse=self._policy.forced_coarse or forced)

    def serve(self) -> None:
        """Serve one batch of requests to the end."""
        params = SamplingParams(NEW_TOKENS, 0.0, 1.0, 0, ())
        requests = [to_request(line, self._engine.model.tokenizer, params) for line in self._prompts]
        for request in requests:
            self._engine.check(request)
        self._engine.serve(requests)

    def _say_what_a_server_says(self) -> None:
        """Fill in what the runtime alone has no part for, so that no panel is empty."""
        facts, health = self.ledger.facts, self.ledger.health
        facts.audits = tuple((*declaration, "sound") for declaration in facts.declarations if _is_declared(declaration))
        health.hooks.update(dict.fromkeys(HOOKED, "installed"))
        for cause in LOSSES:
            health.unresolved[cause] = health.dropped_steps[cause] = 0
        health.exporters["otel"] = Observer()  # one that keeps up


def _is_declared(declaration: tuple[str, ForwardMode, SharedReadEnds]) -> bool:
    return declaration[2] is not SharedReadEnds.UNKNOWN
