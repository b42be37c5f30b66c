"""Steps whose spans are built here: for a provider that the process has, and in virtual time, which takes none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sglang_fence_exporters.otel_route import PAUSE_S

if TYPE_CHECKING:
    from sglang_fence.observe.trace import StepTrace
    from sglang_fence_exporters.otel_delivery import Delivery
    from sglang_fence_exporters.otel_spans import SpanBuilder


class InProcess:
    """Builds spans on the exporter's thread and hands them to ``delivery``."""

    poll_s = 0.05

    def __init__(self, builder: SpanBuilder, delivery: Delivery) -> None:
        self._builder = builder
        self._delivery = delivery
        self._declined = 0
        self._hurried = False
        builder.pause = self._pause

    @property
    def lost(self) -> int:
        """Steps whose own span was in a batch that failed."""
        return self._delivery.failed

    @property
    def settled(self) -> int:
        """Steps that the collector has confirmed, or that are the process's, or that were declined."""
        return self._delivery.settled + self._declined

    @property
    def malformed_links(self) -> int:
        """As the builder has counted them."""
        return self._builder.malformed_links

    def look(self) -> None:
        """Nothing has to be done."""

    def has_room(self, trace: StepTrace) -> bool:
        """Whether the delivery can take all of its spans."""
        return self._delivery.has_room(1 + len(trace.spans))

    def take(self, trace: StepTrace) -> str | None:
        """Build its spans, and hand them over.

        Raises:
            KeyError: a span isn't in the catalogue.
            IndexError: a span names a phase that the step hasn't got.
        """
        trace_id = self._builder.build(trace)
        if trace_id is None:
            self._declined += 1
        else:
            self._delivery.hand_over(1 + len(trace.spans))
        return trace_id

    def hurry(self) -> None:
        """Serving is over."""
        self._hurried = True

    def close(self) -> None:
        """Send what waits."""
        self._delivery.close()

    def abort(self, within_s: float) -> None:  # noqa: ARG002 - a delivery gives up at once
        """Give up on what is being sent."""
        self._delivery.abort()

    def _pause(self) -> None:
        """Let the serving thread have the interpreter lock, while there is one."""
        if not self._hurried:
            time.sleep(PAUSE_S)
