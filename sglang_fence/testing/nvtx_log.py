"""Reads what the NVTX tool for tests wrote, and pairs pushes with pops."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class NvtxKind(StrEnum):
    """What a process told the tool."""

    PUSH = "push"
    POP = "pop"
    MARK = "mark"
    START = "start"
    """A range that isn't bound to a thread."""
    END = "end"
    SAMPLE = "sample"
    """One value of a counter."""


class NvtxEvent(NamedTuple):
    """One event. A pop and an end say no more than their thread and domain."""

    kind: NvtxKind
    domain: str | None
    """None: the default domain."""
    thread: int
    """The operating system's number."""
    message: str | None = None
    """Its name; registered strings are resolved. Of a sample: the counter's name."""
    category: int = 0
    """0: none."""
    category_name: str | None = None
    color: int | None = None
    """ARGB."""
    payload_type: str = "none"
    """``int64``, ``double``, …; ``extended`` payloads are not read."""
    payload: int | float | None = None
    unit: str | None = None
    """Of a sample."""
    timestamp: int | None = None
    """Of a sample that came with one: ns of the tool's clock, which is CLOCK_MONOTONIC. None: it is of now."""


class NvtxRangeEvent(NamedTuple):
    """A push with its pop."""

    push: NvtxEvent
    depth: int
    """Ranges of the same thread and domain around it."""
    first: int
    """Place of the push among the events."""
    last: int
    """Place of the pop."""


_FLOATS = {"double", "float"}


def read_nvtx_log(path: Path, domain: str | None = None) -> list[NvtxEvent]:
    """Read a log of the tool, in the order in which events came.

    Args:
        path: the file that ``SGLANG_FENCE_NVTX_LOG`` named.
        domain: only events of this domain; None: all, since other libraries of the process use NVTX as well.

    Raises:
        FileNotFoundError: the tool wasn't attached, or the process made no NVTX call.
        ValueError: a line isn't one of the tool's; the message says which.
    """
    events: list[NvtxEvent] = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            event = _event(json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{path}, line {number}: not a line of the NVTX injection library ({error})"
            raise ValueError(msg) from error
        if domain is None or event.domain == domain:
            events.append(event)
    return events


def _event(row: dict[str, Any]) -> NvtxEvent:
    kind = NvtxKind(row.pop("event"))
    if row.get("payload_type") in _FLOATS:
        row["payload"] = float(row["payload"])
    return NvtxEvent(kind, **row)


def nvtx_ranges(events: Iterable[NvtxEvent]) -> list[NvtxRangeEvent]:
    """Pair each push with its pop, in the order of the pushes.

    Raises:
        AssertionError: a pop has no push, or a push no pop: ranges aren't balanced.
    """
    stacks: dict[tuple[int, str | None], list[tuple[int, NvtxEvent]]] = {}
    found: list[NvtxRangeEvent] = []
    for place, event in enumerate(events):
        stack = stacks.setdefault((event.thread, event.domain), [])
        if event.kind is NvtxKind.PUSH:
            stack.append((place, event))
        elif event.kind is NvtxKind.POP:
            if not stack:
                msg = f"event {place} pops in the domain {event.domain!r}, where nothing is pushed"
                raise AssertionError(msg)
            first, push = stack.pop()
            found.append(NvtxRangeEvent(push, len(stack), first, place))
    left = [str(push.message) for stack in stacks.values() for _, push in stack]
    if left:
        msg = f"pushed and never popped: {', '.join(left)}"
        raise AssertionError(msg)
    return sorted(found, key=lambda found_range: found_range.first)
