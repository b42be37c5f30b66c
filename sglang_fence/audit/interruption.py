"""Ctrl-C: the first one asks an audit to put everything back and to say what it did not do; the second one ends it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


class Interruption:
    """True once somebody pressed Ctrl-C; for a ``with`` block on the main thread."""

    def __init__(self) -> None:
        self._asked = False
        self._before: Callable[[int, FrameType | None], Any] | int | None = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def __call__(self) -> bool:
        """Whether to stop."""
        return self._asked

    def _hear(self, _: int, __: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
