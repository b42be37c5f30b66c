"""``FullGraph``: a whole forward in one graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.graphs.parts import Part, launch_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.fence.events import Marker
    from sglang_fence.graphs.parts import Around


class FullGraph:
    """Captured once on the current stream.

    Args:
        device: captures.
        name: what reports call it.
        parts: the forward.
        planted: asked right after the capture for the marker that a part planted, if any did.
    """

    def __init__(
        self,
        device: DeviceModule,
        name: str,
        parts: Sequence[Part],
        planted: Callable[[], Marker | None],
    ) -> None:
        self._graph = device.Graph(name)
        with device.capture(self._graph):
            launch_all(parts)
        self.in_graph_metadata_prep_done = planted()

    def replay(self) -> None:
        """See :class:`~sglang_fence.graphs.parts.CapturedForward`."""
        self._graph.replay()
        if self.in_graph_metadata_prep_done is not None:
            self.in_graph_metadata_prep_done.armed = True

    def observe(self, around: Around) -> None:
        """A full graph has no parts to be marked: its replay is the caller's range."""
