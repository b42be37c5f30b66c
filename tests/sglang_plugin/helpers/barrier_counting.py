"""A plugin of its own, for tests: counts barriers independently, one line each, into a file for each process.

A line is the batch's mode and ``fine``, ``coarse`` or ``disabled``, by what SGLang's own two lines of code do.
"""

# ruff: noqa: ANN401 - what SGLang hands over has no types

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any


def register() -> None:
    """Hook the barrier, if a test asks for it."""
    folder = os.environ.get("FENCE_TEST_COUNTS")
    if not folder:
        return
    registry: Any = import_module("sglang.srt.plugins.hook_registry")
    switches: Any = import_module("sglang.srt.environ").envs
    out = (Path(folder) / f"barriers.{os.getpid()}").open("a", buffering=1, encoding="utf-8")

    def count(original: Any, scheduler: Any) -> Any:
        event = scheduler.model_worker.last_shared_read_runner.shared_read_done_event
        if not scheduler._war_barrier_enabled:
            fence = "disabled"
        else:
            fence = "coarse" if event is None or switches.SGLANG_FORCE_COARSE_WAR_BARRIER.get() else "fine"
        out.write(f"{scheduler.cur_batch_for_debug.forward_mode.name} {fence}\n")
        return original(scheduler)

    registry.HookRegistry.register(
        "sglang.srt.managers.scheduler.Scheduler._apply_war_barrier", count, registry.HookType.AROUND
    )
