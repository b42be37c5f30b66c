"""A plugin of its own, for tests: forces every fence coarse, or doesn't, while a scheduler serves.

SGLang reads the switch from its environment at each barrier, and here the environment is changed: what the file
``force`` says is so once the file ``forced`` says the same. So one engine is compared with itself.

``1``: coarse. ``0``: not. ``16``, or another number above one: coarse for so many decodes, then not for so many, and so
on; ``-16``: the other way about. How long each of those took on the device is in the file ``took`` as soon as another
of these is asked for, a line each: ``0`` or ``1`` for whether its fence was forced coarse, and the µs from the end of
its forward, which that fence may wait for, to the end of the next.
"""

# ruff: noqa: ANN401 - what SGLang hands over has no types

from __future__ import annotations

import contextlib
import os
import threading
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

SWITCH = "SGLANG_FORCE_COARSE_WAR_BARRIER"
INTERVAL_S = 0.1


class _Alternation:
    """Forces some decodes and others not.

    Attributes:
        run: decodes that are alike in one go, below zero where the first aren't forced; 0: none is forced here.
        ends: of each, whether it was forced, and the event at its end.
    """

    def __init__(self) -> None:
        self.run = 0
        self.ends: list[tuple[int, Any]] = []
        self._event: Any = import_module("torch").cuda.Event

    def barrier(self, original: Any, scheduler: Any) -> Any:
        """Note what this barrier is, and decide what the next one will be.

        Whoever else hooks it may have looked at the switch before: it is changed behind it.
        """
        run = self.run
        if not run or scheduler.cur_batch_for_debug.forward_mode.name != "DECODE":
            return original(scheduler)
        event = self._event(enable_timing=True)
        event.record(scheduler.forward_stream)
        self.ends.append((int(os.environ[SWITCH]), event))
        result = original(scheduler)
        self.decide(run)
        return result

    def decide(self, run: int) -> None:
        """Force the next decode, or don't."""
        os.environ[SWITCH] = str((len(self.ends) // abs(run) + (run > 0)) % 2)

    def took_us(self) -> list[tuple[int, float]]:
        """Return for each step but the last whether it was forced, and how long it took; forget them."""
        ends, self.ends = self.ends, []
        if ends:
            ends[-1][1].synchronize()
        return [(forced, end.elapsed_time(following) * 1e3) for (forced, end), (_, following) in pairwise(ends)]


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
    with (folder / "took").open("w", encoding="utf-8") as out:
        out.writelines(f"{forced} {us:.3f}\n" for forced, us in alternation.took_us())
    if abs(asked) > 1:
        alternation.decide(asked)
        alternation.run = asked
    elif asked:
        os.environ[SWITCH] = "1"
    else:
        os.environ.pop(SWITCH, None)  # as in a server whose operator never heard of it
