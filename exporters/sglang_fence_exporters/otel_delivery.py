"""Who takes the spans that were built: the provider that the process has, or one of our own that sends them by OTLP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from opentelemetry.sdk.trace.export import BatchSpanProcessor

from sglang_fence_exporters.otel_provider import prepare, tracer_of
from sglang_fence_exporters.otel_sending import SendingExporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import TracerProvider

    from sglang_fence_exporters.otel_address import Address


class Delivery(Protocol):
    """Takes built spans. Everything but :meth:`abort` is called on the exporter's own thread."""

    @property
    def failed(self) -> int:
        """Steps that were taken and are known to be lost."""
        ...

    @property
    def settled(self) -> int:
        """Steps that are where they were meant to go, as far as we can see."""
        ...

    def has_room(self, spans: int) -> bool:
        """Whether so many spans can be taken without losing one."""
        ...

    def hand_over(self, spans: int) -> None:
        """One more step was built, of so many spans."""
        ...

    def close(self) -> None:
        """Send what waits. May take as long as the collector lets it, unless aborted."""
        ...

    def abort(self) -> None:
        """Give up on what is being sent. From any thread; returns at once."""
        ...


class ProcessDelivery:
    """Gives spans to the provider that the process has. Its processors, sampler and end are the process's business."""

    def __init__(self, provider: TracerProvider) -> None:
        self.tracer = tracer_of(provider)
        self.failed = 0
        self.settled = 0

    def has_room(self, spans: int) -> bool:  # noqa: ARG002 - nobody knows how much others' processors can take
        """Whether it can take more: always."""
        return True

    def hand_over(self, spans: int) -> None:  # noqa: ARG002 - what becomes of them isn't ours to know
        """The step is the process's now."""
        self.settled += 1

    def close(self) -> None:
        """Leave the provider as it is: whoever set it will flush it."""

    def abort(self) -> None:
        """Nothing of ours is on its way."""


class OwnDelivery:
    """Sends spans by OTLP, through a provider of our own.

    No span is lost in the batch processor's queue, which would throw out the oldest silently and tear steps apart: a
    step is built only when all of it has room there. Until then it waits in the exporter's own queue, which counts.
    """

    def __init__(
        self,
        address: Address,
        environ: Mapping[str, str],
        ids: IdGenerator,
        resource: Resource | None = None,
    ) -> None:
        """Prepare to send to ``address``; nothing is contacted.

        Args:
            address: where spans go.
            environ: read for the ``OTEL_BSP_*`` variables; the SDK reads others from the process's own.
            ids: makes identifiers.
            resource: what the spans come from; None: this process, in virtual time, the same each time.

        Raises:
            ConfigError: the package for the protocol is missing, or it can't use one of the ``OTEL_*`` variables.
        """
        parts = prepare(address, environ, ids, resource)
        self._limit = parts.queue_spans
        self._provider = parts.provider
        # Last, since it quietens loggers of the process: from here on nothing can fail.
        self._exporter = SendingExporter(parts.exporter, address.endpoint)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=parts.queue_spans,
                schedule_delay_millis=parts.delay_ms,
                max_export_batch_size=parts.batch_spans,
            ),
        )
        self.tracer = tracer_of(self._provider)
        self._handed_spans = 0

    @property
    def failed(self) -> int:
        """Steps whose own span was in a batch that failed."""
        return self._exporter.failed_steps

    @property
    def settled(self) -> int:
        """Steps whose own span the collector has confirmed."""
        return self._exporter.sent_steps

    def has_room(self, spans: int) -> bool:
        """Whether the batch processor's queue has room for so many; a step too large for it may have it all."""
        waiting = self._handed_spans - self._exporter.taken_spans
        return waiting <= 0 or waiting + spans <= self._limit

    def hand_over(self, spans: int) -> None:
        """So many spans more wait in the batch processor's queue."""
        self._handed_spans += spans

    def close(self) -> None:
        """Send what waits, then shut the provider down."""
        try:
            self._provider.shutdown()
        finally:
            self._exporter.restore_logging()

    def abort(self) -> None:
        """Make a retry that waits give up, and take no more results."""
        self._exporter.abort()
