"""``python -m sglang_fence``: the command line."""

from __future__ import annotations

from sglang_fence.cli import main

if __name__ == "__main__":
    main()
