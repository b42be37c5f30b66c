"""How a hook fails: open. What it observes may be lost; what it hooks is called once, and its outcome is passed on.

An error of a hook's own is counted and logged, the first of each hook with its traceback; after :data:`ERRORS_ALLOWED`
the hook steps aside and is a plain call from then on.
"""

from __future__ import annotations

import logging
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.observe.standing import Health
    from sglang_fence.sglang_plugin.targets import Target

logger = logging.getLogger(__name__)

ERRORS_ALLOWED = 10
"""After so many errors a hook steps aside."""

COST_SAMPLE = 61
"""The cost of hooks is measured on each so-many-th step and multiplied. A prime, so that it falls on steps whose
device times are taken as often as their share is."""

_FAILED = object()
"""In place of a token: looking before the call failed."""


class Meter:
    """Whether this step's hooks are measured."""

    __slots__ = ("_left", "on")

    def __init__(self) -> None:
        self._left = COST_SAMPLE // 2
        self.on = False

    def next_step(self) -> None:
        """A step begins."""
        self._left -= 1
        self.on = not self._left
        if self.on:
            self._left = COST_SAMPLE


class Handler:
    """What a hook does around its target; it does nothing here. Each part is called with the target's arguments.

    Those are declared as anything, so that a handler names the ones that it reads.
    """

    def before(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the target takes; the token is ours
        """Look before the call; what is returned, the token, is handed to :meth:`after` or :meth:`raised`."""

    def after(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the token, the result, and the target's arguments
        """Look after it returned."""

    def raised(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the token
        """It raised; the exception goes on its way afterwards."""


class Hook:
    """One target's guard; :meth:`around` is what SGLang calls."""

    def __init__(self, target: Target, handler: Handler, health: Health, meter: Meter) -> None:
        self.target = target
        self._handler = handler
        self._health = health
        self._meter = meter
        self.errors = 0

    @property
    def stepped_aside(self) -> bool:
        """Whether it raised too often."""
        return self.errors >= ERRORS_ALLOWED

    def failed(self, error: Exception) -> bool:
        """Count an error of the hook's own; return whether that was one too many."""
        self.errors += 1
        key = self.target.key
        self._health.errors[key] += 1
        if self.errors == 1:
            logger.error("sglang-fence: the hook on %s failed; serving goes on", self.target.path, exc_info=error)
        if self.stepped_aside:
            self._health.hooks[self.target.path] = "stepped_aside"
            logger.error(
                "sglang-fence: the hook on %s failed %d times and steps aside; not seen from here on: %s",
                self.target.path,
                self.errors,
                self.target.unseen,
            )
        return self.stepped_aside

    def around(self) -> Callable[..., Any]:  # noqa: C901 - in one piece, since a call costs more than a branch
        """Return the hook as SGLang's registry takes it: called with the original, then its arguments.

        It is called several times a step, so that everything it needs is at hand, and what a handler leaves out isn't
        called.
        """
        before, after, raised = self._part("before"), self._part("after"), self._part("raised")
        meter, key, cost, failed = self._meter, self.target.key, self._health.cost_ns, self.failed
        aside = False

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, C901 - as above
            nonlocal aside
            if aside:
                return original(*args, **kwargs)
            measured = meter.on
            token = None
            if before is not None:
                started = perf_counter_ns() if measured else 0
                try:
                    token = before(*args, **kwargs)
                except Exception as error:  # noqa: BLE001 - fails open: counted and logged
                    aside = failed(error)
                    token = _FAILED
                if measured:
                    cost[key] += (perf_counter_ns() - started) * COST_SAMPLE
                if token is _FAILED:  # outside of the handler above, or an error of the original's would name ours
                    return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                try:
                    if raised is not None:
                        raised(token)
                except Exception as error:  # noqa: BLE001 - as above
                    aside = failed(error)
                raise
            if after is not None:
                started = perf_counter_ns() if measured else 0
                try:
                    after(token, result, *args, **kwargs)
                except Exception as error:  # noqa: BLE001 - as above
                    aside = failed(error)
                if measured:
                    cost[key] += (perf_counter_ns() - started) * COST_SAMPLE
            return result

        return hook

    def _part(self, name: str) -> Callable[..., Any] | None:
        """Return one part of the handler; None where it does nothing."""
        part: Callable[..., Any] = getattr(self._handler, name)
        return None if getattr(part, "__func__", None) is getattr(Handler, name) else part
