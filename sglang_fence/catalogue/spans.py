"""Every span and span attribute that traces and timelines show. Spans are built afterwards, for sampled steps."""

from __future__ import annotations

from sglang_fence.catalogue.metrics import BACKEND, DECLARED, DOWNGRADE_CAUSE, ENDS, FENCE, LAST, MODE, REASON, ROLE
from sglang_fence.catalogue.schema import Attribute, Span, Track, Unit

SCOPE = "sglang_fence"
"""The instrumentation scope; prefix of every attribute."""

SCHEMA_URL = "https://sglang-fence.dev/schemas/traces/1.0.0"
"""Which edition of the names below a trace speaks. Its last part rises when one of them changes its meaning or goes."""

STEP = Attribute("sglang_fence.step_id", int, "number of the step, counted from the start of the process")
TRACK = Attribute(
    "sglang_fence.track",
    str,
    "the row of a timeline that the span belongs on",
    values=tuple(track.value for track in Track),
)
MODE_ATTRIBUTE = Attribute("sglang_fence.mode", str, MODE.help, values=MODE.values)
BACKEND_ATTRIBUTE = Attribute("sglang_fence.backend", str, BACKEND.help)
RUNNER = Attribute("sglang_fence.runner", str, ROLE.help, values=ROLE.values)
BATCH_SIZE = Attribute("sglang_fence.batch_size", int, "requests in the batch, without padding")
TOKENS = Attribute("sglang_fence.tokens", int, "tokens that were computed, without padding")
DECLARED_ENDS = Attribute("sglang_fence.ends.declared", str, DECLARED.help, values=DECLARED.values)
RESOLVED_ENDS = Attribute("sglang_fence.ends.resolved", str, ENDS.help, values=ENDS.values)
DOWNGRADE = Attribute("sglang_fence.downgrade", str, DOWNGRADE_CAUSE.help, values=DOWNGRADE_CAUSE.values)
FENCE_ATTRIBUTE = Attribute("sglang_fence.fence", str, FENCE.help, values=FENCE.values)
REASON_ATTRIBUTE = Attribute("sglang_fence.reason", str, REASON.help + "; on coarse steps", values=REASON.values)
IN_GRAPH = Attribute("sglang_fence.in_graph", bool, "whether the published event is a node of the graph")
BOUND_RECORD = Attribute("sglang_fence.bound_record", int, "number of the record that the wait is bound to")
SEGMENT_INDEX = Attribute("sglang_fence.segment_index", int, "place of the segment in its graph, from 0")
SLACK = Attribute("sglang_fence.slack", float, "how much sooner than a coarse fence this one let go", Unit.SECONDS)
WAIT = Attribute("sglang_fence.wait", float, "how long the schedule stream stalled", Unit.SECONDS)
FORWARD = Attribute("sglang_fence.forward", float, "device time of the forward, up to the barrier call", Unit.SECONDS)
LOST_SLACK = Attribute("sglang_fence.lost_slack", float, "slack that a fine fence would have given", Unit.SECONDS)
LOST = Attribute("sglang_fence.lost", float, "how much later than behind a fine fence the next began", Unit.SECONDS)
FORWARD_GAP = Attribute("sglang_fence.forward_gap", float, "idle time of the forward stream before it", Unit.SECONDS)
GAP_LAST = Attribute("sglang_fence.forward_gap_last", str, LAST.help, values=LAST.values)
ASSUMED = Attribute("sglang_fence.assumed", bool, "whether the lost slack rests on an assumed end of the reads")
WAITED_FOR = Attribute("sglang_fence.waited_for", int, "the step whose fence stood before its preparation")
CLOCK_ERROR = Attribute(
    "sglang_fence.clock_error",
    float,
    "how far its device times may be off against its host times",
    Unit.SECONDS,
)
LINK = Attribute("sglang_fence.link", str, "what a link of a step points at", values=("fence", "request"))

# How many requests and tokens there are is said once, on the step: a phase has no numbers of its own.
_SPAN = (STEP, TRACK)
_PHASE = (*_SPAN, MODE_ATTRIBUTE, BACKEND_ATTRIBUTE, RUNNER)
_SEGMENT = (*_SPAN, SEGMENT_INDEX)
_BARRIER = (*_SPAN, FENCE_ATTRIBUTE, REASON_ATTRIBUTE, BOUND_RECORD, SLACK, WAIT)

SPANS: tuple[Span, ...] = (
    Span(
        "step",
        Track.STEP,
        "One launch, from its preparation on the host to the end of its forward; parent of all the others. Linked to "
        "the step whose fence it waited for, and to its requests.",
        (
            *_SPAN,
            MODE_ATTRIBUTE,
            BACKEND_ATTRIBUTE,
            BATCH_SIZE,
            TOKENS,
            DECLARED_ENDS,
            RESOLVED_ENDS,
            DOWNGRADE,
            FENCE_ATTRIBUTE,
            REASON_ATTRIBUTE,
            SLACK,
            WAIT,
            FORWARD,
            LOST_SLACK,
            ASSUMED,
            LOST,
            FORWARD_GAP,
            GAP_LAST,
            WAITED_FOR,
            CLOCK_ERROR,
            LINK,
        ),
    ),
    # Host.
    Span("schedule", Track.HOST, "The next batch is chosen and prepared.", _SPAN),
    Span("launch", Track.HOST, "The forward is enqueued.", _PHASE),
    Span(
        "publish",
        Track.HOST,
        "The end of shared reads is put into the runner's mailbox.",
        (*_SPAN, RUNNER, DECLARED_ENDS, RESOLVED_ENDS, DOWNGRADE, IN_GRAPH),
    ),
    Span("barrier", Track.HOST, "The barrier is applied: its wait is enqueued.", _BARRIER),
    Span("process_results", Track.HOST, "Results of the step before are processed.", _SPAN),
    # Forward stream. Where one of these was sampled on the host alone, its track says so.
    Span("out_graph_metadata", Track.FORWARD, "Attention metadata is prepared outside the graph.", _PHASE),
    Span("in_graph_metadata", Track.FORWARD, "Attention metadata is prepared in the graph, up to the marker.", _PHASE),
    Span("replay", Track.FORWARD, "A graph is replayed.", (*_PHASE, RESOLVED_ENDS)),
    Span("segment", Track.FORWARD, "A segment of a breakable graph is replayed.", _SEGMENT),
    Span("eager_segment", Track.FORWARD, "What runs eagerly between two segments.", _SEGMENT),
    Span("prefill", Track.FORWARD, "New prompt tokens are computed, eagerly or by a graph.", _PHASE),
    Span("draft", Track.FORWARD, "A draft model proposes tokens.", _PHASE),
    Span("target_verify", Track.FORWARD, "The target model scores drafted tokens.", _PHASE),
    Span("draft_extend", Track.FORWARD, "The draft model catches up with accepted tokens.", _PHASE),
    # Schedule stream.
    Span("barrier_wait", Track.SCHEDULE, "The schedule stream stalls at the fence.", _BARRIER),
)
