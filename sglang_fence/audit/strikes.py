"""``Strike``: one overwriting around one replay, whoever replays; and whether it was in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.device import OWN, Place
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from sglang_fence.audit.device import AuditDevice
    from sglang_fence.audit.poison import Poisoner
    from sglang_fence.device.protocol import Event


class Strike:
    """Called around a replay, on the forward stream.

    Args:
        device: planted with late readers.
        poisoner: of one buffer.
        ends: the candidate; None: before anything is read, to see whether the buffer is read at all.
    """

    def __init__(self, device: AuditDevice, poisoner: Poisoner, ends: SharedReadEnds | None) -> None:
        self.device = device
        self.poisoner = poisoner
        self.ends = ends
        self._seen: list[tuple[Place, torch.Tensor, torch.Tensor]] = []
        """Where a late reader stood, what it saw, and what it makes of the true contents and of the others."""

    def here(self) -> None:
        """Strike at an event that is recorded here, and see whether a reader behind it takes notice."""
        event = self.device.Event()
        event.record()
        self.poisoner.strike(event)
        self.device.delay()
        self.device.readers[self.poisoner.buffer.name].read(self.device, Place.LAUNCH)
        self._note(Place.LAUNCH)

    def before_replay(self, marker: Event | None = None) -> None:
        """Strike at PRE_REPLAY; for IN_REPLAY let the host run ahead.

        Args:
            marker: the graph's, where its launch is heard of by itself: struck at behind that, and not only once the
                whole forward was launched.
        """
        at_marker = self.device.readers[self.poisoner.buffer.name].seen[Place.MARKER]
        self.device.launch(f"{OWN}prepare", at_marker.zero_)
        if self.ends in {None, SharedReadEnds.PRE_REPLAY}:
            self.here()
        elif self.ends is SharedReadEnds.IN_REPLAY:
            self.device.hold()
            if marker is not None:
                self.device.launches.expect(marker, self.behind_marker)

    def behind_marker(self, marker: Event) -> None:
        """What records the marker was launched, and has armed it; said once more when the replay was."""
        if self.ends is SharedReadEnds.IN_REPLAY and not self.poisoner.struck:
            # A marker that no graph of the replay recorded is another's, and its wait binds to whatever there was.
            self.device.launches.forget()
            self.poisoner.strike(marker)

    def behind_replay(self, *, marked: bool) -> None:
        """Note what the readers in the forward saw; strike at POST_REPLAY. ``marked``: it has a marker."""
        if marked and self.ends is not SharedReadEnds.POST_REPLAY:
            self._note(Place.MARKER)
        self._note(Place.END)
        if self.ends is SharedReadEnds.POST_REPLAY:
            self.here()

    def in_time(self) -> bool | None:
        """Whether every late reader saw what it had to; None where there is nothing to tell apart. After a sync."""
        if not self._seen:
            return False
        verdicts: list[bool] = []
        for place, seen, numbers in self._seen:
            true, other = numbers.split(1)
            if torch.equal(true, other):
                return None
            if place is Place.MARKER and not bool(seen):
                continue  # the marker that the graph hands out is another's: no reader stands behind it here
            early = self.ends is SharedReadEnds.POST_REPLAY and place is Place.END
            verdicts.append(torch.equal(seen, true if early else other))
        return all(verdicts)

    def _note(self, place: Place) -> None:
        """Keep what the reader at ``place`` saw, and what it should have seen."""
        seen = torch.empty_like(self.poisoner.numbers[:1])
        numbers = torch.empty_like(self.poisoner.numbers)
        source = self.device.readers[self.poisoner.buffer.name].seen[place]

        def body() -> None:
            seen.copy_(source)
            numbers.copy_(self.poisoner.numbers)

        self.device.launch(f"{OWN}keep", body)
        self._seen.append((place, seen, numbers))
