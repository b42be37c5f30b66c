"""A plugin of its own, for tests: forces every fence coarse, or doesn't, while a scheduler serves.

SGLang reads the switch from its environment at each barrier, and here the environment is changed: what the file
``force`` says, ``1`` or ``0``, is so once the file ``forced`` says the same. So one engine is compared with itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

SWITCH = "SGLANG_FORCE_COARSE_WAR_BARRIER"
INTERVAL_S = 0.1


def register() -> None:
    """Watch the file in the process that applies barriers."""
    folder = os.environ.get("FENCE_TEST_DUMP")
    if not folder:
        return
    registry: Any = import_module("sglang.srt.plugins.hook_registry")

    def begin(original: Any, scheduler: Any) -> Any:  # noqa: ANN401 - SGLang's scheduler
        threading.Thread(target=_watch, args=(Path(folder),), daemon=True).start()
        return original(scheduler)

    registry.HookRegistry.register(
        "sglang.srt.managers.scheduler.Scheduler.run_event_loop", begin, registry.HookType.AROUND
    )


def _watch(folder: Path) -> None:
    done = ""
    while True:
        threading.Event().wait(INTERVAL_S)
        with contextlib.suppress(OSError):
            asked = (folder / "force").read_text(encoding="utf-8")
            if asked not in {"", done}:
                os.environ[SWITCH] = done = asked
                (folder / "forced").write_text(asked, encoding="utf-8")
