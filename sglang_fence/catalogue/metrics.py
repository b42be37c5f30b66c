"""Every metric that the project emits. What the durations mean exactly is said in the help of each."""

from __future__ import annotations

from sglang_fence.catalogue.schema import Label, Metric, MetricKind, Unit
from sglang_fence.contract import REASONS, FallbackReason, FenceKind, ForwardMode, SharedReadEnds

PREFIX = "sglang_fence_"

DURATION_BUCKETS: tuple[float, ...] = tuple(2**exponent / 1_000_000 for exponent in range(25))
"""Seconds: powers of two from 1 µs to 16.777216 s. The top is for prefill, where a fallback costs most."""


def ends_label(ends: SharedReadEnds) -> str:
    """Return how ``ends`` is written in labels and attributes: ``in_replay``."""
    return ends.name.lower()


UNEXPECTED_REASONS: tuple[str, ...] = tuple(reason.value for reason, info in REASONS.items() if not info.expected)
"""The reasons that a healthy deployment doesn't show: what alerts look at."""

_ENDS_VALUES = tuple(ends_label(ends) for ends in SharedReadEnds)

MODE = Label("mode", "what the forward computes", tuple(mode.value for mode in ForwardMode))
BACKEND = Label("backend", "the attention backend that was asked, by the name of its class")
ENDS = Label("ends", "where shared reads end, resolved (never earlier than declared)", _ENDS_VALUES)
DECLARED = Label("declared", "where shared reads end, as the backend declares it", _ENDS_VALUES)
FENCE = Label("fence", "how the schedule stream was held back", tuple(kind.value for kind in FenceKind))
REASON = Label("reason", "why the step was coarse", tuple(reason.value for reason in FallbackReason))
LAST = Label("last", "who was the last to let the forward start", ("fence", "host"))
DOWNGRADE_CAUSE = Label("cause", "why the end is later than declared: the graph has no marker", ("no_marker",))
LOSS_CAUSE = Label("cause", "what kept the observer from it")
WHY = Label("why", "what decided it", ("flag", "switch", "asynchronous_device", "synchronous_device"))
TIMING = Label(
    "why",
    "what decided it: events that time, none on this device, a switch, or the reading broke too often",
    ("timing_events", "no_timing_events", "switch", "failed"),
)
HOOK = Label("hook", "the hook of the observer protocol")
DURATION = Label(
    "duration",
    "the duration that came out below zero",
    ("slack", "wait", "lost_slack", "lost", "forward_gap"),
)
OFFSET = Label("offset", "what was calibrated", ("marker_copy", "idle_wait"))
EXPORTER = Label("exporter", "the exporter, by the name of its entry point")
ROLE = Label("runner", "the runner that served the phase, by its part", ("target", "draft"))
TARGET = Label("target", "the function of SGLang, by its dotted name")
TARGET_STATE = Label(
    "state",
    "whether it is hooked, and why not: not there, a signature we don't know, hooking failed, ten errors",
    ("installed", "missing", "signature", "failed", "stepped_aside"),
)
LOOP = Label("loop", "the scheduler's loop", ("overlap", "normal", "pdmux", "pipeline", "disaggregated", "unknown"))
VERDICT = Label("verdict", "what the audit found", ("sound", "unsound", "could_be_earlier"))

_CONFIG_LABELS = (
    Label("version", "version of this project"),
    Label("torch", "version of PyTorch"),
    Label("sglang", "version of SGLang; empty in the runtime"),
    Label("device", "the device module"),
    Label("backend", "the attention backend, as it was asked for"),
    Label("algorithm", "the speculative algorithm; none without"),
    Label("device_max_connections", "CUDA_DEVICE_MAX_CONNECTIONS; empty where unset. At 1, fine is coarse in hardware"),
    Label("fence", "the --fence flag, which outranks the switches; empty where it was not given"),
    Label("enable_war_barrier", "SGLANG_ENABLE_WAR_BARRIER", ("false", "true")),
    Label("force_coarse_war_barrier", "SGLANG_FORCE_COARSE_WAR_BARRIER", ("false", "true")),
    Label("enable_prefill_war_read_done", "SGLANG_ENABLE_PREFILL_WAR_READ_DONE", ("false", "true")),
)


def _counter(name: str, labels: tuple[Label, ...], text: str, unit: Unit = Unit.ONE) -> Metric:
    return Metric(f"{PREFIX}{name}{unit.suffix}_total", MetricKind.COUNTER, unit, labels, text)


def _gauge(name: str, labels: tuple[Label, ...], text: str, unit: Unit = Unit.ONE) -> Metric:
    return Metric(f"{PREFIX}{name}{unit.suffix}", MetricKind.GAUGE, unit, labels, text)


def _durations(name: str, labels: tuple[Label, ...], text: str) -> Metric:
    unit = Unit.SECONDS
    return Metric(f"{PREFIX}{name}{unit.suffix}", MetricKind.HISTOGRAM, unit, labels, text, DURATION_BUCKETS)


METRICS: tuple[Metric, ...] = (
    # The fence.
    _counter("steps", (MODE, BACKEND, ENDS, FENCE), "Steps that were launched."),
    _counter("coarse_fallbacks", (MODE, BACKEND, REASON), "Steps behind a coarse fence, each with its one reason."),
    _durations(
        "slack", (MODE, ENDS), "How much sooner than a coarse fence would have, the fence let scheduling go on."
    ),
    _durations("wait", (MODE, FENCE), "How long the schedule stream stalled at the fence."),
    _durations(
        "forward",
        (MODE, FENCE),
        "Device time of the step's forward, from its start to the barrier call; of few of the timed steps.",
    ),
    _durations("forward_gap", (LAST,), "Idle time of the forward stream before a step; of few of the timed steps."),
    _counter(
        "lost_slack",
        (MODE, REASON),
        "Slack that a fine fence would have given coarse steps: the opportunity, far more than the cost. "
        "Under backend_unknown the end of the reads is assumed.",
        Unit.SECONDS,
    ),
    _counter(
        "lost",
        (MODE, REASON),
        "How much later forwards started than they would have behind a fine fence: the cost of coarse steps.",
        Unit.SECONDS,
    ),
    _counter(
        "downgrades",
        (BACKEND, MODE, DOWNGRADE_CAUSE),
        "Steps whose reads end later than declared, because the graph that was replayed has no marker.",
    ),
    _counter(
        "unsound_resolutions",
        (BACKEND, MODE),
        "Steps resolved to an earlier end than declared: shared buffers may have been overwritten while being read.",
    ),
    _counter(
        "publications",
        (MODE, ROLE, BACKEND, ENDS),
        "Phases that a runner served, by where their shared reads end, resolved. A step has one or more.",
    ),
    _counter("owner_changes", (ROLE,), "Steps whose last shared read has another owner than the step before; its new."),
    _counter("stale_publications", (ROLE,), "Publications of another step that lay in the owner's mailbox."),
    _counter(
        "unoverlapped_launches",
        (MODE,),
        "Launches of an overlap loop that waited for the results of the one before: overlap was off for that step.",
    ),
    _gauge("barrier_enabled", (WHY,), "1 where the barrier is on, 0 where schedule streams don't wait at all."),
    # What was decided at start.
    _gauge("declaration_info", (BACKEND, MODE, DECLARED), "What each backend declares for each mode; always 1."),
    _gauge("config_info", _CONFIG_LABELS, "Versions and switches; always 1."),
    _gauge("audit_result", (BACKEND, MODE, DECLARED, VERDICT), "1 for the verdict of the newest audit, 0 for others."),
    # The observer, about itself.
    _counter("observer_cost", (HOOK,), "Host time that observing took on the serving thread.", Unit.SECONDS),
    _counter("observer_dropped_steps", (LOSS_CAUSE,), "Steps that were due to be observed and were not."),
    _counter("observer_clamps", (DURATION,), "Durations below zero after calibration, counted as zero."),
    _counter("observer_unresolved", (LOSS_CAUSE,), "Steps whose device times were not read in time."),
    _counter("observer_errors", (HOOK,), "Errors raised by observers. Steps go on; who keeps raising is dropped."),
    _gauge(
        "observer_calibration",
        (OFFSET,),
        "Offsets that were measured at start and are subtracted: how late a copied marker reads, and how much a wait "
        "that costs nothing.",
        Unit.SECONDS,
    ),
    _counter("exporter_dropped_steps", (EXPORTER,), "Steps that an exporter's full queue turned away."),
    _gauge("device_timing_enabled", (TIMING,), "1 where device times are taken, 0 where only counts and reasons are."),
    _gauge("observer_timing_every", (), "Device times are taken on each so-many-th step."),
    _gauge("observer_clock_error", (), "How far device times may be off against the wall clock.", Unit.SECONDS),
    # The plugin in SGLang.
    _gauge("plugin_hook", (TARGET, TARGET_STATE), "1 for the state of each function that the plugin hooks."),
    _gauge("loop_info", (LOOP,), "The scheduler's loop that is running; always 1."),
)
