"""``BreakableGraph``: segments of a forward, captured, with eager parts between them.

The marker is planted in the first segment. A part that reads shared buffers in a later segment, or eagerly, reads past
the marker: its backend must then declare POST_REPLAY.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.graphs.parts import Part, launch_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.fence.events import Marker
    from sglang_fence.graphs.parts import Around


class BreakableGraph:
    """Captured once on the current stream, segment by segment; see :class:`~sglang_fence.graphs.full.FullGraph`.

    Parts hand their activations across a break through static tensors of their own: an eager part's fresh tensors lie
    elsewhere at each replay.
    """

    def __init__(
        self,
        device: DeviceModule,
        name: str,
        parts: Sequence[Part],
        planted: Callable[[], Marker | None],
    ) -> None:
        self._runs: list[Callable[[], None]] = []
        self._names: list[str] = []
        self.in_graph_metadata_prep_done: Marker | None = None
        self.segments = 0
        pending: list[Part] = []
        for part in [*parts, None]:
            if part is not None and not part.breaks:
                pending.append(part)
                continue
            if pending:
                graph = device.Graph(f"{name}.{self.segments}")
                with device.capture(graph):
                    launch_all(pending)
                self._runs.append(graph.replay)
                self._names.append("segment")
                if self.segments == 0:
                    self.in_graph_metadata_prep_done = planted()
                self.segments += 1
                pending = []
            if part is not None:
                part.launch()
                self._runs.append(part.launch)
                self._names.append("eager_segment")

    def replay(self) -> None:
        """See :class:`~sglang_fence.graphs.parts.CapturedForward`."""
        for run in self._runs:
            run()
        if self.in_graph_metadata_prep_done is not None:
            self.in_graph_metadata_prep_done.armed = True

    def observe(self, around: Around) -> None:
        """Let each segment, and what runs eagerly between two, be marked as a range."""
        self._runs = [around(name, run) for name, run in zip(self._names, self._runs, strict=True)]
