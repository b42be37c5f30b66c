"""``sglang-fence audit``: exit status, JSON, what it says, and what it refuses."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.registry import LEAVES
from sglang_fence.audit.poison import Poisoner
from sglang_fence.cli.app import app
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.errors import UserError

if TYPE_CHECKING:
    from typer.testing import Result

    from sglang_fence.device.protocol import Event

SIMULATED = ["audit", "--device", "simulated", "--repeats", "1"]
EXAMPLE = Path(__file__).with_name("example_backend.py")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*SIMULATED, *arguments], env={"COLUMNS": "200"})


class TooEarly(NativeAttnBackend):
    """Declares a decode before its replay."""

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """The plant."""
        return SharedReadEnds.PRE_REPLAY if mode.is_decode() else super().shared_read_ends(mode)


def test_a_sound_backend_is_zero_and_every_verdict_is_written(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.json"
    result = _run("--attention", "trtllm_mha", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert "trtllm_mha (target, extend) declares PRE_REPLAY: sound." in " ".join(result.output.split())
    assert "1 case, 4 claims; cases with an unsound end: 0" in " ".join(result.output.split())
    written = json.loads(file.read_text())
    assert (written["device"], written["not_done"]) == ("simulated", [])
    (case,) = written["cases"]
    assert (case["attention"], case["speculative"], case["graph"]) == ("trtllm_mha", "none", "full")
    assert {verdict["by"] for verdict in case["verdicts"]} == {"poison on the simulated device", "happens-before"}
    for verdict in case["verdicts"]:
        (extend,) = (one for one in verdict["claims"] if (one["scope"], one["mode"]) == ("phase", "extend"))
        assert (extend["declared"], extend["resolved"], extend["status"]) == ("PRE_REPLAY", "PRE_REPLAY", "sound")
        assert extend["tightest"] == "PRE_REPLAY"


def test_an_unsound_one_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEAVES, "native", TooEarly)
    result = _run()
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "native (target, decode) declares PRE_REPLAY: UNSOUND." in said
    assert "The earliest sound end is IN_REPLAY." in said
    assert "As it is served: WAR on req_to_token" in said


def test_candidates_can_be_chosen() -> None:
    result = _run("--candidates", "in", "--candidates", "post")
    assert result.exit_code == 0
    rows = [line for line in result.output.splitlines() if "target decode" in line]
    cells = [cell.strip() for cell in rows[0].split("│")[4:7]]
    assert cells[0] == "–"
    assert all(cell.startswith("0 of ") for cell in cells[1:])


def test_several_cases_in_several_processes(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.json"
    result = _run("--attention", "native", "--attention", "trtllm_mha", "--jobs", "2", "--json", str(file))
    assert result.exit_code == 0, result.output
    assert {case["attention"] for case in json.loads(file.read_text())["cases"]} == {"native", "trtllm_mha"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--attention", "nativ"), "no such backend; known are"),
        (("--speculative", "medusa"), "no such algorithm; known are"),
        (("--graph", "half"), "known are full, breakable, off"),
        (("--attention", "hybrid_linear:native", "--speculative", "dflash"), "use --speculative none"),
        (("--candidates", "pre", "--candidates", "pre"), "one is named twice"),
        (("--model", "/nowhere"), "isn't there"),
        (("--json", "/nowhere/at/all.json"), "can't be written"),
        (("--static", "x"), "--static x: a source is read, and nothing is run: --device means nothing there"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: tuple[str, ...], message: str) -> None:
    raised = _run(*arguments).exception
    assert isinstance(raised, UserError)  # which the program turns into a line, and status 2
    assert message in str(raised)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--static", "x", "--attention", "native"), "--attention means nothing there"),
        (("--static", "x", "--sglang"), "--sglang means nothing there"),
        (("--static", "x", "--no-costs"), "--costs means nothing there"),
        (("--static", "x", "--jobs", "1"), "--jobs means nothing there"),
        (("--static", ""), "--static '': name a source tree"),
        (("--sglang", "--graph", "off"), "--graph means nothing there"),
        (("--sglang", "--seed", "0"), "--seed means nothing there"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(arguments: tuple[str, ...], message: str) -> None:
    raised = CliRunner().invoke(app, ["audit", *arguments]).exception
    assert isinstance(raised, UserError)
    assert message in str(raised)


def test_a_backend_from_outside_is_refuted_by_its_own_script() -> None:
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    made = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert "hopeful (target, decode) declares PRE_REPLAY: UNSOUND." in made.stderr
    assert "The earliest sound end is IN_REPLAY." in made.stderr
    assert len([line for line in lines if line.strip() and not line.startswith(('"""', "import", "from"))]) <= 10


def test_ctrl_c_says_what_was_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, strike, count = tmp_path / "verdicts.json", Poisoner.strike, [0]

    def pressed(self: Poisoner, event: Event) -> None:
        count[0] += 1
        if count[0] == 5:
            signal.raise_signal(signal.SIGINT)
        strike(self, event)

    monkeypatch.setattr(Poisoner, "strike", pressed)
    result = _run("--attention", "native", "--attention", "trtllm_mha", "--json", str(file))
    assert result.exit_code == 130
    assert count[0] <= 6  # the run that had begun is brought to its end, which may take one more, and no other is made
    said = " ".join(result.output.split())
    assert "Not done: target extend (native) at POST_REPLAY: req_to_token." in said
    assert "Not done: trtllm_mha × none × full." in said
    written = json.loads(file.read_text())
    assert [case["attention"] for case in written["not_done"]] == ["trtllm_mha"]
    assert written["cases"][0]["verdicts"][0]["not_done"]
