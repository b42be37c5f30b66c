"""The dashboards' JSON, as it lies in this package."""

from __future__ import annotations

from importlib.resources import files


def dashboards() -> dict[str, str]:
    """Return the JSON of each dashboard by file name, in alphabetical order."""
    folder = files("sglang_fence.mixin") / "dashboards"
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".json")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}
