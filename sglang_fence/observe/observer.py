"""The observer protocol: documented no-ops, called by the probe. Exporters subclass :class:`Observer`.

A hook that no observer overrides costs an empty loop. An observer that raises is counted and logged; after
:data:`ERRORS_ALLOWED` errors it is dropped. Serving goes on in either case.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sglang_fence.observe.ledger import Facts
    from sglang_fence.observe.record import StepRecord
    from sglang_fence.observe.trace import StepTrace

logger = logging.getLogger(__name__)

ERRORS_ALLOWED = 10
"""After so many errors an observer is dropped."""


class Observer:
    """All hooks do nothing. All are called on the serving thread, between device launches: do little, allocate less."""

    def run_started(self, facts: Facts) -> None:
        """The runtime is about to serve. ``facts``: what was decided at start."""

    def step_started(self, step: int) -> None:
        """A step's batch is ready, and its forward is about to be enqueued."""

    def range_started(self, name: str, step: int) -> None:
        """The host begins the phase called ``name`` (a range of the catalogue) of ``step``. Ranges nest."""

    def range_ended(self, name: str, step: int) -> None:
        """The host ends the innermost range; also when its body raised."""

    def barrier_applied(self, record: StepRecord) -> None:
        """The fence of a step is enqueued: kind, reason and ends are known, device times aren't."""

    def step_finished(self, record: StepRecord) -> None:
        """A step is over and its device times are read (or given up as unresolved). The record is reused afterwards."""

    def step_traced(self, trace: StepTrace) -> None:
        """A sampled step is over, after its :meth:`step_finished`. The trace may be kept."""

    def run_ended(self) -> None:
        """The last step is finished. Called once, on the serving thread: what still waits goes out now."""

    @property
    def dropped_steps(self) -> int:
        """Steps that it turned away, so far, since what it gives them to was too slow. Read from any thread."""
        return 0


HOOKS = (
    "run_started",
    "step_started",
    "range_started",
    "range_ended",
    "barrier_applied",
    "step_finished",
    "step_traced",
    "run_ended",
)

_ARGUMENTS = {"range_started": 2, "range_ended": 2, "run_ended": 0, **dict.fromkeys(HOOKS[:2] + HOOKS[4:7], 1)}


class Observers:
    """Fan-out to the installed observers. Its tuples are replaced, never changed, so a hook may drop its observer."""

    def __init__(self, observers: Iterable[Observer] = (), errors: dict[str, int] | None = None) -> None:
        """Install observers.

        Args:
            observers: in the order in which they are told.
            errors: where errors are counted by hook; None: in a dictionary of its own.
        """
        self._installed: tuple[Observer, ...] = tuple(observers)
        self._errors: dict[int, int] = {}
        self.errors: dict[str, int] = {} if errors is None else errors
        """Errors by hook."""
        self.dropped = 0
        """Observers that were dropped."""
        self.run_started: tuple[Callable[[Facts], None], ...] = ()
        self.step_started: tuple[Callable[[int], None], ...] = ()
        self.range_started: tuple[Callable[[str, int], None], ...] = ()
        self.range_ended: tuple[Callable[[str, int], None], ...] = ()
        self.barrier_applied: tuple[Callable[[StepRecord], None], ...] = ()
        self.step_finished: tuple[Callable[[StepRecord], None], ...] = ()
        self.finishing: tuple[Callable[[StepRecord], None], ...] = ()
        """As :attr:`step_finished`, unguarded, for the one place that calls them on each step: it calls
        :meth:`go_on_finishing` when one raises. Guards of their own would cost 0.1 µs of the 1.2 of a counted step."""
        self.step_traced: tuple[Callable[[StepTrace], None], ...] = ()
        self.run_ended: tuple[Callable[[], None], ...] = ()
        self._finishing: tuple[Observer, ...] = ()
        self._bind()

    @property
    def any(self) -> bool:
        """Whether any hook is heard."""
        return any(getattr(self, hook) for hook in HOOKS)

    def _bind(self) -> None:
        for hook in HOOKS:
            default = getattr(Observer, hook)
            overriding = [observer for observer in self._installed if getattr(type(observer), hook) is not default]
            setattr(self, hook, tuple(self._guard(observer, hook) for observer in overriding))
            if hook == "step_finished":
                self.finishing = tuple(observer.step_finished for observer in overriding)
                self._finishing = tuple(overriding)

    def go_on_finishing(
        self, raised: Callable[[StepRecord], None] | None, record: StepRecord, error: Exception
    ) -> None:
        """Count what ``raised``, of :attr:`finishing`, and tell those behind it.

        Args:
            raised: which of them.
            record: the step that is over.
            error: what came of it.
        """
        if raised is None:
            return
        place = self.finishing.index(raised)
        behind = self.step_finished[place + 1 :]
        self._failed(self._finishing[place], "step_finished", error)
        for hook in behind:
            hook(record)

    def _guard(self, observer: Observer, hook: str) -> Callable[..., None]:
        method = getattr(observer, hook)

        def call_with_none() -> None:
            try:
                method()
            except Exception as error:  # noqa: BLE001 - an observer must never end a step; it is counted and logged
                self._failed(observer, hook, error)

        def call_with_one(first: object) -> None:
            try:
                method(first)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(observer, hook, error)

        def call_with_two(first: object, second: object) -> None:
            try:
                method(first, second)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed(observer, hook, error)

        # One for each number of arguments: packing and unpacking them would cost as much as the rest.
        return (call_with_none, call_with_one, call_with_two)[_ARGUMENTS[hook]]

    def _failed(self, observer: Observer, hook: str, error: Exception) -> None:
        self.errors[hook] = self.errors.get(hook, 0) + 1
        count = self._errors[id(observer)] = self._errors.get(id(observer), 0) + 1
        name = type(observer).__name__
        if count == 1:
            logger.error("observer %s failed in %s; serving goes on", name, hook, exc_info=error)
        if count >= ERRORS_ALLOWED and observer in self._installed:
            logger.error("observer %s failed %d times and is dropped", name, count)
            self._installed = tuple(other for other in self._installed if other is not observer)
            self.dropped += 1
            self._bind()
