"""``RecordingObserver``: an observer that keeps what each hook got, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.observe.observer import Observer
from sglang_fence.testing.records import FrozenStepRecord

if TYPE_CHECKING:
    from sglang_fence.observe.ledger import Facts
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.trace import StepTrace


class Call(NamedTuple):
    """One call of one hook."""

    hook: str
    arguments: tuple[object, ...]
    """As the hook got them; a step record as a :class:`~.records.FrozenStepRecord`."""


class RecordingObserver(Observer):
    """Keeps every call, or the newest ``limit`` of them. Whether ranges balance is known over all of them anyway.

    Args:
        limit: how many calls to keep; None: all.

    Raises:
        ValueError: ``limit`` is negative.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.calls: deque[Call] = deque(maxlen=limit)
        """In the order in which they came."""
        self.forgotten = 0
        """Calls that fell out, since there were more than ``limit``."""
        self._open: list[str] = []
        self._fault: str | None = None

    # ------------------------------------------------------------------------------------------------------- hooks

    def run_started(self, facts: Facts) -> None:
        """Keep it."""
        self._keep("run_started", facts)

    def step_started(self, step: int) -> None:
        """Keep it."""
        self._keep("step_started", step)

    def range_started(self, name: str, step: int) -> None:
        """Keep it."""
        self._open.append(name)
        self._keep("range_started", name, step)

    def range_ended(self, name: str, step: int) -> None:
        """Keep it, and look whether it is the innermost that ends."""
        if self._fault is None and self._open[-1:] != [name]:
            inner = f"{self._open[-1]!r} is the innermost" if self._open else "none was open"
            self._fault = f"the range {name!r} ended in step {step}, but {inner}"
        if self._open:
            self._open.pop()
        self._keep("range_ended", name, step)

    def barrier_applied(self, record: StepRecord) -> None:
        """Keep a copy."""
        self._keep("barrier_applied", FrozenStepRecord.of(record))

    def step_finished(self, record: StepRecord) -> None:
        """Keep a copy."""
        self._keep("step_finished", FrozenStepRecord.of(record))

    def step_traced(self, trace: StepTrace) -> None:
        """Keep it: it is immutable."""
        self._keep("step_traced", trace)

    def run_ended(self) -> None:
        """Keep it."""
        self._keep("run_ended")

    def _keep(self, hook: str, *arguments: object) -> None:
        if len(self.calls) == self.calls.maxlen:
            self.forgotten += 1
        self.calls.append(Call(hook, arguments))

    # --------------------------------------------------------------------------------------------------- questions

    def of(self, hook: str) -> list[tuple[object, ...]]:
        """Return the arguments of every kept call of ``hook``, oldest first."""
        return [call.arguments for call in self.calls if call.hook == hook]

    @property
    def applied(self) -> list[FrozenStepRecord]:
        """What :meth:`barrier_applied` got, oldest first."""
        return self._records("barrier_applied")

    @property
    def finished(self) -> list[FrozenStepRecord]:
        """What :meth:`step_finished` got, oldest first."""
        return self._records("step_finished")

    def _records(self, hook: str) -> list[FrozenStepRecord]:
        return [given for arguments in self.of(hook) for given in arguments if isinstance(given, FrozenStepRecord)]

    @property
    def ranges(self) -> list[tuple[str, int, int]]:
        """The kept starts of ranges as (name, step, depth), oldest first; depth counts from 0.

        Where calls were forgotten, the depth is relative to the oldest one kept.
        """
        found: list[tuple[str, int, int]] = []
        depth = 0
        for call in self.calls:
            if call.hook == "range_started":
                name, step = call.arguments
                found.append((str(name), int(str(step)), depth))
                depth += 1
            elif call.hook == "range_ended":
                depth -= 1
        return found

    @property
    def open_ranges(self) -> tuple[str, ...]:
        """Names of the ranges that haven't ended, the outermost first."""
        return tuple(self._open)

    def assert_balanced(self) -> None:
        """Check that every range ended, each as the innermost one. Takes forgotten calls into account.

        Raises:
            AssertionError: one didn't; the message names the first.
        """
        if self._fault is not None:
            raise AssertionError(self._fault)
        if self._open:
            msg = f"ranges that never ended: {', '.join(self._open)}"
            raise AssertionError(msg)
