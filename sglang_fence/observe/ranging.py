"""Ranges of the host: told to observers, and noted where their step is traced."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.observer import Observers
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.tracing import Tracer

P = ParamSpec("P")
R = TypeVar("R")


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


class Ranging:
    """The part of a probe that marks phases. Where nobody listens, functions are given back as they are."""

    observers: Observers
    _now: Callable[[], int]
    _tracer: Tracer
    _record: StepRecord
    _ranges: bool
    """Whether anybody listens, or may later."""

    @property
    def traced(self) -> bool:
        """Whether the current step is traced, or will be if it is coarse."""
        return self._record.marks is not None

    def link(self, traceparents: tuple[str, ...]) -> None:
        """Say which requests the step serves, by the W3C ``traceparent`` they came with; for traced steps."""
        self._record.links = traceparents
        self._record.is_written = True

    def around(self, name: str, function: Callable[P, R]) -> Callable[P, R]:
        """Mark each call of ``function`` as a range, balanced also when it raises; itself where nobody listens."""
        if not self._ranges:
            return function
        observers = self.observers

        @wraps(function)
        def observed(*args: P.args, **kwargs: P.kwargs) -> R:
            if self._record.marks is None and not observers.range_started:
                return function(*args, **kwargs)
            with self.range(name):
                return function(*args, **kwargs)

        return observed

    def around_preparation(self, function: Callable[[int], R]) -> Callable[[int], R]:
        """As :meth:`around` for ``schedule``: ``function`` takes the number of the step that it prepares."""
        if not self._ranges:
            return function
        observers, tracer = self.observers, self._tracer

        @wraps(function)
        def observed(step: int) -> R:
            if not tracer.on and not observers.range_started:
                return function(step)
            began = self._now()
            for started in observers.range_started:
                started("schedule", step)
            try:
                return function(step)
            finally:
                for ended in observers.range_ended:
                    ended("schedule", step)
                tracer.prepared(step, began, self._now())

        return observed

    def range(self, name: str) -> AbstractContextManager[None]:
        """Mark a phase of the current step; balanced also when the body raises. On the hot path, use :meth:`around`."""
        return Range(self.observers, self._record, name)
