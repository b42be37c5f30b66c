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

LOOKS = 50

_FAILED = object()
"""In place of a token: looking before the call failed."""


class Meter:
    """What general hooks take goes on the account, each time: they are few beside those of repeated steps.

    Args:
        on: whether it does.
    """

    __slots__ = ("clock_ns", "on")

    def __init__(self, *, on: bool = True) -> None:
        self.on = on
        self.clock_ns = min(-(perf_counter_ns() - perf_counter_ns()) for _ in range(LOOKS))
        """How long it takes to look at the clock, which is no part of what is measured."""


class Handler:
    """What a hook does around its target; it does nothing here, and a part that a handler leaves out isn't called.

    The target's arguments are declared as anything, so that a handler names the ones that it reads. They are handed on
    once a call at the most: that costs as much as what is done with them.
    """

    def before(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the target takes; the token is ours
        """Look before the call; what is returned, the token, is handed to :meth:`over` or :meth:`raised`."""

    def over(self, token: Any, /) -> None:  # noqa: ANN401 - the token
        """Look after it returned."""

    def raised(self, token: Any, /) -> None:  # noqa: ANN401 - as above
        """It raised; the exception goes on its way afterwards."""

    def after(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - the result, and the target's arguments
        """Look at what it returned, and what it was called with; in place of all the others."""


class Hook:
    """One target's guard; :meth:`around` is what SGLang calls."""

    def __init__(self, target: Target, handler: Handler, health: Health, meter: Meter) -> None:
        self.target = target
        self._health = health
        self._meter = meter
        self._before = _part(handler, "before")
        self._over = _part(handler, "over")
        self._raised = _part(handler, "raised")
        self._after = _part(handler, "after")
        self.errors = 0
        self.stepped_aside = False
        """Whether it raised too often, and is a plain call from then on."""

    def failed(self, error: Exception) -> None:
        """Count an error of the hook's own; step aside where that was one too many."""
        self.errors += 1
        key = self.target.key
        self._health.errors[key] += 1
        if self.errors == 1:
            logger.error("sglang-fence: the hook on %s failed; serving goes on", self.target.path, exc_info=error)
        if self.errors == ERRORS_ALLOWED:
            self.stepped_aside = True
            self._health.hooks[self.target.path] = "stepped_aside"
            logger.error(
                "sglang-fence: the hook on %s failed %d times and steps aside; not seen from here on: %s",
                self.target.path,
                self.errors,
                self.target.unseen,
            )

    def around(self) -> Callable[..., Any]:
        """Return the hook as SGLang's registry takes it: called with the original, then its arguments.

        It is called several times a step, so that all it needs is at hand, and what a handler leaves out costs nothing.
        """
        if self._after is not None:
            return self._behind(self._after)
        before = self._before or _nothing
        if self._over is None and self._raised is None:
            return self._ahead(before)
        return self._on_both_sides(before, self._over or _nothing, self._raised or _nothing)

    def _ahead(self, before: Callable[..., Any]) -> Callable[..., Any]:
        meter, failed, unusual, spend = self._meter, self.failed, self._unusual, self._spend

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the target takes
            if kwargs or self.stepped_aside:
                return unusual(original, args, kwargs)
            started = perf_counter_ns() if meter.on else 0
            try:
                before(*args)
            except Exception as error:  # noqa: BLE001 - fails open: counted and logged
                failed(error)
            if started:
                spend(perf_counter_ns() - started)
            return original(*args)  # outside of the handler, or an error of the original's would name ours

        return hook

    def _behind(self, after: Callable[..., Any]) -> Callable[..., Any]:
        meter, failed, unusual, spend = self._meter, self.failed, self._unusual, self._spend

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if kwargs or self.stepped_aside:
                return unusual(original, args, kwargs)
            result = original(*args)
            started = perf_counter_ns() if meter.on else 0
            try:
                after(result, *args)
            except Exception as error:  # noqa: BLE001 - as above
                failed(error)
            if started:
                spend(perf_counter_ns() - started)
            return result

        return hook

    def _on_both_sides(
        self,
        before: Callable[..., Any],
        over: Callable[[Any], Any],
        raised: Callable[[Any], Any],
    ) -> Callable[..., Any]:
        meter, failed, unusual, spend = self._meter, self.failed, self._unusual, self._spend

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if kwargs or self.stepped_aside:
                return unusual(original, args, kwargs)
            started = perf_counter_ns() if meter.on else 0
            try:
                token = before(*args)
            except Exception as error:  # noqa: BLE001 - as above
                failed(error)
                token = _FAILED
            if token is _FAILED:  # outside of the handler, as above
                return original(*args)
            if started:
                spend(perf_counter_ns() - started)
            try:
                result = original(*args)
            except BaseException:
                self._guarded(raised, token)
                raise
            if started:
                started = perf_counter_ns()
            try:
                over(token)
            except Exception as error:  # noqa: BLE001 - as above
                failed(error)
            if started:
                spend(perf_counter_ns() - started)
            return result

        return hook

    def _unusual(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        """Do what the hook does, in any form of it and with keyword arguments; or nothing, where it stepped aside."""
        if self.stepped_aside:
            return original(*args, **kwargs)
        started = perf_counter_ns() if self._meter.on else 0
        token = None if self._before is None else self._guarded(self._before, *args, **kwargs)
        if started:
            self._spend(perf_counter_ns() - started)
        try:
            result = original(*args, **kwargs)
        except BaseException:
            if self._raised is not None and token is not _FAILED:
                self._guarded(self._raised, token)
            raise
        if started:
            started = perf_counter_ns()
        if self._after is not None:
            self._guarded(self._after, result, *args, **kwargs)
        elif self._over is not None and token is not _FAILED:
            self._guarded(self._over, token)
        if started:
            self._spend(perf_counter_ns() - started)
        return result

    def _spend(self, ns: int) -> None:
        """Add to the account what was taken, the original's time left out."""
        self._health.cost_ns[self.target.key] += max(0, ns - self._meter.clock_ns)

    def _guarded(self, part: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        """Call a part of the handler; return its token, or that it failed."""
        try:
            return part(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - as above
            self.failed(error)
            return _FAILED


def _nothing(*_: object, **__: object) -> None:
    """In place of a part that a handler leaves out."""


def _part(handler: Handler, name: str) -> Callable[..., Any] | None:
    """Return one part of a handler; None where it is left out."""
    part: Callable[..., Any] = getattr(handler, name)
    return None if getattr(part, "__func__", None) is getattr(Handler, name) else part
