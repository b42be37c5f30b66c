"""``python -m dashboards.source [DIR]``: write the dashboards' JSON, by default where it is packaged."""

from __future__ import annotations

import sys
from pathlib import Path

import sglang_fence.mixin
from dashboards.source.build import built

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(sglang_fence.mixin.__file__).parent / "dashboards")
    for name, text in built().items():
        (folder / name).write_text(text, encoding="utf-8")
