"""What a row of the catalogue looks like."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """The kinds of Prometheus that are used. Info metrics are gauges at 1: multiprocess mode has no others."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """What a number counts in. Base units only, as Prometheus and OpenTelemetry ask."""

    SECONDS = "s"
    ONE = "1"

    @property
    def suffix(self) -> str:
        """What it adds to a metric's name: ``_seconds``, or nothing for plain numbers."""
        return "_seconds" if self is Unit.SECONDS else ""


class Track(StrEnum):
    """The row of a timeline that a span is drawn on."""

    STEP = "step"
    HOST = "host"
    FORWARD = "forward"
    SCHEDULE = "schedule"


class Category(StrEnum):
    """The phases of a step, each one NVTX category with one colour."""

    SCHEDULE = "schedule"
    FORWARD = "forward"
    METADATA = "metadata"
    REPLAY = "replay"
    PUBLISH = "publish"
    BARRIER = "barrier"
    SPECULATIVE = "speculative"
    RESULTS = "results"


@dataclass(frozen=True, slots=True)
class Label:
    """A label of a metric."""

    name: str
    help: str
    values: tuple[str, ...] | None = None
    """All values that it can have, so that an exporter seeds them; None where the set is open."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, by the name that a query uses."""

    name: str
    kind: MetricKind
    unit: Unit
    labels: tuple[Label, ...]
    help: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram in the metric's unit, without +Inf; empty for the other kinds."""

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in the order in which children are made."""
        return tuple(label.name for label in self.labels)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a span. Its name is under ``sglang_fence.``."""

    name: str
    type: type[str | int | float | bool]
    help: str
    unit: Unit = Unit.ONE
    values: tuple[str, ...] | None = None
    """All values that a text can have; None where the set is open, or the value is a number."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span, as a trace or a timeline shows it."""

    name: str
    track: Track
    help: str
    attributes: tuple[Attribute, ...]
    """Those that it may carry; one without a value on a step is left out there."""


@dataclass(frozen=True, slots=True)
class NvtxRange:
    """A range in the NVTX domain. Its payload is the number of the step."""

    name: str
    category: Category
    color: int
    """ARGB."""

    help: str
