"""A plugin of its own, for tests: forces every fence coarse, or doesn't, while a scheduler serves.

SGLang reads the switch from its environment at each barrier, and here the environment is changed: what the file
``force`` says is so once the file ``forced`` says the same. So one engine is compared with itself.

``1``: coarse. ``0``: not. ``16``, or another number above one: coarse for so many decodes, then not for so many, and so
on. The moments of those barriers are added to the file ``moments`` as soon as another of these is asked for, a line
each: ``0`` or ``1`` for whether this one is forced coarse, and the host's clock in ns.
"""

# ruff: noqa: ANN401 - what SGLang hands over has no types

from __future__ import annotations

import contextlib
import os
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

SWITCH = "SGLANG_FORCE_COARSE_WAR_BARRIER"
INTERVAL_S = 0.1


class _Alternation:
    """Forces some decodes and others not.

    Attributes:
        run: decodes that are alike in one go; 0: none is forced here.
        moments: of each, whether it was forced, and when.
    """

    def __init__(self) -> None:
        self.run = 0
        self.moments: list[tuple[int, int]] = []

    def barrier(self, original: Any, scheduler: Any) -> Any:
        """Decide what this barrier is."""
        run = self.run
        if run and scheduler.cur_batch_for_debug.forward_mode.name == "DECODE":
            forced = 1 - len(self.moments) // run % 2
            os.environ[SWITCH] = str(forced)
            self.moments.append((forced, time.perf_counter_ns()))
        return original(scheduler)


def register() -> None:
    """Watch the file in the process that applies barriers."""
    folder = os.environ.get("FENCE_TEST_DUMP")
    if not folder:
        return
    registry: Any = import_module("sglang.srt.plugins.hook_registry")
    alternation = _Alternation()

    def begin(original: Any, scheduler: Any) -> Any:
        threading.Thread(target=_watch, args=(Path(folder), alternation), daemon=True).start()
        return original(scheduler)

    hooks = registry.HookRegistry
    hooks.register("sglang.srt.managers.scheduler.Scheduler.run_event_loop", begin, registry.HookType.AROUND)
    hooks.register(
        "sglang.srt.managers.scheduler.Scheduler._apply_war_barrier", alternation.barrier, registry.HookType.AROUND
    )


def _watch(folder: Path, alternation: _Alternation) -> None:
    done = ""
    while True:
        threading.Event().wait(INTERVAL_S)
        with contextlib.suppress(OSError):
            asked = (folder / "force").read_text(encoding="utf-8")
            if asked not in {"", done}:
                _obey(folder, alternation, int(asked))
                (folder / "forced").write_text(done := asked, encoding="utf-8")


def _obey(folder: Path, alternation: _Alternation, asked: int) -> None:
    alternation.run = 0
    if moments := alternation.moments:
        lines = [f"{forced} {ns}\n" for forced, ns in moments]
        with (folder / "moments").open("a", encoding="utf-8") as out:
            out.writelines(lines)
        alternation.moments = []
    if asked > 1:
        alternation.run = asked
    elif asked:
        os.environ[SWITCH] = "1"
    else:
        os.environ.pop(SWITCH, None)  # as in a server whose operator never heard of it
