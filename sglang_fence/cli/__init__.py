"""The command line, ``sglang-fence``: a file a command."""

from __future__ import annotations

from sglang_fence.cli.entry import main

__all__ = ["main"]
