"""The plugin's own switches: environment variables, read once at start. One that can't be used is warned of and left.

Inside a server nothing of ours may be fatal, so the default stands in for what can't be read.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

TIMING_EVERY = 16
"""Device times of each sixteenth step: about 5 µs of host time there, nothing elsewhere."""

FLIGHT_STEPS = 256

_Value = TypeVar("_Value")
_Default = TypeVar("_Default")


class Row(NamedTuple):
    """A row of the table in the documentation."""

    name: str
    default: str
    about: str


SWITCHES = (
    Row("SGLANG_FENCE", "1", "0 switches the plugin off: nothing is hooked."),
    Row("SGLANG_FENCE_TIMING_EVERY", str(TIMING_EVERY), "Device times are taken on each so-many-th step; 0: never."),
    Row("SGLANG_FENCE_TRACE_RATIO", "0", "Share of steps, 0 to 1, that OpenTelemetry spans are made of."),
    Row("SGLANG_FENCE_NVTX", "0", "1 puts NVTX ranges around the phases of a step."),
    Row("SGLANG_FENCE_FLIGHT_STEPS", str(FLIGHT_STEPS), "Steps that the flight recorder keeps; 0: no recorder."),
    Row(
        "SGLANG_FENCE_METRICS_PORT",
        "",
        "Without --enable-metrics: each scheduler serves metrics of its own at this port plus its rank.",
    ),
    Row(
        "SGLANG_FENCE_CONTROL",
        "",
        'A JSON file, looked at once a second: {"timing_every": 4, "trace_ratio": 0.01} takes effect on a live server.',
    ),
)
"""All of them, in the order of the documentation."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Their values."""

    on: bool = True
    timing_every: int = TIMING_EVERY
    trace_ratio: float = 0.0
    nvtx: bool = False
    flight_steps: int = FLIGHT_STEPS
    metrics_port: int | None = None
    control: Path | None = None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Switches:
        """Read them; what can't be used is its default, with a warning."""
        source = os.environ if environ is None else environ
        return cls(
            on=_read(source, "SGLANG_FENCE", _boolean, default=True),
            timing_every=_read(source, "SGLANG_FENCE_TIMING_EVERY", count, default=TIMING_EVERY),
            trace_ratio=_read(source, "SGLANG_FENCE_TRACE_RATIO", ratio, default=0.0),
            nvtx=_read(source, "SGLANG_FENCE_NVTX", _boolean, default=False),
            flight_steps=_read(source, "SGLANG_FENCE_FLIGHT_STEPS", count, default=FLIGHT_STEPS),
            metrics_port=_read(source, "SGLANG_FENCE_METRICS_PORT", _port, default=None),
            control=_read(source, "SGLANG_FENCE_CONTROL", Path, default=None),
        )


def _read(
    environ: Mapping[str, str], name: str, parse: Callable[[str], _Value], *, default: _Default
) -> _Value | _Default:
    raw = environ.get(name, "").strip()
    if raw:
        try:
            return parse(raw)
        except ValueError as error:
            logger.warning("sglang-fence: %s=%r can't be used (%s): it is taken as %r", name, raw, error, default)
    return default


def _boolean(raw: str) -> bool:
    value = raw.lower()
    if value in {"1", "true", "yes", "y", "on"}:
        return True
    if value in {"0", "false", "no", "n", "off"}:
        return False
    msg = "write 1 or 0"
    raise ValueError(msg)


def count(raw: str | int) -> int:
    """Return a number of steps, 0 or more.

    Raises:
        ValueError: it is none.
    """
    value = int(raw)
    if value < 0:
        msg = "write 0 or more"
        raise ValueError(msg)
    return value


def ratio(raw: str | float) -> float:
    """Return a share from 0 to 1.

    Raises:
        ValueError: it is none.
    """
    value = float(raw)
    if not 0.0 <= value <= 1.0:
        msg = "write a number from 0 to 1"
        raise ValueError(msg)
    return value


def _port(raw: str) -> int:
    value = int(raw)
    if not 0 < value < 65536:  # noqa: PLR2004 - ports
        msg = "write a port, 1 to 65535"
        raise ValueError(msg)
    return value
