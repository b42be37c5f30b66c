"""The guard: whatever a hook does, its target is called once, and its outcome is passed on."""

# ruff: noqa: ANN401 - a handler takes whatever its target takes

from __future__ import annotations

import logging
from typing import Any

import pytest

from sglang_fence.observe.standing import Health
from sglang_fence.sglang_plugin.guard import COST_SAMPLE, ERRORS_ALLOWED, Handler, Hook, Meter
from sglang_fence.sglang_plugin.targets import TARGETS

TARGET = TARGETS[0]


class Failing(Handler):
    """Raises in the places that it is told."""

    def __init__(self, *places: str) -> None:
        self.places = places
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def _called(self, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.calls.append((place, args, kwargs))
        if place in self.places:
            raise RuntimeError(place)

    def before(self, *args: Any, **kwargs: Any) -> str:
        self._called("before", args, kwargs)
        return "token"

    def after(self, *args: Any, **kwargs: Any) -> None:
        self._called("after", args, kwargs)

    def raised(self, *args: Any, **kwargs: Any) -> None:
        self._called("raised", args, kwargs)


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


@pytest.mark.parametrize("places", [(), ("before",), ("after",), ("before", "after")])
def test_the_result_and_the_arguments_pass_unchanged(places: tuple[str, ...]) -> None:
    hook, health, _ = _hook(Failing(*places))
    original, argument = Original(), object()
    assert hook.around()(original, argument, key=argument) is original.result
    assert original.calls == [((argument,), {"key": argument})]
    assert health.errors[TARGET.key] == len(places[:1])


@pytest.mark.parametrize("places", [(), ("before",), ("raised",)])
@pytest.mark.parametrize("error", [ValueError("its own"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_of_the_target_passes_unchanged(places: tuple[str, ...], error: BaseException) -> None:
    hook, health, _ = _hook(Failing(*places))
    original = Original(error)
    with pytest.raises(type(error)) as caught:
        hook.around()(original)
    assert caught.value is error
    assert error.__context__ is None
    assert len(original.calls) == 1
    assert health.errors[TARGET.key] == len(places)


def test_a_handler_sees_the_token_the_result_and_the_arguments() -> None:
    handler = Failing()
    hook, _, _ = _hook(handler)
    original = Original()
    hook.around()(original, 1, key=2)
    assert handler.calls == [("before", (1,), {"key": 2}), ("after", ("token", original.result, 1), {"key": 2})]


def test_after_ten_errors_it_steps_aside_and_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    handler = Failing("before")
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


def test_costs_are_measured_on_one_step_in_so_many_and_multiplied() -> None:
    hook, health, meter = _hook(Failing())
    call, original = hook.around(), Original()
    measured = 0
    for _ in range(3 * COST_SAMPLE):
        meter.next_step()
        before = health.cost_ns[TARGET.key]
        call(original)
        grown = health.cost_ns[TARGET.key] - before
        assert (grown > 0) == meter.on
        assert grown % COST_SAMPLE == 0
        measured += meter.on
    assert measured == 3
