"""A plugin of its own, for tests: writes the ledger into a file when it is asked to, where nothing serves metrics.

It is asked by what is written into the file ``ask`` beside it, and answers with that in the dump. An engine that is
shut down kills its schedulers, so that there is no end at which it could be written; and writing it all the time would
cost what is measured.
"""

# ruff: noqa: ANN401 - what it wraps is passed through

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_fence.sglang_plugin import session as plugin

if TYPE_CHECKING:
    from sglang_fence.observe.ledger import Durations, Ledger

INTERVAL_S = 0.1


def register() -> None:
    """Nothing is left to do."""


def _durations(durations: Durations) -> dict[str, object]:
    return {"count": durations.count, "sum_us": durations.sum_us, "buckets": list(durations.counts)}


def as_json(ledger: Ledger) -> dict[str, Any]:
    """Return all that the ledger says."""
    health, facts = ledger.health, ledger.facts
    cells = [
        {
            "mode": kind.mode.value,
            "backend": kind.backend,
            "declared": kind.declared.name,
            "resolved": kind.resolved.name,
            "fence": kind.fence.value,
            "reason": kind.reason,
            "steps": cell.steps,
            "slack": _durations(cell.slack),
            "wait": _durations(cell.wait),
            "forward": _durations(cell.forward),
            "lost_slack_us": cell.lost_slack_us,
            "lost_us": cell.lost_us,
        }
        for kind, cell in list(ledger.cells.items())
    ]
    phases = [
        {"mode": phase.mode.value, "runner": phase.role, "resolved": phase.resolved.name, "count": count}
        for phase, count in ledger.phases.items()
    ]
    return {
        "cells": cells,
        "phases": phases,
        "gaps": {last: _durations(gaps) for last, gaps in ledger.gaps.items()},
        "config": dict(facts.config),
        "barrier": [facts.barrier_enabled, facts.barrier_why],
        "timing": [facts.timing_enabled, facts.timing_why, facts.timing_every],
        "calibration_us": health.calibration_us,
        "cost_ns": dict(health.cost_ns),
        "errors": {hook: count for hook, count in health.errors.items() if count},
        "unresolved": dict(health.unresolved),
        "clamps": dict(ledger.clamps),
        "hooks": dict(Counter(health.hooks.values())),
    }


def _answer(ledger: Ledger, path: Path) -> None:
    """Look now and then whether it is asked for, and write it."""
    question, partial = path.with_name("ask"), path.with_suffix(".partial")
    answered = ""
    while True:
        threading.Event().wait(INTERVAL_S)
        with contextlib.suppress(OSError):
            asked = question.read_text(encoding="utf-8")
            if asked not in {"", answered}:
                answered = asked
                partial.write_text(json.dumps({**as_json(ledger), "asked": asked}))
                partial.replace(path)


def _wrap(session: Any) -> None:
    original = session.loop_begins

    def loop_begins(self: Any, scheduler: Any, loop: Any) -> None:
        original(self, scheduler, loop)
        path = Path(os.environ["FENCE_TEST_DUMP"]) / f"ledger.{os.getpid()}.json"
        threading.Thread(target=_answer, args=(self.ledger, path), daemon=True).start()

    session.loop_begins = loop_begins


if os.environ.get("FENCE_TEST_DUMP"):
    _wrap(plugin.Session)
