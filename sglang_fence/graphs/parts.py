"""What a forward is made of, before it is decided how it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.fence.events import Marker


Around = Callable[[str, Callable[[], None]], Callable[[], None]]
"""Marks each call of a function as a range of that name; see ``StepProbe.around``."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a forward."""

    launch: Callable[[], None]
    """Enqueues its kernels on the current stream."""
    breaks: bool = False
    """Whether a breakable graph runs it eagerly, between two segments."""


class CapturedForward(Protocol):
    """A forward that can be replayed."""

    @property
    def in_graph_metadata_prep_done(self) -> Marker | None:
        """The marker planted in *this* graph; None where none was (R4, R9)."""

    def replay(self) -> None:
        """Enqueue it whole on the current stream; arms the marker."""

    def observe(self, around: Around) -> None:
        """Let the stretches that it replays one by one be marked as ranges."""


def launch_all(parts: Sequence[Part]) -> None:
    """Run a forward eagerly."""
    for part in parts:
        part.launch()
