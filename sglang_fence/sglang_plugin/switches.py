"""The plugin's own switches: environment variables, read once at start. One that can't be used is warned of.

Inside a server nothing of ours may be fatal, so the default stands in for what can't be read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_fence.observe.flight.options import LONGEST_S, SHORTEST_S
from sglang_fence.observe.flight.ring import DEFAULT_STEPS, MAX_STEPS
from sglang_fence.observe.profiling import StepRange
from sglang_fence.observe.sampling import DEFAULT_TIMING_EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_WATCHDOG_S = 120.0
"""Less than what SGLang's own watchdog waits for by default before it ends the process: 300 s."""


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


def _seconds(raw: str) -> float:
    value = float(raw)
    if value and not SHORTEST_S <= value <= LONGEST_S:
        msg = f"write seconds, {SHORTEST_S:g} to {LONGEST_S:g}, or 0"
        raise ValueError(msg)
    return value


def _flight_steps(raw: str) -> int:
    value = count(raw)
    if value > MAX_STEPS:
        msg = f"write 0 to {MAX_STEPS}"
        raise ValueError(msg)
    return value


class Row(NamedTuple):
    """A row of the table in the documentation."""

    name: str
    field: str
    """Of :class:`Switches`."""
    parse: Callable[[str], object]
    default: str
    about: str


SWITCHES = (
    Row("SGLANG_FENCE", "on", _boolean, "1", "0 switches the plugin off: nothing is hooked."),
    Row(
        "SGLANG_FENCE_TIMING_EVERY",
        "timing_every",
        count,
        str(DEFAULT_TIMING_EVERY),
        "Device times are taken on each so-many-th step; 0: never.",
    ),
    Row(
        "SGLANG_FENCE_TRACE_RATIO",
        "trace_ratio",
        ratio,
        "0",
        "Share of steps, 0 to 1, that OpenTelemetry spans are made of.",
    ),
    Row("SGLANG_FENCE_NVTX", "nvtx", _boolean, "0", "1 puts NVTX ranges around the phases of a step."),
    Row(
        "SGLANG_FENCE_METRICS_PORT",
        "metrics_port",
        _port,
        "",
        "Without --enable-metrics: each scheduler serves metrics of its own at this port plus its rank.",
    ),
    Row(
        "SGLANG_FENCE_PROFILE_STEPS",
        "profile_steps",
        StepRange.parse,
        "",
        "N:M tells the CUDA profiler to begin at step N and to end behind step M, for nsys --capture-range.",
    ),
    Row(
        "SGLANG_FENCE_CONTROL",
        "control",
        Path,
        "",
        'A JSON file, looked at once a second: {"timing_every": 4, "trace_ratio": 0.01, "profile_seconds": 10} takes '
        "effect on a live server.",
    ),
    Row(
        "SGLANG_FENCE_FLIGHT_RECORDER",
        "flight_recorder",
        _flight_steps,
        str(DEFAULT_STEPS),
        "Steps that the flight recorder keeps; 0: there is none, and SIGUSR2 is left alone.",
    ),
    Row(
        "SGLANG_FENCE_FLIGHT_DIR",
        "flight_dir",
        Path,
        "",
        "Where its dumps go; not set: the system's folder for temporary files.",
    ),
    Row(
        "SGLANG_FENCE_WATCHDOG",
        "watchdog",
        _seconds,
        f"{DEFAULT_WATCHDOG_S:g}",
        "It dumps when a step hasn't moved for so many seconds, once a stall; 0: never.",
    ),
    Row(
        "SGLANG_FENCE_NATIVE",
        "native",
        _boolean,
        "1",
        "0 leaves the parts compiled from C alone: Python code does what they do, in a few microseconds more.",
    ),
)
"""All of them, in the order of the documentation."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Their values."""

    on: bool = True
    timing_every: int = DEFAULT_TIMING_EVERY
    trace_ratio: float = 0.0
    nvtx: bool = False
    metrics_port: int | None = None
    profile_steps: StepRange | None = None
    control: Path | None = None
    flight_recorder: int = DEFAULT_STEPS
    flight_dir: Path | None = None
    watchdog: float = DEFAULT_WATCHDOG_S
    native: bool = True
    """Read where a compiled part is looked for: :mod:`sglang_fence.native`."""

    @property
    def traces(self) -> bool:
        """Whether spans may be asked for: by the ratio, or later through the control file."""
        return self.trace_ratio > 0.0 or self.control is not None

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Switches:
        """Read them; one that can't be used is its default."""
        source = os.environ if environ is None else environ
        return cls(**_read(source)[0])


def problems(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what can't be used, by the variable, and why."""
    return _read(os.environ if environ is None else environ)[1]


def _read(environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for row in SWITCHES:
        raw = environ.get(row.name, "").strip()
        if raw:
            try:
                values[row.field] = row.parse(raw)
            except ValueError as error:
                wrong[row.name] = f"{raw!r} can't be used ({error}), and is taken as {row.default or 'not set'}"
    return values, wrong
