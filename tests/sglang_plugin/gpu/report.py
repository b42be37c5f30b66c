"""What a GPU run found: printed as it comes, and written to a file each time, so that no time limit loses it."""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class Report:
    """Findings, in order.

    Args:
        path: the file; it is JSON after each finding.
        budget_s: seconds that the whole run may take.
    """

    def __init__(self, path: Path, budget_s: float) -> None:
        self._path = path
        self._begun = time.monotonic()
        self._budget_s = budget_s
        self._claims: list[dict[str, Any]] = []
        self._figures: dict[str, Any] = {}
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begun

    @property
    def left_s(self) -> float:
        """Seconds until the budget is spent."""
        return self._budget_s - self.elapsed_s

    @property
    def wrong(self) -> list[str]:
        """The claims that don't hold."""
        return [claim["claim"] for claim in self._claims if not claim["holds"]]

    def claim(self, text: str, *, holds: bool, **figures: object) -> None:
        """Say whether something is so, and the figures behind it."""
        found = plain(figures)
        self._claims.append({"claim": text, "holds": holds, "at_s": round(self.elapsed_s, 1), "figures": found})
        self._tell(f"{'ok   ' if holds else 'WRONG'} {text}", found)

    def note(self, name: str, **figures: object) -> None:
        """Keep figures that claim nothing."""
        found = plain(figures)
        self._figures.setdefault(name, []).append(found)
        self._tell(f"      {name}", found)

    def _tell(self, text: str, found: dict[str, Any]) -> None:
        print(f"[{self.elapsed_s:5.1f} s] {text} {json.dumps(found, default=str)}", flush=True)
        content = {"seconds": round(self.elapsed_s, 1), "claims": self._claims, "figures": self._figures}
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(content, default=str, indent=1) + "\n", encoding="utf-8")
        partial.replace(self._path)


def plain(figures: dict[Any, Any]) -> dict[str, Any]:
    """Return figures with keys that JSON takes: several words joined by a space."""
    return {
        " ".join(str(part) for part in key) if isinstance(key, tuple) else str(key): (
            plain(value) if isinstance(value, dict) else value
        )
        for key, value in figures.items()
    }
