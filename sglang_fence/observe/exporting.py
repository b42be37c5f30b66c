"""How the core finds exporters without importing one: through the entry-point group ``sglang_fence.exporters``.

An entry point names a *factory*: it takes an :class:`ExportContext` and returns an observer. It checks what it was
given (a port that is taken, an address, a path) and raises :class:`~sglang_fence.errors.ConfigError`: it is called
before a model is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError
from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sglang_fence.observe.ledger import Ledger

GROUP = "sglang_fence.exporters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportContext:
    """What a factory may use. A field that isn't an exporter's is none of its business."""

    ledger: Ledger
    """Counts and histograms of all steps, for exporters that are asked (Prometheus)."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Constant labels that every series carries beside the catalogue's, such as a model's name and ranks."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """Serve metrics here; 0: any free port; None: don't."""
    otlp: str | None = None
    """Where spans go, as a URL; None: where the standard ``OTEL_*`` variables say."""
    perfetto: Path | None = None
    """The trace file to write."""
    virtual_time: bool = False
    """Whether times are virtual: then identifiers are made from the step's number, not at random."""


def make_exporter(name: str, context: ExportContext) -> Observer:
    """Make the exporter called ``name``.

    Raises:
        ConfigError: there is none, a package that it needs is missing, or it can't use what the context says.
    """
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    entry = found.get(name)
    if entry is None:
        msg = f"no exporter {name!r} is installed: known are {', '.join(sorted(found)) or 'none'}"
        raise ConfigError(msg)
    try:
        factory = entry.load()
    except ImportError as error:
        msg = f"the exporter {name!r} needs a package that isn't installed ({error}): pip install sglang-fence[{name}]"
        raise ConfigError(msg) from error
    exporter = factory(context)
    if not isinstance(exporter, Observer):
        msg = f"the exporter {name!r} is no sglang_fence observer but {type(exporter).__name__}"
        raise ConfigError(msg)
    return exporter
