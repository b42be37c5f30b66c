"""The NVTX exporter: each phase of a step as a range in the domain ``sglang_fence``, for Nsight Systems and its like.

The payload is the number of the step, −1 at graph capture. Everything is made once; a range costs a push and a pop.
With no tool attached, the observer overrides nothing, so the probe has no hook to call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue.ranges import NVTX_SLACK
from sglang_fence.contract import FenceKind
from sglang_fence.observe.observer import Observer
from sglang_fence_exporters.nvtx_domain import RangeAttributes, make_counter, open_domain
from sglang_fence_exporters.nvtx_slack import SlackTrack

if TYPE_CHECKING:
    from sglang_fence.observe.exporting import ExportContext
    from sglang_fence.observe.record import StepRecord
    from sglang_fence_exporters.nvtx_domain import Attributes, Domain


def make(context: ExportContext) -> Observer:
    """Make the exporter; a plain :class:`Observer`, which does nothing, where no tool listens."""
    del context  # ranges are on the host's own time, and nothing about them can be set
    domain = open_domain()
    if domain is None:
        return Observer()
    counter = make_counter(domain, NVTX_SLACK.name, NVTX_SLACK.unit, NVTX_SLACK.help)
    return NvtxRanges(domain) if counter is None else NvtxRangesAndSlack(domain, SlackTrack(domain, counter))


class NvtxRanges(Observer):
    """Ranges and the barrier's marks.

    A pop always belongs to a push of ours: a start that failed is remembered as such, an end without a start does
    nothing, and what is still open when the run ends is closed.
    """

    def __init__(self, domain: Domain) -> None:
        self._attributes = RangeAttributes(domain)
        self._marks: dict[FenceKind, Attributes] = {
            kind: self._attributes[f"barrier.{kind.value}"] for kind in FenceKind if kind is not FenceKind.ABSENT
        }
        self._push = domain.push_range
        self._pop = domain.pop_range
        self._mark = domain.mark
        self._pushed: list[bool] = []
        """For each range that is open: whether it was pushed."""

    def range_started(self, name: str, step: int) -> None:
        """Push it."""
        pushed = self._pushed
        pushed.append(False)
        attributes = self._attributes[name]
        attributes.payload = step
        self._push(attributes)
        pushed[-1] = True

    def range_ended(self, name: str, step: int) -> None:  # noqa: ARG002 - NVTX ends the innermost, which is this one
        """Pop it, if it was pushed."""
        if self._pushed and self._pushed.pop():
            self._pop()

    def barrier_applied(self, record: StepRecord) -> None:
        """Mark how the barrier came out."""
        attributes = self._marks.get(record.fence)
        if attributes is not None:
            attributes.payload = record.step
            self._mark(attributes)

    def run_ended(self) -> None:
        """Close what is open."""
        while self._pushed:
            if self._pushed.pop():
                self._pop()


class NvtxRangesAndSlack(NvtxRanges):
    """The same, and a track of slack."""

    def __init__(self, domain: Domain, slack: SlackTrack) -> None:
        super().__init__(domain)
        self._slack = slack

    def barrier_applied(self, record: StepRecord) -> None:
        """Mark how the barrier came out, and when."""
        super().barrier_applied(record)
        if record.timed:
            self._slack.barrier(record.step)

    def step_finished(self, record: StepRecord) -> None:
        """Take its slack, where it was measured."""
        if record.slack_us is not None:
            self._slack.add(record.step, record.slack_us)

    def run_ended(self) -> None:
        """Close what is open, and hand over what waits."""
        super().run_ended()
        self._slack.flush()
