"""How a dump lies in a file: JSON with a format's name and version, read back strictly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.errors import DumpError
from sglang_fence.observe.flight.facts import Cause, Clock, Dump, ProgressFacts, StepFacts
from sglang_fence.observe.flight.fields import Fields
from sglang_fence.observe.record import Phase

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "sglang-fence-flight"
FORM_VERSION = 1
"""Rises when a reader of the version before would misunderstand, or not understand, what is written."""

MAX_BYTES = 256 * 1024 * 1024
"""No dump is as large: the largest ring makes about 50 MB."""

_MODES = {mode.value: mode for mode in ForwardMode}
_ENDS = {ends.name: ends for ends in SharedReadEnds}
_FENCES = {fence.value: fence for fence in FenceKind}
_REASONS = {reason.value: reason for reason in FallbackReason}
_CAUSES = {cause.value: cause for cause in Cause}
_CLOCKS = {clock.value: clock for clock in Clock}


def to_text(dump: Dump) -> str:
    """Return the content of a dump's file: a line for each step."""
    head = {
        "format": FORMAT,
        "form_version": FORM_VERSION,
        "version": dump.version,
        "rank": dump.rank,
        "pid": dump.pid,
        "cause": dump.cause.value,
        "detail": dump.detail,
        "wall_ns": dump.wall_ns,
        "now_ns": dump.now_ns,
        "clock": dump.clock.value,
        "capacity": dump.capacity,
        "progress": {
            "awaited": dump.progress.awaited,
            "in_hand": dump.progress.in_hand,
            "timed": dump.progress.timed,
            "in_order": dump.progress.in_order,
            "settled_ns": dump.progress.settled_ns,
        },
        "stack": list(dump.stack),
    }
    opening = json.dumps(head, indent=1)[:-2]
    steps = ",\n  ".join(json.dumps(_step_to_json(step)) for step in dump.steps)
    return f'{opening},\n "steps": [\n  {steps}\n ]\n}}\n'


def read(path: Path) -> Dump:
    """Read a dump.

    Raises:
        DumpError: the file can't be read, isn't a dump, is one of another version, or is damaged.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            msg = f"{path}: larger than any dump of a flight recorder; give a file that one wrote"
            raise DumpError(msg)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"{path}: can't be read ({error.strerror}); give the path of a dump of the flight recorder"
        raise DumpError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{path}: not a text file; give a dump of the flight recorder"
        raise DumpError(msg) from error
    return from_text(text, str(path))


def from_text(text: str, name: str = "dump") -> Dump:
    """Read the content of a dump's file, called ``name`` in errors.

    Raises:
        DumpError: as for :func:`read`.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{name}: not JSON, or not whole ({error}); give a dump of the flight recorder as it was written"
        raise DumpError(msg) from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        msg = f"{name}: JSON, but not a dump of the flight recorder; those begin with format {FORMAT!r}"
        raise DumpError(msg)
    fields = Fields(name, value)
    version = fields.number("form_version")
    if version != FORM_VERSION:
        msg = (
            f"{name}: form version {version}, and this program reads {FORM_VERSION}; "
            f"use sglang-fence {fields.text('version')}, which wrote it"
        )
        raise DumpError(msg)
    return _dump(fields)


def _dump(fields: Fields) -> Dump:
    progress = fields.nested("progress")
    return Dump(
        version=fields.text("version"),
        rank=fields.text("rank"),
        pid=fields.number("pid"),
        cause=fields.one_of("cause", _CAUSES),
        detail=fields.maybe_text("detail"),
        wall_ns=fields.number("wall_ns"),
        now_ns=fields.number("now_ns"),
        clock=fields.one_of("clock", _CLOCKS),
        capacity=fields.number("capacity"),
        progress=ProgressFacts(
            awaited=progress.maybe_number("awaited"),
            in_hand=progress.maybe_number("in_hand"),
            timed=progress.maybe_number("timed"),
            in_order=progress.truth("in_order"),
            settled_ns=progress.maybe_number("settled_ns"),
        ),
        steps=tuple(_step(step) for step in fields.objects("steps")),
        stack=fields.texts("stack"),
    )


def _step_to_json(step: StepFacts) -> dict[str, Any]:
    return {
        "step": step.step,
        "stage": step.stage.value,  # for whoever reads the file itself: it follows from the times
        "mode": step.mode.value,
        "backend": step.backend,
        "batch_size": step.batch_size,
        "tokens": step.tokens,
        "declared": step.declared.name,
        "resolved": step.resolved.name,
        "downgrade": step.downgrade,
        "fence": step.fence.value,
        "reason": None if step.reason is None else step.reason.value,
        "record": step.record,
        "event": step.event,
        "started_ns": step.started_ns,
        "launched_ns": step.launched_ns,
        "entered_ns": step.entered_ns,
        "issued_ns": step.issued_ns,
        "phases": [
            {
                "mode": phase.mode.value,
                "role": phase.role,
                "backend": phase.backend,
                "declared": phase.declared.name,
                "resolved": phase.resolved.name,
                "downgrade": phase.downgrade,
            }
            for phase in step.phases
        ],
    }


def _step(fields: Fields) -> StepFacts:
    return StepFacts(
        step=fields.number("step"),
        mode=fields.one_of("mode", _MODES),
        backend=fields.text("backend"),
        batch_size=fields.number("batch_size"),
        tokens=fields.number("tokens"),
        phases=tuple(_phase(phase) for phase in fields.objects("phases")),
        declared=fields.one_of("declared", _ENDS),
        resolved=fields.one_of("resolved", _ENDS),
        downgrade=fields.maybe_text("downgrade"),
        fence=fields.one_of("fence", _FENCES),
        reason=fields.maybe_one_of("reason", _REASONS),
        record=fields.maybe_number("record"),
        event=fields.maybe_number("event"),
        started_ns=fields.number("started_ns"),
        launched_ns=fields.maybe_number("launched_ns"),
        entered_ns=fields.maybe_number("entered_ns"),
        issued_ns=fields.maybe_number("issued_ns"),
    )


def _phase(fields: Fields) -> Phase:
    return Phase(
        mode=fields.one_of("mode", _MODES),
        role=fields.text("role"),
        backend=fields.text("backend"),
        declared=fields.one_of("declared", _ENDS),
        resolved=fields.one_of("resolved", _ENDS),
        downgrade=fields.maybe_text("downgrade"),
    )
