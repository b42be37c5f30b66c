"""The guard: whatever a hook does, its target is called once, and its outcome is passed on."""

# ruff: noqa: ANN401 - a handler takes whatever its target takes

from __future__ import annotations

import contextlib
import logging
from itertools import pairwise
from typing import Any

import pytest

from sglang_fence.observe.standing import Health
from sglang_fence.sglang_plugin.guard import ERRORS_ALLOWED, Handler, Hook, Meter
from sglang_fence.sglang_plugin.session import Session
from sglang_fence.sglang_plugin.targets import LOOPS, TARGETS

TARGET = TARGETS[0]


class Failing(Handler):
    """Raises in the places that it is told."""

    def __init__(self, *places: str) -> None:
        self.places = places
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def called(self, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append((place, args, kwargs))
        if place in self.places:
            raise RuntimeError(place)


class Ahead(Failing):
    """Looks before the call alone."""

    def before(self, *args: Any, **kwargs: Any) -> None:
        self.called("before", args, kwargs)


class Behind(Failing):
    """Looks at what came out."""

    def after(self, *args: Any, **kwargs: Any) -> None:
        self.called("after", args, kwargs)


class Both(Failing):
    """Looks before the call and when it is over."""

    def before(self, *args: Any, **kwargs: Any) -> str:
        self.called("before", args, kwargs)
        return "token"

    def over(self, token: Any, /) -> None:
        self.called("over", (token,), {})

    def raised(self, token: Any, /) -> None:
        self.called("raised", (token,), {})


class Original:
    """Counts its calls."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.result = object()

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        self.calls.append((args, kwargs))
        if self.error is not None:
            raise self.error
        return self.result


def _hook(handler: Handler) -> tuple[Hook, Health, Meter]:
    health, meter = Health(), Meter()
    return Hook(TARGET, handler, health, meter), health, meter


KINDS = [Ahead, Behind, Both]
KEYWORDS = pytest.mark.parametrize("keywords", [{}, {"key": object()}], ids=["", "keywords"])
MEASURED = pytest.mark.parametrize("measured", [False, True], ids=["", "measured"])


@MEASURED
@KEYWORDS
@pytest.mark.parametrize("places", [(), ("before",), ("over", "after"), ("before", "over", "after")])
@pytest.mark.parametrize("kind", KINDS)
def test_the_result_and_the_arguments_pass_unchanged(
    kind: type[Failing], places: tuple[str, ...], keywords: dict[str, object], *, measured: bool
) -> None:
    handler = kind(*places)
    hook, health, meter = _hook(handler)
    meter.on = measured
    original, argument = Original(), object()
    assert hook.around()(original, argument, **keywords) is original.result
    assert original.calls == [((argument,), keywords)]
    assert health.errors[TARGET.key] == sum(place in places for place, _, _ in handler.calls)
    assert handler.calls


@MEASURED
@KEYWORDS
@pytest.mark.parametrize("places", [(), ("before",), ("raised",)])
@pytest.mark.parametrize("error", [ValueError("its own"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_the_target_passes_unchanged(
    kind: type[Failing],
    places: tuple[str, ...],
    error: BaseException,
    keywords: dict[str, object],
    *,
    measured: bool,
) -> None:
    handler = kind(*places)
    hook, health, meter = _hook(handler)
    meter.on = measured
    original = Original(error)
    with pytest.raises(type(error)) as caught:
        hook.around()(original, **keywords)
    assert caught.value is error
    assert error.__context__ is None
    assert len(original.calls) == 1
    assert health.errors[TARGET.key] == sum(place in places for place, _, _ in handler.calls)
    assert "over" not in {place for place, _, _ in handler.calls}


@MEASURED
@KEYWORDS
def test_a_handler_sees_the_arguments_the_token_and_the_result(keywords: dict[str, object], *, measured: bool) -> None:
    both, behind = Both(), Behind()
    original = Original()
    for handler in (both, behind):
        hook, _, meter = _hook(handler)
        meter.on = measured
        hook.around()(original, 1, **keywords)
    assert both.calls == [("before", (1,), keywords), ("over", ("token",), {})]
    assert behind.calls == [("after", (original.result, 1), keywords)]


@MEASURED
@KEYWORDS
def test_a_handler_that_failed_before_the_call_hears_no_more_of_it(
    keywords: dict[str, object], *, measured: bool
) -> None:
    for error in (None, ValueError("the original's")):
        handler = Both("before")
        hook, _, meter = _hook(handler)
        meter.on = measured
        with contextlib.suppress(ValueError):
            hook.around()(Original(error), **keywords)
        assert [place for place, _, _ in handler.calls] == ["before"]


def test_after_ten_errors_it_steps_aside_and_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    handler = Both("before")
    hook, health, _ = _hook(handler)
    call = hook.around()
    original = Original()
    with caplog.at_level(logging.ERROR):
        for _ in range(ERRORS_ALLOWED + 5):
            assert call(original) is original.result
    assert len(original.calls) == ERRORS_ALLOWED + 5
    assert len(handler.calls) == health.errors[TARGET.key] == ERRORS_ALLOWED
    assert hook.stepped_aside
    assert health.hooks == {TARGET.path: "stepped_aside"}
    assert [record.exc_info is not None for record in caplog.records] == [True, False]  # one traceback, one farewell
    assert TARGET.unseen in caplog.text


@KEYWORDS
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_call_is_on_the_account_where_it_is_kept(
    kind: type[Failing], keywords: dict[str, object], *, measured: bool
) -> None:
    hook, health, meter = _hook(kind())
    meter.on = measured
    call, original, costs = hook.around(), Original(), [0]
    for _ in range(5):
        call(original, **keywords)
        costs.append(health.cost_ns[TARGET.key])
    assert [after > before for before, after in pairwise(costs)] == [measured] * 5


def test_only_what_steps_take_is_on_the_account() -> None:
    session = object.__new__(Session)
    session.meter = Meter()
    kept = {target.key: session.meter_of(target.key).on for target in TARGETS}
    assert {key for key, on in kept.items() if not on} == {"run_event_loop", "on_idle", *LOOPS}
