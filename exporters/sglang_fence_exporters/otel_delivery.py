"""Who takes the spans that were built: the provider that the process has, or one of our own that sends them by OTLP."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_EXPORT_TIMEOUT,
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from sglang_fence import __version__
from sglang_fence.catalogue.spans import SCHEMA_URL, SCOPE
from sglang_fence.errors import ConfigError
from sglang_fence_exporters.otel_sending import SendingExporter, otlp_exporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Tracer
    from opentelemetry.trace import TracerProvider as AnyProvider

    from sglang_fence_exporters.otel_address import Address

DEFAULT_SERVICE = "sglang-fence"
VIRTUAL_INSTANCE = "virtual-time"
"""``service.instance.id`` where times are virtual, in place of the SDK's random one: the same trace each time."""
QUEUE_SPANS = 2048
BATCH_SPANS = 512
DELAY_MS = 5000
END_MS = 5000
"""How long the end of a run may take, at the most; the variable is ``OTEL_BSP_EXPORT_TIMEOUT``."""


class Delivery(Protocol):
    """Takes built spans. Everything but :meth:`abort` is called on the exporter's own thread."""

    tracer: Tracer
    """What spans are built with."""

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


def _tracer(provider: AnyProvider) -> Tracer:
    return provider.get_tracer(SCOPE, __version__, SCHEMA_URL)


class ProcessDelivery:
    """Gives spans to the provider that the process has. Its processors, sampler and end are the process's business."""

    def __init__(self, provider: AnyProvider) -> None:
        self.tracer = _tracer(provider)
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

    def __init__(self, address: Address, environ: Mapping[str, str], ids: IdGenerator | None) -> None:
        """Prepare to send to ``address``; nothing is contacted.

        Args:
            address: where spans go.
            environ: read for the ``OTEL_BSP_*`` variables; the SDK reads others from the process's own.
            ids: makes identifiers that are the same each time; None: they are random.

        Raises:
            ConfigError: the package for the protocol is missing, or it can't use one of the ``OTEL_*`` variables.
        """
        self._limit = _positive(environ, OTEL_BSP_MAX_QUEUE_SIZE, QUEUE_SPANS)
        batch = min(_positive(environ, OTEL_BSP_MAX_EXPORT_BATCH_SIZE, BATCH_SPANS), self._limit)
        delay = _positive(environ, OTEL_BSP_SCHEDULE_DELAY, DELAY_MS)
        exporter = otlp_exporter(address)
        try:
            provider = TracerProvider(
                # What arrives was sampled by the core already.
                sampler=ALWAYS_ON,
                resource=_resource(repeatable=ids is not None),
                # The run's end closes it, within a bound. The provider's own handler would wait for half a minute.
                shutdown_on_exit=False,
                id_generator=ids,
            )
        except ValueError as error:
            msg = f"OpenTelemetry can't use its environment: {error}"
            raise ConfigError(msg) from error
        self._provider = provider
        # Last, since it quietens loggers of the process: from here on nothing can fail.
        self._exporter = SendingExporter(exporter, address.endpoint)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=self._limit,
                schedule_delay_millis=delay,
                max_export_batch_size=batch,
            ),
        )
        self.tracer = _tracer(self._provider)
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
        self._exporter.hurry()
        try:
            self._provider.shutdown()
        finally:
            self._exporter.restore_logging()

    def abort(self) -> None:
        """Make a retry that waits give up, and take no more results."""
        self._exporter.abort()


def _resource(*, repeatable: bool) -> Resource:
    # What is given here outranks the environment, so nothing that OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say is.
    said = OTELResourceDetector().detect().attributes
    ours = {SERVICE_NAME: DEFAULT_SERVICE}
    if repeatable:
        ours[SERVICE_INSTANCE_ID] = VIRTUAL_INSTANCE
    return Resource.create({name: value for name, value in ours.items() if name not in said})


def end_timeout_s(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long the end of a run may take, in seconds.

    Raises:
        ConfigError: the variable isn't a positive whole number of milliseconds.
    """
    return _positive(environ, OTEL_BSP_EXPORT_TIMEOUT, END_MS) / 1000


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    raw = environ.get(name, "").strip()
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        value = 0
    if value < 1:
        msg = f"{name}={raw!r} isn't a positive whole number: write one, or unset it"
        raise ConfigError(msg)
    return value
