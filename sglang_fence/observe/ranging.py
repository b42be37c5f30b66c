"""``Range``: one range of the host, told to observers and noted where its step is traced."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import StepRecord


class Range(AbstractContextManager[None]):
    """Balanced, also when the body raises."""

    __slots__ = ("_marks", "_name", "_observers", "_place", "_record", "_step")

    def __init__(self, observers: Observers, record: StepRecord, name: str) -> None:
        self._observers = observers
        self._record = record
        self._marks = record.marks
        self._name = name
        self._step = record.step
        self._place = -1

    def __enter__(self) -> None:
        for started in self._observers.range_started:
            started(self._name, self._step)
        if self._marks is not None:
            self._place = self._marks.begin(self._name, len(self._record.phases))

    def __exit__(self, *_: object) -> None:
        if self._marks is not None and self._record.marks is self._marks:
            self._marks.end(self._place)
        for ended in self._observers.range_ended:
            ended(self._name, self._step)
