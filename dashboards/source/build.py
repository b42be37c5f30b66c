"""All dashboards as JSON: the same bytes at each build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.source.declarations import declarations
from dashboards.source.fleet import fleet
from dashboards.source.server import server

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard


def built() -> dict[str, str]:
    """Return the JSON by file name."""
    return {f"{board.uid}.json": encoded(board) for board in (make().build() for make in (fleet, server, declarations))}


def encoded(board: Dashboard) -> str:
    """Return one as Grafana imports it. Panels are numbered in order, since the SDK leaves that open."""
    for number, panel in enumerate(board.panels or (), 1):
        panel.id_val = number
    return JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"
