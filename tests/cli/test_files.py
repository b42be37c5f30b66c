"""What a command reads is never what it writes, and no two options write one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sglang_fence.cli.app import app
from sglang_fence.cli.files import check_apart
from sglang_fence.errors import ConfigError


def test_two_options_with_one_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    with pytest.raises(ConfigError, match=r"--json and --strip both name .*a\.json: give each a file of its own"):
        check_apart({"--json": file, "--strip": tmp_path / "." / "a.json"})
    check_apart({"--json": file, "--strip": tmp_path / "b.json", "--out": None})


def test_a_file_that_is_read_is_not_written_under_any_of_its_names(tmp_path: Path) -> None:
    source, hard, soft = tmp_path / "in.json", tmp_path / "hard.json", tmp_path / "soft.json"
    source.write_text("kept", encoding="utf-8")
    hard.hardlink_to(source)
    soft.symlink_to(source)
    for name in (source, hard, soft):
        with pytest.raises(ConfigError, match="it is read, and would be overwritten"):
            check_apart({"--json": name}, [source])
    check_apart({"--json": tmp_path / "out.json"}, [source])


def test_nothing_in_a_folder_that_is_read_is_written_over(tmp_path: Path) -> None:
    inside = tmp_path / "package" / "backend.py"
    inside.parent.mkdir()
    inside.write_text("kept", encoding="utf-8")
    with pytest.raises(ConfigError, match="it is read"):
        check_apart({"--json": inside}, [tmp_path / "package"])
    check_apart({"--json": tmp_path / "package" / "new.json"}, [tmp_path / "package"])


@pytest.mark.parametrize("command", [["nsys"], ["explain"], ["audit", "--static"], ["report"]], ids=" ".join)
def test_commands_leave_their_input_alone(command: list[str], tmp_path: Path) -> None:
    source = tmp_path / "given.json"
    source.write_text(json.dumps({"given": 1}), encoding="utf-8")
    option = "--out" if command == ["report"] else "--json"
    done = CliRunner().invoke(app, [*command, str(source), option, str(source)])
    assert isinstance(done.exception, ConfigError)
    assert json.loads(source.read_text(encoding="utf-8")) == {"given": 1}


def test_a_folder_is_no_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, ConfigError)
    assert "is a folder" in str(done.exception)
