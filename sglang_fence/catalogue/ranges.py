"""Every NVTX range and counter. Ranges are on the host: what is enqueued in one, Nsight projects to the device."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_fence.catalogue.schema import Category, NvtxRange

NVTX_DOMAIN = "sglang_fence"

COLORS: dict[Category, int] = {
    Category.SCHEDULE: 0xFF4E79A7,
    Category.FORWARD: 0xFF59A14F,
    Category.METADATA: 0xFFF28E2B,
    Category.REPLAY: 0xFF8CD17D,
    Category.PUBLISH: 0xFFEDC948,
    Category.BARRIER: 0xFFE15759,
    Category.SPECULATIVE: 0xFFB07AA1,
    Category.RESULTS: 0xFF9C755F,
}
"""ARGB, told apart by people with the common colour deficiencies. Red is for the barrier alone."""


@dataclass(frozen=True, slots=True)
class NvtxCounter:
    """A track of numbers in the NVTX domain."""

    name: str
    unit: str
    """As NVTX takes it: plain ASCII."""
    help: str


def _range(name: str, category: Category, text: str) -> NvtxRange:
    return NvtxRange(name, category, COLORS[category], text)


NVTX_RANGES: tuple[NvtxRange, ...] = (
    _range("schedule", Category.SCHEDULE, "The next batch is chosen and prepared."),
    _range("launch", Category.FORWARD, "The forward is enqueued."),
    _range("prefill", Category.FORWARD, "An extend is enqueued, eagerly or by a graph."),
    _range("capture", Category.FORWARD, "A graph is captured, at start."),
    _range("out_graph_metadata", Category.METADATA, "Attention metadata is prepared outside the graph."),
    _range("in_graph_metadata", Category.METADATA, "Attention metadata is captured into the graph, or run eagerly."),
    _range("replay", Category.REPLAY, "A graph's replay is enqueued."),
    _range("segment", Category.REPLAY, "One segment of a breakable graph is enqueued."),
    _range("eager_segment", Category.REPLAY, "What runs eagerly between two segments is enqueued."),
    _range("publish", Category.PUBLISH, "The end of shared reads is put into the runner's mailbox."),
    _range("barrier", Category.BARRIER, "The publication is taken, and a wait is enqueued for what it says."),
    # How that came out is only known at its end: marks, not ranges, one of them in each barrier.
    _range("barrier.fine", Category.BARRIER, "Mark: the schedule stream waits for the read-done event."),
    _range("barrier.coarse", Category.BARRIER, "Mark: the schedule stream waits for the whole forward stream."),
    _range("barrier.disabled", Category.BARRIER, "Mark: the barrier is off, nothing waits."),
    _range("draft", Category.SPECULATIVE, "Draft forwards are enqueued."),
    _range("target_verify", Category.SPECULATIVE, "Verification is enqueued."),
    _range("draft_extend", Category.SPECULATIVE, "The draft model's catching up is enqueued."),
    _range("process_results", Category.RESULTS, "Results of the step before are processed."),
    _range("collect", Category.RESULTS, "The observer reads device times that are ready."),
)

UNLISTED_COLOR = 0xFFBAB0AC
"""Of a range that isn't listed above, such as one of a backend from elsewhere: grey, and without a category."""
UNLISTED_NAME = "unlisted"
"""What such a range is called where a process has used too many names already: a name, once registered, stays."""

NVTX_SLACK = NvtxCounter("slack", "us", "How much sooner than a coarse fence the step's fence let go, at its barrier.")
NVTX_COUNTERS: tuple[NvtxCounter, ...] = (NVTX_SLACK,)
