"""Labels that all series of a process carry beside the catalogue's: a model's name, ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sglang_fence.catalogue import METRICS
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_TAKEN = {"le", "pid"} | {name for metric in METRICS for name in metric.label_names}


def constant_labels(labels: Mapping[str, object] | None) -> dict[str, str]:
    """Return ``labels`` as text.

    Raises:
        ConfigError: a name that Prometheus doesn't take, or that a metric has already.
    """
    for name in labels or {}:
        if _NAME.fullmatch(name) is None:
            msg = f"{name!r} can't be a label: use letters, digits and _, and no digit or two _ in front"
            raise ConfigError(msg)
        if name in _TAKEN:
            msg = f"the label {name!r} is one of the metrics' own: give the constant label another name"
            raise ConfigError(msg)
    return {name: str(value) for name, value in (labels or {}).items()}
