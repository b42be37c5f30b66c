"""The whole analysis of a capture, and what of it is inferred or missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.analyze.barriers import inferred_barriers, named_barriers
from sglang_fence.analyze.capture import opened
from sglang_fence.analyze.graphs import graph_shapes
from sglang_fence.analyze.ranges import our_ranges
from sglang_fence.analyze.steps import Basis, Step, measured
from sglang_fence.analyze.summary import ModeSummary, summarise
from sglang_fence.analyze.waits import stream_waits
from sglang_fence.analyze.work import launch_times, stream_work
from sglang_fence.contract import FenceKind, SharedReadEnds
from sglang_fence.observe.counting import many

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sglang_fence.analyze.barriers import Barrier
    from sglang_fence.analyze.graphs import GraphKey, GraphShape


@dataclass(frozen=True, slots=True)
class Report:
    """What a capture says of the fence."""

    steps: tuple[Step, ...]
    shapes: Mapping[GraphKey, GraphShape]
    launched: Mapping[tuple[int, int], int]
    """When the host launched each graph, in ns, by process and correlation number."""

    named: bool
    """Whether our ranges named the barriers."""

    inferred: tuple[str, ...]
    """What is a conclusion rather than a reading, in sentences."""

    missing: tuple[str, ...]
    """What the capture doesn't show, in sentences."""

    @property
    def summary(self) -> list[ModeSummary]:
        """The steps, by mode."""
        return summarise(self.steps)


def analyse(path: Path) -> Report:
    """Read a capture, ``.sqlite`` or ``.nsys-rep``.

    Raises:
        ConfigError: it can't be read, or has nothing of CUDA in it.
    """
    with opened(path) as capture:
        capture.require_device_rows()
        ranges = our_ranges(capture)
        shapes = graph_shapes(capture, ranges)
        streams = stream_work(capture, shapes)
        waits = stream_waits(capture)
        barriers = named_barriers(ranges, waits, streams)
        named = bool(barriers)
        if not named:
            barriers = inferred_barriers(waits, streams)
        steps = tuple(measured(barriers, streams))
        launched = launch_times(capture)
    whole = any(replay.graph is None for work in streams.values() for replay in work.replays)
    return Report(
        steps,
        shapes,
        launched,
        named,
        tuple(_inferred(steps, shapes, named=named)),
        tuple(_missing(barriers, steps, whole=whole)),
    )


def _inferred(steps: Sequence[Step], shapes: Mapping[GraphKey, GraphShape], *, named: bool) -> list[str]:
    said: list[str] = []
    if steps and not named:
        said.append(
            "There are no NVTX ranges of sglang_fence, so barriers are inferred: a stream waits for the one that "
            "replays graphs, after that one has waited for it. Steps have no numbers, and modes no names.",
        )
    replayed = [
        shapes[step.process, replay.graph]
        for step in steps
        for replay in step.replays
        if replay.graph is not None and (step.process, replay.graph) in shapes
    ]
    with_marker = [shape for shape in replayed if shape.marker is not None]
    if with_marker:
        said.append("A marker is the node of its graph for which nothing runs, and its moment lies between two others.")
    if any(shape.preparation is None for shape in with_marker):
        said.append("The capture of the graphs isn't named, so every node before the marker is taken for preparation.")
    if any(len(shape.gaps) > 1 for shape in with_marker):
        said.append("Some graph has several nodes for which nothing runs; the first behind the preparation is taken.")
    if any(step.basis is Basis.ASSUMED for step in steps):
        said.append("Lost slack with basis replay_launch assumes that reads end before the replay; nobody audited it.")
    late = sum(bool(step.observer_late) for step in steps)
    if late:
        said.append(
            f"In {late} step(s) the host had the observer copy the end of reads when that had passed "
            "(observer_late_us, at the least). An event reads no earlier than it is recorded, so the observer's slack "
            "is so much smaller there.",
        )
    return said


def _missing(barriers: Sequence[Barrier], steps: Sequence[Step], *, whole: bool) -> list[str]:
    said: list[str] = []
    if not barriers:
        said.append("No barrier was found: no range of that name, and no two streams that wait for one another.")
    if whole:
        said.append("Nodes of graphs were not traced (--cuda-graph-trace=node), so no marker has a moment.")
    unbound = sum(step.forward_stream is None for step in steps)
    if unbound:
        said.append(f"Of {many(unbound, 'barrier')} this capture shows no wait that is bound to a record in it.")
    unknown = sum(step.forward_stream is not None and step.reads_end is None for step in steps)
    if unknown and not whole:
        said.append(f"Behind {many(unknown, 'step')} a wait is bound to a record in a graph without any known marker.")
    earlier = sum(step.earlier for step in steps)
    if earlier:
        said.append(
            f"Bound to a record from before its step: {many(earlier, 'wait')}, where the fence held nothing back."
        )
    overtaken = sum(step.overtaken for step in steps)
    if overtaken:
        said.append(
            f"In {many(overtaken, 'step')} the schedule stream worked before the reads are taken to end. Either the "
            "marker or the barrier is another one than assumed, or the fence did not hold.",
        )
    unlike = sum(_contradicts(step) for step in steps)
    if unlike:
        said.append(f"What the streams show is contradicted by {many(unlike, 'mark')}; the marks are taken.")
    return said


def _contradicts(step: Step) -> bool:
    if step.marked is FenceKind.FINE and step.ends is SharedReadEnds.POST_REPLAY:
        return False  # which looks coarse to the streams
    return step.streams_say is not None and step.marked not in {None, step.streams_say}
