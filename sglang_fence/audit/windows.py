"""Windows: from the moment of a candidate end to the end of what must not read any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.device import OWN, Place
from sglang_fence.audit.phases import Listener
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.audit.device import AuditDevice
    from sglang_fence.audit.phases import Phase
    from sglang_fence.audit.poison import Poisoner


class Keeping(Listener):
    """Keeps what each phase computed: its logits, and the keys and values of each layer, as they are at its end."""

    def __init__(self, device: AuditDevice) -> None:
        self.device = device
        self.kept: dict[str, torch.Tensor] = {}
        """By a name that says where: ``target decode 0: layer 2 keys``. In the order of computation."""

    def after_replay(self, phase: Phase) -> None:
        """Keep it."""
        self.keep(phase)

    def keep(self, phase: Phase) -> None:
        """Launch the copies, on the forward stream."""
        runner, batch, kept = phase.runner, phase.batch, self.kept
        store = runner.attn_backend.kv
        # Reached from outside of a kernel: that is the host's own affair, and the copies are ordered by the stream.
        layers = [store.layer(index) for index in range(len(store.layout.windows))]
        lines = batch.lines * batch.width if batch.width else batch.lines
        where = f"{runner.role} {batch.mode} {phase.number}"
        page = store.page_size  # the first page is padding's: all may write it, none looks at it

        def body() -> None:
            for index, (keys, values) in enumerate(layers):
                kept[f"{where}: layer {index} keys"] = keys[page:].clone()
                kept[f"{where}: layer {index} values"] = values[page:].clone()
            if batch.acts.logits is not None:
                kept[f"{where}: logits"] = batch.acts.logits[:lines].clone()

        self.device.launch(f"{OWN}keep", body)


class Window(Keeping):
    """One overwriting: opened at a candidate end of the phases chosen, closed at the end of each, or of the step.

    Args:
        device: planted with late readers.
        poisoner: of one buffer.
        chosen: whose end it is.
        ends: which; None: before the metadata is prepared, to see whether the buffer is read at all.
        whole_step: closed by :meth:`finish` alone.
    """

    def __init__(
        self,
        device: AuditDevice,
        poisoner: Poisoner,
        chosen: Callable[[Phase], bool],
        ends: SharedReadEnds | None,
        *,
        whole_step: bool = False,
    ) -> None:
        super().__init__(device)
        self._poisoner = poisoner
        self._chosen = chosen
        self._ends = ends
        self._whole_step = whole_step
        self.seen: list[tuple[Place, torch.Tensor, torch.Tensor]] = []
        """Where a late reader stood, what it saw, and what it makes of the true contents and of the others."""

    def before_metadata(self, phase: Phase) -> None:
        """Work out the poison; for a whole step here, since an event may come before the replay."""
        if not self._chosen(phase) or (self._ends is not None and not self._whole_step):
            return
        self._poisoner.prepare()
        if self._ends is None:
            self._strike_here()
            self._look(Place.LAUNCH)

    def after_metadata(self, phase: Phase) -> None:
        """Another phase may come before the replay, and is not to be disturbed."""
        if self._chosen(phase) and self._ends is None:
            self._poisoner.heal()

    def before_replay(self, phase: Phase) -> None:
        """Strike at PRE_REPLAY; for IN_REPLAY let the host run ahead."""
        if not self._chosen(phase):
            return
        if not self._whole_step:
            self._poisoner.prepare()
        if self._ends in {None, SharedReadEnds.PRE_REPLAY}:
            self._strike_here()
            self._look(Place.LAUNCH)
        elif self._ends is SharedReadEnds.IN_REPLAY:
            self.device.hold()

    def after_replay(self, phase: Phase) -> None:
        """Strike at IN_REPLAY or POST_REPLAY, and close the window of a phase."""
        if not self._chosen(phase):
            self.keep(phase)
            return
        if self._ends is SharedReadEnds.IN_REPLAY and phase.marker is not None:
            self._poisoner.strike(phase.marker.event)
        self.keep(phase)
        late = self._ends in {SharedReadEnds.PRE_REPLAY, SharedReadEnds.IN_REPLAY}
        if late and phase.marker is not None:
            self._note(Place.MARKER)
        self._note(Place.END)
        if self._ends is SharedReadEnds.POST_REPLAY:
            self._strike_here()
            self._look(Place.LAUNCH)
        if not self._whole_step:
            self._poisoner.heal()

    def finish(self) -> None:
        """Close what is open; on the forward stream, behind the whole step."""
        self._poisoner.heal()

    def in_time(self) -> bool | None:
        """Whether every late reader saw what it had to; None where there is nothing to tell apart. After a sync."""
        if not self.seen:
            return False
        verdicts: list[bool] = []
        for place, seen, (true, other) in ((place, seen, numbers.split(1)) for place, seen, numbers in self.seen):
            if torch.equal(true, other):
                return None
            early = self._ends is SharedReadEnds.POST_REPLAY and place is Place.END
            verdicts.append(torch.equal(seen, true if early else other))
        return all(verdicts)

    def _strike_here(self) -> None:
        event = self.device.Event()
        event.record()
        self._poisoner.strike(event)
        self.device.delay()

    def _look(self, place: Place) -> None:
        self.device.readers[self._poisoner.buffer.name].read(self.device, place)
        self._note(place)

    def _note(self, place: Place) -> None:
        """Keep what the reader at ``place`` saw in this window, and what it should have seen."""
        seen = torch.empty_like(self._poisoner.numbers[:1])
        numbers = torch.empty_like(self._poisoner.numbers)
        source = self.device.readers[self._poisoner.buffer.name].seen[place]

        def body() -> None:
            seen.copy_(source)
            numbers.copy_(self._poisoner.numbers)

        self.device.launch(f"{OWN}keep", body)
        self.seen.append((place, seen, numbers))
