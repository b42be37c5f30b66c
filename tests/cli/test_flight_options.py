"""Options of ``run`` about the flight recorder: mistakes are one line, before any model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from sglang_fence.cli.observing import ObserveOptions
from sglang_fence.errors import ConfigError
from sglang_fence.observe.flight.ring import DEFAULT_STEPS


def test_it_is_on_unless_nothing_is_observed() -> None:
    assert ObserveOptions().flight().steps == DEFAULT_STEPS
    assert ObserveOptions(observe=False).flight().steps == 0
    assert ObserveOptions(flight_recorder=0).flight().ring() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"observe": False, "flight_recorder": 9}, "--no-observe --flight-recorder"),
        ({"observe": False, "watchdog": 9.0}, "--no-observe --watchdog"),
        ({"flight_recorder": -1}, "a flight recorder of -1 steps: give 1 to 65536, or 0 for none"),
        ({"watchdog": -1.0}, "a watchdog of -1 seconds"),
        ({"flight_recorder": 0, "watchdog": 1.0}, "nothing to write"),
        ({"flight_recorder": 0, "flight_dir": Path("x")}, "--flight-recorder 0 --flight-dir x: nothing is dumped"),
    ],
)
def test_mistakes_are_told(options: dict[str, bool | float | Path], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ObserveOptions(**options).flight()  # type: ignore[arg-type] # each is right for its option


def test_a_folder_that_was_asked_for_has_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="no dump can be written to"):
        ObserveOptions(flight_dir=path).flight()


def test_a_folder_isnt_made_before_there_is_a_dump(tmp_path: Path) -> None:
    assert ObserveOptions(flight_dir=tmp_path / "a" / "b").flight().files().folder == tmp_path / "a" / "b"
    assert not list(tmp_path.iterdir())


def test_one_that_nobody_asked_for_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing" / "folder"))
    (tmp_path / "missing").write_text("", encoding="utf-8")
    assert ObserveOptions().flight().steps == 0
    assert "no flight recorder: no dump can be written to" in capsys.readouterr().err
    with pytest.raises(ConfigError):
        ObserveOptions(watchdog=1.0).flight()


def test_the_rank_is_that_of_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert ObserveOptions().flight().rank == "3"
