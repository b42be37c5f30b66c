"""Events of the fence: the marker inside a graph, and a pool of fresh ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule, Event


def make_external_event(device_module: DeviceModule) -> Event | None:
    """Make an event that a graph records as a node, or None where the device has none (R9).

    Its constructor answers ``TypeError`` where external events are missing. The first record may still fail with
    ``RuntimeError``: see :class:`Marker`.
    """
    try:
        return device_module.Event(external=True)
    except TypeError:
        return None


class Marker:
    """The read-done marker of one captured graph, ``in_graph_metadata_prep_done`` (R9).

    A marker exists exactly when a node of its graph records it. It is made lazily, while the stream is capturing:
    a warm-up run shares the captured body and plants nothing. It is never recorded anywhere else: every replay re-arms
    it, and a wait issued after the replay binds to that replay.
    """

    __slots__ = ("armed", "event")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.armed = False
        """Whether a replay has recorded it since it was last published. The graph sets it, publication takes it."""

    @classmethod
    def plant(cls, device_module: DeviceModule) -> Marker | None:
        """Record a new external event as a node of the graph under capture; None where that isn't possible."""
        if not device_module.is_current_stream_capturing():
            return None
        event = make_external_event(device_module)
        if event is None:
            return None
        try:
            event.record()
        except RuntimeError:
            return None
        return cls(event)


class EventPool:
    """Fresh events for PRE_REPLAY and POST_REPLAY publications, without making one each step.

    R10: an event that is out is not recorded again until it came back, and it comes back only when the wait that binds
    to it has been issued, or when its publication was replaced and nobody will wait. The wait keeps its binding, so the
    event may be re-recorded right after.
    """

    def __init__(self, device_module: DeviceModule) -> None:
        self._device = device_module
        self._free: list[Event] = []
        self._out: set[int] = set()

    def take(self) -> Event:
        """Lend an event."""
        event = self._free.pop() if self._free else self._device.Event()
        self._out.add(id(event))
        return event

    def give_back(self, event: Event | None) -> None:
        """Take an event back; one that isn't lent (a marker, None) is left alone."""
        if event is not None and id(event) in self._out:
            self._out.remove(id(event))
            self._free.append(event)

    @property
    def lent(self) -> int:
        """How many events are out."""
        return len(self._out)
