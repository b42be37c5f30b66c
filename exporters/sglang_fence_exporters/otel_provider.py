"""Our own tracer provider and OTLP exporter, as the environment says. Nothing is contacted, and no thread begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NoOpTracer

from sglang_fence import __version__
from sglang_fence.catalogue.spans import SCHEMA_URL, SCOPE
from sglang_fence.errors import ConfigError
from sglang_fence_exporters.otel_limits import BATCH_SPANS, DELAY_MS, QUEUE_SPANS, positive
from sglang_fence_exporters.otel_sending import otlp_exporter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    from opentelemetry.trace import Tracer
    from opentelemetry.trace import TracerProvider as AnyProvider

    from sglang_fence_exporters.otel_address import Address

DEFAULT_SERVICE = "sglang-fence"
VIRTUAL_INSTANCE = "virtual-time"
"""``service.instance.id`` where times are virtual, in place of the SDK's random one: the same trace each time."""


def tracer_of(provider: AnyProvider) -> Tracer:
    """Return what builds our spans."""
    return provider.get_tracer(SCOPE, __version__, SCHEMA_URL)


class ProviderParts(NamedTuple):
    """What our own delivery is made of."""

    queue_spans: int
    batch_spans: int
    delay_ms: int
    exporter: SpanExporter
    provider: TracerProvider


def prepare(
    address: Address,
    environ: Mapping[str, str],
    ids: IdGenerator | None,
    resource: Resource | None,
) -> ProviderParts:
    """Read all variables, and make what needs no thread.

    Raises:
        ConfigError: as :class:`~.otel_delivery.OwnDelivery` does.
    """
    queue = positive(environ, OTEL_BSP_MAX_QUEUE_SIZE, QUEUE_SPANS)
    batch = min(positive(environ, OTEL_BSP_MAX_EXPORT_BATCH_SIZE, BATCH_SPANS), queue)
    delay = positive(environ, OTEL_BSP_SCHEDULE_DELAY, DELAY_MS)
    exporter = otlp_exporter(address)
    try:
        provider = TracerProvider(
            # What arrives was sampled by the core already.
            sampler=ALWAYS_ON,
            resource=resource or _resource(repeatable=True),
            # The run's end closes it, within a bound. The provider's own handler would wait for half a minute.
            shutdown_on_exit=False,
            id_generator=ids,
        )
    except ValueError as error:
        exporter.shutdown()
        msg = f"OpenTelemetry can't use its environment: {error}"
        raise ConfigError(msg) from error
    return ProviderParts(queue, batch, delay, exporter, provider)


def checked_resource(address: Address, environ: Mapping[str, str]) -> Resource | None:
    """Make sure that a process with this environment can send to ``address``; nothing is contacted.

    Returns:
        What the spans come from: this process. None where OpenTelemetry is switched off, so that there are no spans.

    Raises:
        ConfigError: it can't; as :class:`~.otel_delivery.OwnDelivery` would say.
    """
    resource = _resource(repeatable=False)
    parts = prepare(address, environ, None, resource)
    parts.exporter.shutdown()
    return None if isinstance(tracer_of(parts.provider), NoOpTracer) else resource


def _resource(*, repeatable: bool) -> Resource:
    # What is given here outranks the environment, so nothing that OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say is.
    said = OTELResourceDetector().detect().attributes
    ours = {SERVICE_NAME: DEFAULT_SERVICE}
    if repeatable:
        ours[SERVICE_INSTANCE_ID] = VIRTUAL_INSTANCE
    return Resource.create({name: value for name, value in ours.items() if name not in said})
