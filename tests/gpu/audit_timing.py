"""When what happened around each overwriting at IN_REPLAY, on the host's clock and on the device's.

A plant is caught if the poison is written before the late readers behind the marker begin. So the evidence is: how long
after the hold was enqueued the host had enqueued the poison, and the whole forward; how long the device was held back;
and how long before the readers' beginning the poison was written. Nothing here decides anything: verdicts are as
without it, but for a few µs that the events take.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from sglang_fence.audit import auditing, examining
from sglang_fence.audit.delays import HOLD_US, WIDE_US
from sglang_fence.audit.device import OWN, AuditDevice, Place
from sglang_fence.audit.strikes import Strike
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sglang_fence.device import protocol


@dataclass(frozen=True, slots=True)
class Stamps:
    """Timed nodes of one graph: beside its marker, and around the late readers behind that."""

    graph: str
    marker: protocol.Event
    begins: protocol.Event
    ends: protocol.Event


@dataclass(frozen=True, slots=True)
class Evidence:
    """One overwriting, in µs: the host's from when it had enqueued the hold, the device's from when that began."""

    graph: str
    buffer: str
    in_time: bool | None
    struck: float
    """Host: the poison was enqueued."""
    replayed: float
    """Host: the whole forward was launched."""
    held: float
    marker: float
    poison: tuple[float, float]
    readers: tuple[float, float]

    @property
    def margin(self) -> float:
        """How long before the late readers began the poison was there; negative: it came too late."""
        return self.readers[0] - self.poison[1]

    def __str__(self) -> str:
        """Return it as a line."""
        return (
            f"{self.graph}, {self.buffer}: host: poison enqueued at {self.struck:.0f}, replay launched at"
            f" {self.replayed:.0f}; device: held to {self.held:.0f}, marker {self.marker:.0f}, poison"
            f" {self.poison[0]:.0f} to {self.poison[1]:.0f}, late readers {self.readers[0]:.0f} to"
            f" {self.readers[1]:.0f} µs"
        )


class TimedAuditDevice(AuditDevice):
    """Stamps what is planted behind markers, and the poison."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the base's
        super().__init__(*args, **kwargs)
        self.stamps: dict[int, Stamps] = {}
        """By the identity of the marker's event, which its graph keeps."""
        self.poison: Sequence[protocol.Event] = ()
        self._graph = ""
        self._newest: Stamps | None = None

    def Graph(self, name: str) -> protocol.Graph:  # noqa: N802 - the protocol's
        """See the protocol; it is captured next."""
        self._graph = name
        return super().Graph(name)

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> protocol.Event:  # noqa: N802 - torch's
        """See the protocol; a marker gets stamps."""
        event = super().Event(enable_timing=enable_timing, external=external)
        if external and self.inner.is_current_stream_capturing():
            made = [self.inner.Event(enable_timing=True, external=True) for _ in range(3)]
            self._newest = self.stamps[id(event)] = Stamps(self._graph, *made)
        return event

    def delay(self, *, wide: bool = True) -> None:
        """Keep the stream busy; the one that is captured stands right behind a marker."""
        if wide and self._newest is not None and self.inner.is_current_stream_capturing():
            self._newest.marker.record()
        super().delay(wide=wide)

    def read_all(self, place: Place) -> None:
        """Launch late readers, between stamps if they stand behind a marker."""
        stamps = self._newest if place is Place.MARKER else None
        if stamps is not None:
            stamps.begins.record()
        super().read_all(place)
        if stamps is not None:
            stamps.ends.record()

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[protocol.Access] = (),
        writes: Sequence[protocol.Access] = (),
    ) -> None:
        """See the protocol; the poison is stamped, on the adversary's stream."""
        stamps = [self.inner.Event(enable_timing=True) for _ in range(2)] if name == f"{OWN}poison" else []
        if stamps:
            self.poison = stamps
            stamps[0].record()
        super().launch(name, body, reads=reads, writes=writes)
        if stamps:
            stamps[1].record()


class Timings:
    """All evidence of one case."""

    def __init__(self) -> None:
        self.all: list[Evidence] = []

    def lines(self) -> list[str]:
        """Return a summary a graph, and a line for each plant that was missed."""
        by_graph: dict[str, list[Evidence]] = defaultdict(list)
        for one in self.all:
            by_graph[one.graph].append(one)
        return [line for graph in sorted(by_graph) for line in _summary(graph, by_graph[graph])]


def _summary(graph: str, found: Sequence[Evidence]) -> list[str]:
    missed = [one for one in found if one.in_time is False]
    struck, replayed = (sorted(times) for times in ([one.struck for one in found], [one.replayed for one in found]))
    late = sum(one.replayed > HOLD_US + WIDE_US for one in found)
    line = (
        f"{graph}: {len(found)} overwritten, {len(missed)} missed; host: poison enqueued after {struck[0]:.0f} to"
        f" {struck[-1]:.0f} µs, replay launched after {replayed[0]:.0f} to {replayed[-1]:.0f}, {late} later than"
        f" {HOLD_US + WIDE_US:.0f}; least margin on the device {min(one.margin for one in found):.0f}"
    )
    return [line, *(f"missed: {one}" for one in missed)]


@contextmanager
def timed() -> Generator[Timings]:
    """Let audits of this process, within the block, tell their timings."""
    timings = Timings()

    class TimedStrike(Strike):
        """Tells of itself."""

        device: TimedAuditDevice
        _hold: Sequence[protocol.Event] = ()
        _marker: protocol.Event | None = None
        _at: tuple[int, int, int] = (0, 0, 0)

        def before_replay(self, marker: protocol.Event | None = None) -> None:
            self._marker = marker
            self._hold = [self.device.inner.Event(enable_timing=True) for _ in range(2)]
            self._hold[0].record()
            super().before_replay(marker)
            self._hold[1].record()
            now = perf_counter_ns()
            self._at = now, now, now

        def behind_marker(self, marker: protocol.Event) -> None:
            struck = self.poisoner.struck
            super().behind_marker(marker)
            if not struck:
                self._at = self._at[0], perf_counter_ns(), self._at[2]

        def behind_replay(self, *, marked: bool) -> None:
            self._at = *self._at[:2], perf_counter_ns()
            super().behind_replay(marked=marked)

        def in_time(self) -> bool | None:
            """Of several replays under one strike the last is told of."""
            verdict = super().in_time()
            stamps = self.device.stamps.get(id(self._marker))
            if self.ends is SharedReadEnds.IN_REPLAY and stamps is not None and self.device.poison:
                timings.all.append(self._evidence(stamps, verdict))
            return verdict

        def _evidence(self, stamps: Stamps, in_time: bool | None) -> Evidence:  # noqa: FBT001 - a verdict
            began, struck, replayed = self._at
            origin, held = self._hold

            def at(event: protocol.Event) -> float:
                return 1e3 * origin.elapsed_time(event)

            return Evidence(
                graph=stamps.graph,
                buffer=self.poisoner.buffer.name,
                in_time=in_time,
                struck=(struck - began) / 1e3,
                replayed=(replayed - began) / 1e3,
                held=at(held),
                marker=at(stamps.marker),
                poison=(at(self.device.poison[0]), at(self.device.poison[1])),
                readers=(at(stamps.begins), at(stamps.ends)),
            )

    with patch.object(auditing, "AuditDevice", TimedAuditDevice), patch.object(examining, "Strike", TimedStrike):
        yield timings
