"""Every function of SGLang that is hooked, the signatures that are known, and what isn't seen without it."""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULER = "sglang.srt.managers.scheduler"
RUNNERS = "sglang.srt.model_executor.runner"
EAGLE = "sglang.srt.speculative.eagle_worker_v2"
PREFILL_LOOPS = "sglang.srt.disaggregation.prefill.SchedulerDisaggregationPrefillMixin"
DECODE_LOOPS = "sglang.srt.disaggregation.decode.SchedulerDisaggregationDecodeMixin"
PIPELINE_LOOPS = "sglang.srt.managers.scheduler_pp_mixin.SchedulerPPMixin"


@dataclass(frozen=True, slots=True)
class Target:
    """One function.

    A version that lacks it, or gives it a signature that isn't listed, is left alone there.
    """

    key: str
    """How the plugin calls it."""
    module: str
    owner: str | None
    """The class that defines it; None for a function of the module."""
    name: str
    signatures: tuple[tuple[str, ...], ...]
    """Names of its parameters, for each form that is known."""
    unseen: str
    """What isn't seen where it can't be hooked."""

    @property
    def path(self) -> str:
        """Its dotted name, as SGLang's hook registry takes it."""
        return ".".join(part for part in (self.module, self.owner, self.name) if part)


@dataclass(frozen=True, slots=True)
class Loop:
    """One event loop of the scheduler."""

    label: str
    """A value of the catalogue's label ``loop``."""
    barrier: bool
    """Whether it applies the barrier."""


_SELF = (("self",),)


def _method(key: str, owner: str, name: str, signatures: tuple[tuple[str, ...], ...], unseen: str) -> Target:
    module, _, cls = owner.rpartition(".")
    return Target(key, module, cls, name, signatures, unseen)


def _loop(name: str, owner: str = f"{SCHEDULER}.Scheduler") -> Target:
    return _method(name, owner, name, _SELF, f"whether {name} is the loop that runs")


LOOPS: dict[str, Loop] = {
    "event_loop_overlap": Loop("overlap", barrier=True),
    "event_loop_normal": Loop("normal", barrier=False),
    "event_loop_overlap_disagg_prefill": Loop("disaggregated", barrier=True),
    "event_loop_overlap_disagg_decode": Loop("disaggregated", barrier=True),
    "event_loop_normal_disagg_prefill": Loop("normal", barrier=False),
    "event_loop_normal_disagg_decode": Loop("normal", barrier=False),
    "event_loop_pp": Loop("pipeline", barrier=False),
    "event_loop_pp_disagg_prefill": Loop("pipeline", barrier=False),
    "event_loop_pp_disagg_decode": Loop("pipeline", barrier=False),
    "event_loop_pdmux": Loop("pdmux", barrier=False),
}
"""By the key of the target."""

_BATCH = ("self", "forward_batch")

TARGETS: tuple[Target, ...] = (
    _method(
        "run_event_loop",
        f"{SCHEDULER}.Scheduler",
        "run_event_loop",
        _SELF,
        "the end of the scheduler: what was counted in its last second isn't exported",
    ),
    _method(
        "run_batch",
        f"{SCHEDULER}.Scheduler",
        "run_batch",
        (("self", "batch", "pp_proxy_tensors"),),
        "where a step begins: steps of loops without a barrier aren't counted, and none has a stale publication",
    ),
    _method(
        "apply_war_barrier",
        f"{SCHEDULER}.Scheduler",
        "_apply_war_barrier",
        _SELF,
        "the barrier: every step counts as absent",
    ),
    _method(
        "on_idle",
        f"{SCHEDULER}.Scheduler",
        "on_idle",
        _SELF,
        "idleness: device times of the last steps before a pause are read when the next step runs",
    ),
    Target(
        "resolve_forward_inputs",
        "sglang.srt.managers.overlap_utils",
        None,
        "resolve_forward_inputs",
        (("batch", "future_map"),),
        "where a forward starts on its stream: forward times, gaps and lost time",
    ),
    _method(
        "decode_resolve",
        f"{RUNNERS}.decode_cuda_graph_runner.DecodeCudaGraphRunner",
        "_resolve_shared_read_ends",
        (("self", "attn_backend", "forward_mode"),),
        "what decode and verify graphs declare and resolve: their coarse steps count as owner_silent",
    ),
    _method(
        "decode_execute",
        f"{RUNNERS}.decode_cuda_graph_runner.DecodeCudaGraphRunner",
        "execute",
        ((*_BATCH, "pp_proxy_tensors"),),
        "the range of a graph's replay, in NVTX and traces",
    ),
    _method(
        "process_batch_result",
        f"{SCHEDULER}.Scheduler",
        "process_batch_result",
        (("self", "batch", "result"),),
        "the range in which results are processed, in NVTX and traces",
    ),
    _method(
        "eager_execute",
        f"{RUNNERS}.eager_runner.EagerRunner",
        "execute",
        ((*_BATCH, "pp_proxy_tensors", "kwargs"), (*_BATCH, "pp_proxy_tensors")),
        "what eager runners serve: their coarse steps count as owner_silent",
    ),
    _method(
        "prefill_execute",
        f"{RUNNERS}.prefill_cuda_graph_runner.PrefillCudaGraphRunner",
        "execute",
        ((*_BATCH, "kwargs"),),
        "what prefill graphs serve: their coarse steps count as owner_silent",
    ),
    Target(
        "publish_prefill",
        "sglang.srt.model_executor.runner_utils.shared_read_event",
        None,
        "maybe_publish_prefill_shared_read_done",
        (
            ("model_runner", "shared_read_ends", "device_module"),
            ("model_runner", "forward_batch", "device_module"),
        ),
        "why a prefill doesn't publish: it counts as no_graph",
    ),
    _method(
        "draft_extend_execute",
        "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner.EAGLEDraftExtendCudaGraphRunner",
        "execute",
        ((*_BATCH, "select_index"), _BATCH),
        "EAGLE's draft-extend: its coarse steps count as owner_silent",
    ),
    _method(
        "draft",
        f"{EAGLE}.EagleDraftWorker",
        "draft",
        (("self", "batch", "with_topology"), ("self", "batch")),
        "the range of EAGLE's draft forwards, in NVTX and traces",
    ),
    _method(
        "verify",
        f"{EAGLE}.EAGLEWorkerV2",
        "verify",
        (("self", "batch", "pp_proxy_tensors", "grammar_barrier"), ("self", "batch", "grammar_barrier")),
        "the range of EAGLE's verification, in NVTX and traces",
    ),
    _loop("event_loop_overlap"),
    _loop("event_loop_normal"),
    _loop("event_loop_overlap_disagg_prefill", PREFILL_LOOPS),
    _loop("event_loop_normal_disagg_prefill", PREFILL_LOOPS),
    _loop("event_loop_overlap_disagg_decode", DECODE_LOOPS),
    _loop("event_loop_normal_disagg_decode", DECODE_LOOPS),
    _loop("event_loop_pp", PIPELINE_LOOPS),
    _loop("event_loop_pp_disagg_prefill", PIPELINE_LOOPS),
    _loop("event_loop_pp_disagg_decode", PIPELINE_LOOPS),
    _loop("event_loop_pdmux", "sglang.srt.multiplex.multiplexing_mixin.SchedulerMultiplexMixin"),
)

ONLY_MARKED: dict[str, str] = {
    "decode_execute": "replay",
    "process_batch_result": "process_results",
    "draft": "draft",
    "verify": "target_verify",
}
"""Ranges by the keys of what is hooked for NVTX and traces alone, and left as it is where nobody asks for either."""

KNOWN_VERSIONS = ("0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.23")
"""Read, and checked against this table; others are hooked as far as they agree with it."""
