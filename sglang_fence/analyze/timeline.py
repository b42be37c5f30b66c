"""What a capture shows around a step: our ranges on the host, and what ran on both streams, to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sglang_fence.analyze.capture import opened
from sglang_fence.analyze.graphs import graph_shapes
from sglang_fence.analyze.ranges import our_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from sglang_fence.analyze.graphs import GraphKey, GraphShape
    from sglang_fence.analyze.ranges import NamedRange
    from sglang_fence.analyze.steps import Step

_MARGIN = 0.04
"""Of a step's length, shown before and behind it."""

_MERGED = 400
"""What lies nearer together than this part of the length is drawn as one."""

_RAN = """
    SELECT start, end, graphNodeId, 0 FROM kernel WHERE globalPid = ? AND streamId = ? AND start < ? AND end > ?
    UNION ALL SELECT start, end, graphNodeId, 0 FROM copy WHERE globalPid = ? AND streamId = ? AND start < ? AND end > ?
    UNION ALL SELECT start, end, graphNodeId, 0 FROM fill WHERE globalPid = ? AND streamId = ? AND start < ? AND end > ?
    UNION ALL SELECT start, end, NULL, 1 FROM whole_graph WHERE globalPid = ? AND streamId = ? AND start < ? AND end > ?
    ORDER BY 1
"""


class Kind(StrEnum):
    """What ran."""

    EAGER = "kernels"
    PREPARATION = "preparation"
    """Nodes of a graph up to its marker."""

    GRAPH = "graph"
    """Nodes of a graph behind its marker, or of one without; a whole graph whose nodes weren't traced."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A stretch in which a stream worked. Times are in ns of the capture's clock."""

    kind: Kind
    start: int
    end: int
    count: int
    """Kernels, copies and fills in it."""


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with its surroundings, from ``start`` to ``end``."""

    step: Step
    start: int
    end: int
    host: tuple[NamedRange, ...]
    forward: tuple[Ran, ...]
    schedule: tuple[Ran, ...]


def step_views(path: Path, steps: Iterable[Step]) -> list[StepView]:
    """Return the surroundings of steps of a capture, in the given order.

    Raises:
        ConfigError: the capture can't be read.
    """
    with opened(path) as capture:
        ranges = our_ranges(capture)
        shapes = graph_shapes(capture, ranges)
        views: list[StepView] = []
        for step in steps:
            own = [found for found in ranges if found.process == step.process and found.step == step.number]
            start, end = _window(step, own)

            def ran(
                stream: int | None, window: tuple[int, int] = (start, end), process: int = step.process
            ) -> tuple[Ran, ...]:
                if stream is None:
                    return ()
                rows = capture.rows(_RAN, (process, stream, window[1], window[0]) * 4)
                return tuple(_merged(rows, shapes, process, (window[1] - window[0]) // _MERGED))

            threads = {found.thread for found in own}
            host = tuple(
                found
                for found in ranges
                if found.thread in threads and found.start < end and found.end > start and found.end > found.start
            )
            views.append(StepView(step, start, end, host, ran(step.forward_stream), ran(step.schedule_stream)))
    return views


def _window(step: Step, own: Sequence[NamedRange]) -> tuple[int, int]:
    first = [found.start for found in own if found.name in {"schedule", "launch"}]
    moments = [*first, step.began, step.waited_from, step.forward_end, step.released]
    known = [moment for moment in moments if moment is not None]
    if not known:
        return 0, 1
    start, end = min(known), max(known)
    margin = round((end - start) * _MARGIN)
    return start - margin, end + margin


def _merged(
    rows: Iterable[tuple[int, int, int | None, int]],
    shapes: Mapping[GraphKey, GraphShape],
    process: int,
    near: int,
) -> Iterable[Ran]:
    last: Ran | None = None
    for start, end, node, whole in rows:
        kind = _kind(node, shapes, process, whole=bool(whole))
        if last is not None and last.kind is kind and start - last.end <= near:
            last = Ran(kind, last.start, max(last.end, end), last.count + 1)
            continue
        if last is not None:
            yield last
        last = Ran(kind, start, end, 1)
    if last is not None:
        yield last


def _kind(node: int | None, shapes: Mapping[GraphKey, GraphShape], process: int, *, whole: bool) -> Kind:
    if node is None:
        return Kind.GRAPH if whole else Kind.EAGER
    shape = shapes.get((process, node >> 32))
    marker = None if shape is None else shape.marker
    return Kind.PREPARATION if marker is not None and node & 0xFFFFFFFF < marker else Kind.GRAPH
