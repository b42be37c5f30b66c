"""Windows: from the moment of a candidate end to the end of what must not read any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.device import OWN
from sglang_fence.audit.phases import Listener

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from sglang_fence.audit.device import AuditDevice
    from sglang_fence.audit.phases import Phase
    from sglang_fence.audit.strikes import Strike


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
        strike: what to do at each of the moments.
        chosen: whose end it is.
        whole_step: closed by :meth:`finish` alone.
    """

    def __init__(self, strike: Strike, chosen: Callable[[Phase], bool], *, whole_step: bool = False) -> None:
        super().__init__(strike.device)
        self.strike = strike
        self._chosen = chosen
        self._whole_step = whole_step

    def before_metadata(self, phase: Phase) -> None:
        """Work out the poison; for a whole step here, since an event may come before the replay."""
        if not self._chosen(phase) or (self.strike.ends is not None and not self._whole_step):
            return
        self.strike.poisoner.prepare()
        if self.strike.ends is None:
            self.strike.here()

    def after_metadata(self, phase: Phase) -> None:
        """Another phase may come before the replay, and is not to be disturbed."""
        if self._chosen(phase) and self.strike.ends is None:
            self.strike.poisoner.heal()

    def before_replay(self, phase: Phase) -> None:
        """Strike at PRE_REPLAY."""
        if not self._chosen(phase):
            return
        if not self._whole_step:
            self.strike.poisoner.prepare()
        self.strike.before_replay(None if phase.marker is None else phase.marker.event)

    def after_replay(self, phase: Phase) -> None:
        """Strike at IN_REPLAY or POST_REPLAY, and close the window of a phase."""
        if not self._chosen(phase):
            self.keep(phase)
            return
        marker = phase.marker
        if marker is not None:
            self.strike.behind_marker(marker.event)
        self.keep(phase)
        self.strike.behind_replay(marked=marker is not None)
        if not self._whole_step:
            self.strike.poisoner.heal()

    def finish(self) -> None:
        """Close what is open; on the forward stream, behind the whole step."""
        self.strike.poisoner.heal()
