"""``AuditDevice``: another device, with late readers and delays planted in whatever forward is run or captured on it.

* A *late reader* condenses every buffer on trial to one number: directly behind each marker, and behind each head, so
  at the end of a forward. It is part of the graph for good and changes nothing; what it saw in a run tells whether that
  run's overwriting was in time, and it is the plant that an audit must catch before it may say anything else.
* A *delay* stands behind each marker, and before each kernel that declares a read of a buffer on trial, so that a
  narrow window between an event and a late read is a wide one.

It also hears of every shared buffer, which of them the schedule stream writes, and when a graph with a marker was
launched: see :mod:`sglang_fence.audit.launches`.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.bits import condense, weights
from sglang_fence.audit.delegating import DelegatingDevice
from sglang_fence.audit.launches import HeardGraph, Launches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from sglang_fence.audit.delays import Delays
    from sglang_fence.device import protocol
    from sglang_fence.device.buffers import SharedBuffer

ON_TRIAL = ("req_to_token", "full_to_swa", "token_history")
"""Buffers that the schedule stream of this runtime writes, by name."""

OWN = "audit_"
"""What the names of the audit's own kernels begin with."""

_HEAD = "lm_head"


class Place(StrEnum):
    """Where a late reader stands."""

    LAUNCH = "launch"
    """Behind a PRE_REPLAY event and its delay, before the replay is launched."""
    MARKER = "marker"
    """Behind a marker and its delay, in the graph."""
    END = "end"
    """Behind the head of a forward."""


class Reader:
    """Late readers of one buffer: what each saw last, int64 ``[1]`` a place."""

    def __init__(self, buffer: SharedBuffer, tensor: torch.Tensor) -> None:
        self.buffer = buffer
        self._weights = weights(tensor)
        self.seen = {place: torch.zeros(1, dtype=torch.int64, device=tensor.device) for place in Place}

    def condense(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the number that a reader makes of such contents."""
        return condense(tensor, self._weights)

    def read(self, device: protocol.DeviceModule, place: Place) -> None:
        """Launch the reader at ``place``."""
        buffer, seen = self.buffer, self.seen[place]
        device.launch(
            f"{OWN}late_reader",
            lambda: seen.copy_(self.condense(buffer.tensor)),
            reads=((buffer, range(buffer.rows)),),
        )


class AuditDevice(DelegatingDevice):
    """See the module.

    Args:
        inner: does the work.
        delays: how long, and how; None: no delays, so that moments are where they are without an audit.
        on_trial: names of the buffers that are audited.
    """

    def __init__(
        self,
        inner: protocol.DeviceModule,
        delays: Delays | None,
        on_trial: Iterable[str] = ON_TRIAL,
    ) -> None:
        super().__init__(inner)
        self._delays = delays
        self._names = frozenset(on_trial)
        self._marker_made = False
        self.launches = Launches()
        self._heard: list[weakref.ref[SharedBuffer]] = []
        self._scheduled: dict[str, SharedBuffer] = {}
        self.readers: dict[str, Reader] = {}
        """By buffer, of those on trial."""

    @property
    def buffers(self) -> list[SharedBuffer]:
        """Every shared buffer that is alive."""
        self._heard = [ref for ref in self._heard if ref() is not None]
        return [buffer for ref in self._heard if (buffer := ref()) is not None]

    def unheard(self, lasting: Iterable[SharedBuffer]) -> list[str]:
        """Return which of the ``lasting`` buffers the schedule stream wrote though they are not on trial."""
        kept = {id(buffer) for buffer in lasting}
        found = (name for name, buffer in self._scheduled.items() if id(buffer) in kept)
        return sorted(name for name in found if name not in self.readers)

    def register_buffer(self, buffer: SharedBuffer) -> int:
        """See the protocol; also remember it."""
        number = super().register_buffer(buffer)
        self._heard.append(weakref.ref(buffer))
        return number

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> protocol.Event:  # noqa: N802 - torch's
        """See the protocol; a marker is what an external event made in a capture is."""
        event = super().Event(enable_timing=enable_timing, external=external)
        self._marker_made = external and self.inner.is_current_stream_capturing()
        if self._marker_made:
            self.launches.made(event)
        return event

    def Graph(self, name: str) -> protocol.Graph:  # noqa: N802 - beside torch.cuda's CUDAGraph
        """See the protocol; its launches are told."""
        return HeardGraph(super().Graph(name), self.launches)

    @contextmanager
    def capture(self, graph: protocol.Graph) -> Generator[None]:
        """See the protocol."""
        heard = graph if isinstance(graph, HeardGraph) else None
        self.launches.capturing(heard)
        try:
            with super().capture(graph if heard is None else heard.inner):
                yield
        finally:
            self.launches.capturing(None)

    def launch(
        self,
        name: str,
        body: Callable[[], object],
        *,
        reads: Sequence[protocol.Access] = (),
        writes: Sequence[protocol.Access] = (),
    ) -> None:
        """See the protocol; what is planted goes around it."""
        inner = self.inner
        if name.startswith(OWN):
            inner.launch(name, body, reads=reads, writes=writes)
            return
        if not inner.is_capturing():
            self.take_up()
        scheduling = inner.current_stream().name == "schedule"
        if scheduling:
            self._scheduled.update({buffer.name: buffer for buffer, _ in writes})
        elif self._marker_made and inner.is_current_stream_capturing():
            self.delay()
            self.read_all(Place.MARKER)
        elif any(buffer.name in self.readers for buffer, _ in reads):
            self.delay(wide=False)
        self._marker_made = False
        inner.launch(name, body, reads=reads, writes=writes)
        if name == _HEAD:
            self.read_all(Place.END)

    def read_all(self, place: Place) -> None:
        """Launch the late readers of ``place``."""
        for reader in self.readers.values():
            reader.read(self.inner, place)

    def delay(self, *, wide: bool = True) -> None:
        """Keep the current stream busy for a while."""
        if self._delays is not None:
            self.inner.launch(f"{OWN}delay", self._delays.wide if wide else self._delays.narrow)

    def hold(self) -> None:
        """Keep the current stream busy until the host has surely enqueued what comes next."""
        if self._delays is not None:
            self.inner.launch(f"{OWN}hold", self._delays.hold)

    def take_up(self) -> None:
        """Take up the buffers on trial that were made since: not sooner, since a reader needs one that is whole."""
        for buffer in self.buffers:
            if buffer.name in self._names and buffer.name not in self.readers:
                self.readers[buffer.name] = Reader(buffer, buffer.tensor)
