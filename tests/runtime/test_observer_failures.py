"""An observer that raises, at each hook in turn, changes no token: it is counted, and after ten errors dropped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.observe.observer import ERRORS_ALLOWED, HOOKS, Observer
from sglang_fence.observe.sampling import Sampling
from tests.exporters.prometheus.scraped import scraped
from tests.observe.watched import Watched, watch

if TYPE_CHECKING:
    from collections.abc import Callable

LOOPS: dict[str, dict[str, Any]] = {
    "overlap": {},
    "plain": {"overlap": False},
    "pdmux": {"pdmux": True},
    "eagle": {"speculative": "eagle"},
    "breakable": {"graph": "breakable", "fence": "coarse"},
}
ONCE = {"run_started", "run_ended"}
SAMPLING = Sampling(timing_every=2, trace_ratio=0.5, trace_coarse=True)


def raising(*hooks: str) -> Observer:
    """Make an observer that raises whenever one of ``hooks`` is called."""

    def method(hook: str) -> Callable[..., None]:
        def fail(*_: object) -> None:
            msg = f"{hook} went wrong"
            raise LookupError(msg)

        return fail

    faulty: type[Observer] = type("Faulty", (Observer,), {hook: method(hook) for hook in hooks})
    return faulty()


def served(loop: str, *observers: Observer) -> Watched:
    watched = watch(SAMPLING, observers=observers, **LOOPS[loop])
    watched.serve()
    watched.engine.close()
    return watched


@pytest.fixture(scope="module")
def alone() -> Callable[[str], Watched]:
    """Return a run without the faulty observer."""
    made: dict[str, Watched] = {}

    def of(loop: str) -> Watched:
        if loop not in made:
            made[loop] = served(loop)
        return made[loop]

    return of


def counts(watched: Watched) -> object:
    return {kind: cell.steps for kind, cell in watched.summary.cells.items()}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("loop", LOOPS)
def test_raising_at_a_hook_changes_nothing_and_is_counted(
    loop: str, hook: str, alone: Callable[[str], Watched], caplog: pytest.LogCaptureFixture
) -> None:
    expected = alone(loop)
    caplog.clear()
    watched = served(loop, raising(hook))
    calls = len(expected.heard.of(hook))
    if (loop, hook) == ("plain", "barrier_applied"):
        assert calls == 0  # this loop has no barrier
    else:
        assert calls == 1 if hook in ONCE else calls > ERRORS_ALLOWED
    errors = min(calls, ERRORS_ALLOWED)
    assert watched.outputs == expected.outputs
    assert watched.engine.device.virtual_seconds() == expected.engine.device.virtual_seconds()
    assert [call.hook for call in watched.heard.calls] == [call.hook for call in expected.heard.calls]
    assert counts(watched) == counts(expected)
    watched.heard.assert_balanced()
    assert watched.summary.health.errors == ({hook: errors} if errors else {})
    assert watched.engine.probe.observers.dropped == (errors == ERRORS_ALLOWED)
    series = scraped(watched.summary)
    found = {labels: value for (name, labels), value in series.items() if name == "sglang_fence_observer_errors_total"}
    assert {labels: value for labels, value in found.items() if value} == (
        {frozenset({("hook", hook)}): errors} if errors else {}
    )
    lines = [line.getMessage() for line in caplog.records if line.levelno >= logging.WARNING]
    first = [f"observer Faulty failed in {hook}; serving goes on"] if errors else []
    last = [f"observer Faulty failed {ERRORS_ALLOWED} times and is dropped"] if errors == ERRORS_ALLOWED else []
    assert lines == first + last


def test_raising_at_every_hook_is_dropped_after_ten_in_all(
    alone: Callable[[str], Watched], caplog: pytest.LogCaptureFixture
) -> None:
    expected = alone("overlap")
    caplog.clear()
    watched = served("overlap", raising(*HOOKS))
    assert watched.outputs == expected.outputs
    assert watched.summary.health.errors.total() == ERRORS_ALLOWED
    assert len([line for line in caplog.records if "is dropped" in line.getMessage()]) == 1


def test_every_observer_raising_leaves_a_probe_that_nobody_hears(alone: Callable[[str], Watched]) -> None:
    expected = alone("pdmux")
    watched = served("pdmux", *(raising(hook) for hook in HOOKS))
    assert watched.outputs == expected.outputs
    assert watched.summary.health.errors == {hook: min(len(expected.heard.of(hook)), ERRORS_ALLOWED) for hook in HOOKS}
    assert watched.engine.probe.observers.dropped == len(HOOKS) - len(ONCE)
