"""The OTLP exporter of our own provider, watched: what arrived and what failed is counted, and said in one line."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from sglang_fence.errors import ConfigError
from sglang_fence_exporters.otel_address import Protocol
from sglang_fence_exporters.otel_attributes import STEP_SPAN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from sglang_fence_exporters.otel_address import Address

logger = logging.getLogger(__name__)

CANT_SEND = "spans can't be sent to %s (%s): serving goes on, and steps that are lost are counted"
"""What is logged, once: where to, and why."""

NO_ANSWER = "the run ended before the collector answered"
"""Why not, at the end of a run."""

_NOISY = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
"""Loggers that say each retry and each failure of each batch."""


def otlp_exporter(address: Address) -> SpanExporter:
    """Return the OTLP exporter that sends to ``address``; headers, timeout and the rest by the standard variables.

    Raises:
        ConfigError: its package is missing, or it can't use what a variable says.
    """
    try:
        if address.protocol is Protocol.GRPC:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - optional, and slow
                OTLPSpanExporter,
            )

            return OTLPSpanExporter(endpoint=address.endpoint)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - as above
            OTLPSpanExporter as OTLPHTTPSpanExporter,
        )

        return OTLPHTTPSpanExporter(endpoint=address.endpoint)
    except ImportError as error:
        msg = f"OTLP over {address.protocol} needs a package that is missing ({error}): pip install sglang-fence[otel]"
        raise ConfigError(msg) from error
    except Exception as error:  # a wrong variable shows as whatever reading it raised, a bare Exception among them
        msg = f"the OTLP exporter can't use its OTEL_EXPORTER_OTLP_* variables: {error}"
        raise ConfigError(msg) from error


class _Hush(logging.Filter):
    """Swallows what is logged by the thread that sends for us, and remembers the first of it.

    The loggers are the process's: what they say of exporters that aren't ours goes through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.thread: int | None = None
        self.heard = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let it through if it isn't about our own sending."""
        if record.thread != self.thread:
            return True
        self.heard = self.heard or record.getMessage()
        return False


class SendingExporter(SpanExporter):
    """Sends through ``inner`` and keeps the books. Never raises."""

    def __init__(self, inner: SpanExporter, where: str) -> None:
        self._inner = inner
        self._where = where
        self._hush = _Hush()
        self._told = False
        self._aborted = False
        self.taken_spans = 0
        """Spans that left the queue, to be sent."""
        self.sent_steps = 0
        self.failed_steps = 0
        for name in _NOISY:
            logging.getLogger(name).addFilter(self._hush)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch. Called by one thread at a time."""
        self.taken_spans += len(spans)
        steps = sum(span.name == STEP_SPAN for span in spans)
        self._hush.thread = threading.get_ident()
        self._hush.heard = ""
        why = ""
        try:
            result = self._inner.export(spans)
        except Exception as error:  # noqa: BLE001 - whatever it is, the spans are lost and serving goes on
            result, why = SpanExportResult.FAILURE, str(error) or type(error).__name__
        finally:
            self._hush.thread = None
        if self._aborted:  # the books are closed: those steps are counted as lost already
            return result
        if result is SpanExportResult.SUCCESS:
            self.sent_steps += steps
        else:
            self.failed_steps += steps
            self._tell(why or self._hush.heard)
        return result

    def _tell(self, why: str) -> None:
        if self._told:
            return
        self._told = True
        logger.warning(
            CANT_SEND,
            self._where,
            " ".join(why.split()) or "no reason was given",
        )

    def abort(self) -> None:
        """Close the books, and end the waiting between two tries."""
        self._tell(NO_ANSWER)
        self._aborted = True
        self._inner.shutdown()

    def shutdown(self) -> None:
        """Shut the inner exporter down, once."""
        if not self._aborted:
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing waits here."""
        return self._inner.force_flush(timeout_millis)

    def restore_logging(self) -> None:
        """Leave the process's loggers as they were."""
        for name in _NOISY:
            logging.getLogger(name).removeFilter(self._hush)
