"""Dashboards read back: their panels and queries, with Grafana's variables filled in."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from sglang_fence.mixin.packaged import dashboards

if TYPE_CHECKING:
    from collections.abc import Iterator

Board = dict[str, Any]


class Target(NamedTuple):
    """One query of one panel."""

    board: str
    panel: str
    expr: str
    kind: str


def boards() -> dict[str, Board]:
    """Return each dashboard by uid."""
    return {board["uid"]: board for board in map(json.loads, dashboards().values())}


def panels_of(board: Board) -> list[Board]:
    """Return its panels without headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets() -> Iterator[Target]:
    """Yield every query of every panel."""
    for uid, board in boards().items():
        for panel in panels_of(board):
            for target in panel["targets"]:
                yield Target(uid, panel["title"], target["expr"], panel["type"])


def filled(expr: str, window: str = "5m") -> str:
    """Return ``expr`` as Grafana sends it where everything is chosen."""
    values = {"job": ".+", "instance": ".+", "model": ".*", "rank": ".*", "__rate_interval": window}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)
