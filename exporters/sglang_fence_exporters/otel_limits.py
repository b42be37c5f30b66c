"""The bounds of what waits, and of the end, from the standard ``OTEL_BSP_*`` variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from opentelemetry.sdk.environment_variables import OTEL_BSP_EXPORT_TIMEOUT

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUE_SPANS = 2048
BATCH_SPANS = 512
DELAY_MS = 5000
END_MS = 5000
"""How long the end of a run may take, at the most; the variable is ``OTEL_BSP_EXPORT_TIMEOUT``."""

GRACE_S = 0.5
"""Of it, what is left for giving up in good order, at the most."""


def end_timeout_s(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long the end of a run may take, in seconds.

    Raises:
        ConfigError: the variable isn't a positive whole number of milliseconds.
    """
    return positive(environ, OTEL_BSP_EXPORT_TIMEOUT, END_MS) / 1000


def grace_s(end_timeout: float) -> float:
    """Return how much of the end's time is left for giving up in good order, in seconds."""
    return min(GRACE_S, end_timeout / 2)


def positive(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return what the variable ``name`` says; ``default`` where it is unset or empty.

    Raises:
        ConfigError: it isn't a positive whole number.
    """
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
