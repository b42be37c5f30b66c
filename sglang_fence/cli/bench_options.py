"""From the options of ``sglang-fence bench`` to what its benchmarks take."""

from __future__ import annotations

import math
import re
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sglang_fence.bench.fencing import AFTER_US, READS_US, Sweep
from sglang_fence.bench.random_model import ModelSize
from sglang_fence.bench.runtime import RuntimePlan
from sglang_fence.errors import ConfigError
from sglang_fence.observe.exporting import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LONGEST_MS = 1_000.0
_SIZE = re.compile(r"[1-9][0-9]{0,8}")
"""With more digits it is a slip: no memory holds so many requests."""


def numbers(option: str, text: str) -> list[float]:
    """Read numbers of 0 or more, separated by commas.

    Raises:
        ConfigError: one is none.
    """
    found: list[float] = []
    for word in text.split(","):
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            msg = f"{option} {text}: {word.strip()!r} is no number of 0 or more; write them like 0.1,0.25"
            raise ConfigError(msg)
        found.append(number)
    return found


def sizes(option: str, text: str) -> list[int]:
    """Read whole numbers of 1 or more, separated by commas.

    Raises:
        ConfigError: one is none.
    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if _SIZE.fullmatch(word) is None:
            msg = f"{option} {text}: {word!r} is no size; write whole numbers from 1 on, like 1,8,32"
            raise ConfigError(msg)
    return [int(word) for word in words]


def make_sweep(
    *,
    decode_ms: Sequence[float],
    prepare_ms: Sequence[float],
    schedule_us: float,
    closer_ms: float,
    closer_schedule_us: Sequence[float],
    rounds: int,
    block_ms: float,
) -> Sweep:
    """Put the options of ``bench fence`` together, in µs.

    Raises:
        ConfigError: a decode shorter than its fixed parts, or anything longer than a second.
    """
    closer = [] if closer_ms == 0 else [closer_ms]
    for option, times in (("--decode-ms", decode_ms), ("--closer-ms", closer)):
        for time in times:
            if time * 1e3 <= READS_US + AFTER_US:
                msg = (
                    f"{option} {time:g}: metadata preparation and sampling alone take {(READS_US + AFTER_US) / 1e3:g} "
                    "ms; give more"
                )
                raise ConfigError(msg)
    longest = [
        ("--decode-ms", max(decode_ms)),
        ("--prepare-ms", max(prepare_ms)),
        ("--schedule-us", schedule_us / 1e3),
        ("--closer-ms", closer_ms),
        ("--closer-schedule-us", max(closer_schedule_us) / 1e3),
    ]
    for option, time in longest:
        if time > _LONGEST_MS:
            msg = f"{option}: {time:g} ms is no part of a decode step; give {_LONGEST_MS:g} ms or less"
            raise ConfigError(msg)
    return Sweep(
        decode_us=[_us(time) for time in decode_ms],
        prepare_us=[_us(time) for time in prepare_ms],
        schedule_us=schedule_us,
        closer_decode_us=_us(closer_ms) if closer_ms else None,
        closer_schedule_us=closer_schedule_us,
        rounds=rounds,
        block_us=block_ms * 1e3,
    )


def make_plan(
    *,
    cuda: bool,
    hidden_size: int | None,
    layers: int | None,
    attention: str,
    batches: Sequence[int] | None,
    new_tokens: int | None,
    rounds: int,
) -> RuntimePlan:
    """Put the options of ``bench runtime`` together; what is left out depends on the device.

    Raises:
        ConfigError: sizes that can't be had.
    """
    hidden, depth, vocab, tokens, dtype = (1024, 8, 32_000, 128, "bfloat16") if cuda else (128, 2, 512, 12, "float32")
    return RuntimePlan(
        size=ModelSize(
            hidden_size=hidden if hidden_size is None else hidden_size,
            layers=depth if layers is None else layers,
            vocab_size=vocab,
        ),
        dtype=dtype,
        attention=attention,
        batches=tuple(batches or ((1, 8, 32) if cuda else (1, 2))),
        new_tokens=tokens if new_tokens is None else new_tokens,
        rounds=rounds,
    )


def check_plot(path: Path | None) -> None:
    """Refuse a plot that can't be drawn.

    Raises:
        ConfigError: its name doesn't end in ``.svg``.
    """
    if path is not None and path.suffix.lower() != ".svg":
        msg = f"--plot {path}: plots are drawn as SVG; name the file something.svg"
        raise ConfigError(msg)


def has_exporters() -> bool:
    """Whether the exporters that ``bench observe`` switches on are installed, with what they need."""
    return {"nvtx", "otel"} <= {entry.name for entry in entry_points(group=GROUP)} and _has(
        "opentelemetry.exporter.otlp"
    )


def _has(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False


def _us(milliseconds: float) -> float:
    return round(milliseconds * 1e3, 3)
