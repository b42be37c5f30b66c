"""Hearing of a marker as soon as it can be waited for: when the graph that records it was launched.

That is not when the whole forward was. Between the segments of a breakable graph the host launches eager parts kernel
by kernel, which takes it milliseconds: far longer than a window behind the marker is held open. A wait that is enqueued
behind the first segment binds to the same record as one that is enqueued behind the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.device.protocol import Event, Graph


class Launches:
    """Who waits for the launch of which marker; one at a time."""

    def __init__(self) -> None:
        self._capturing: HeardGraph | None = None
        self._awaited: Event | None = None
        self._then: Callable[[Event], None] | None = None

    def capturing(self, graph: HeardGraph | None) -> None:
        """What is captured from here on belongs to ``graph``."""
        self._capturing = graph

    def made(self, marker: Event) -> None:
        """A marker was made; the graph under capture is to record it."""
        if self._capturing is not None:
            self._capturing.markers.append(marker)

    def expect(self, marker: Event, then: Callable[[Event], None]) -> None:
        """Call ``then`` with ``marker``, on the launching stream, behind the next launch of a graph that records it."""
        self._awaited, self._then = marker, then

    def forget(self) -> None:
        """Expect nothing any more: no such graph was launched, or it was heard of."""
        self._awaited = self._then = None

    def launched(self, graph: HeardGraph) -> None:
        """``graph`` was enqueued."""
        marker, then = self._awaited, self._then
        if marker is None or then is None or all(marker is not one for one in graph.markers):
            return
        self.forget()
        then(marker)


class HeardGraph:
    """A graph whose launches are told.

    Args:
        inner: does the work.
        launches: hears of it.
    """

    def __init__(self, inner: Graph, launches: Launches) -> None:
        self.inner = inner
        self.markers: list[Event] = []
        """External events that were made in its capture."""
        self._launches = launches

    def replay(self) -> None:
        """See the protocol; then tell."""
        self.inner.replay()
        self._launches.launched(self)
