"""``run --record`` and ``run --profile-steps``: what they refuse, in one line, before anything is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_fence.cli.observing import ObserveOptions, observing
from sglang_fence.cli.run_command import run
from sglang_fence.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"profile_steps": "1:2"}, "the simulated device has no profiler"),
        ({"profile_steps": "2"}, "write the first and the last step"),
        ({"record": Path("r.json"), "observe": False}, "--no-observe --record"),
        ({"profile_steps": "1:2", "observe": False}, "--no-observe --profile-steps"),
        ({"record": Path("missing/r.json")}, "missing/r.json can't be written"),
        ({"record": Path("a.json"), "json_file": Path("a.json")}, "both name a.json"),
    ],
)
def test_it_is_refused(
    options: dict[str, object], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=expected):
        run(requests=1, model="no such model", **options)  # type: ignore[arg-type] # each with its own type
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "virtual", "ratio"),
    [({}, True, 1.0), ({}, False, 0.1), ({"trace_ratio": 0.0}, True, 0.0), ({"perfetto": Path("p")}, False, 1.0)],
)
def test_a_record_traces_enough_steps_to_show_some(
    given: dict[str, object],
    virtual: bool,  # noqa: FBT001 - a parameter
    ratio: float,
) -> None:
    options = ObserveOptions(record=Path("r.json"), **given)  # type: ignore[arg-type] # each with its own type
    assert options.sampling(virtual=virtual).trace_ratio == ratio


def test_without_a_record_nothing_is_installed() -> None:
    made = observing(ObserveOptions(), virtual=True)
    assert made.recorder is None
    assert made.observers == [made.summary]
    with_one = observing(ObserveOptions(record=Path("r.json")), virtual=True)
    assert with_one.observers == [with_one.summary, with_one.recorder]
