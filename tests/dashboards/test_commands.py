"""``dashboards export``, ``rules export`` and ``demo``, as their users type them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from sglang_fence.cli.app import app
from sglang_fence.demo.rank import Rank
from sglang_fence.demo.scenario import PHASES, Phase, Scenario, phases_at
from sglang_fence.errors import ConfigError
from sglang_fence.mixin.packaged import dashboards
from sglang_fence.mixin.parameters import Parameters
from sglang_fence.mixin.rules import RULES_FILE, rules_yaml

if TYPE_CHECKING:
    from pathlib import Path


def test_dashboards_come_out_as_they_are_packaged(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "boards"
    result = CliRunner().invoke(app, ["dashboards", "export", str(folder)])
    assert result.exit_code == 0, result.output
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == dashboards()
    assert all(json.loads(text)["uid"] for text in dashboards().values())


def test_rules_come_out_with_the_parameters_that_were_given(tmp_path: Path) -> None:
    given = ["--window", "1m", "--for", "3m", "--for-critical", "2m", "--day", "7d", "--interval", "15s"]
    urls = ["--grafana-url", "https://g.test/", "--runbooks-url", "https://r.test", "--set", "lost=0.5"]
    result = CliRunner().invoke(app, ["rules", "export", str(tmp_path), *given, *urls])
    assert result.exit_code == 0, result.output
    expected = Parameters("1m", "3m", "2m", "7d", "15s", "https://g.test/", "https://r.test").with_thresholds(
        ["lost=0.5"]
    )
    assert (tmp_path / RULES_FILE).read_text(encoding="utf-8") == rules_yaml(expected)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rules", "export", "{}", "--window", "soon"], "'soon' is no duration"),
        (["rules", "export", "{}", "--set", "x=1"], "--set x=1: no such threshold; known are decode_warning,"),
        (["rules", "export", "{}/file/below"], "can't be a folder"),
        (["dashboards", "export", "{}/file"], "can't be a folder"),
        (["demo", "--speed", "0"], "--speed 0: give a number above 0"),
        (["demo", "--metrics-port", "70000"], "metrics can't be served on 127.0.0.1 port 70000"),
        (["demo", "--speculative", "psychic"], "--speculative psychic: no such algorithm"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "sglang_fence", *(one.format(tmp_path) for one in arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("sglang-fence: ")
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_the_demonstration_plays_to_the_end() -> None:
    command = [sys.executable, "-m", "sglang_fence", "demo", "--speed", "10000", "--metrics-port", "0", "--ranks", "2"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"metrics: http://127\.0\.0\.1:\d+/metrics\n", ran.stderr)
    assert re.findall(r"^(\w+): .*, for \d+ s$", ran.stderr, re.MULTILINE) == [phase.name for phase in PHASES]


def steps(rank: Rank, mode: str) -> dict[str, int]:
    """Return its steps by why they were coarse, or fine."""
    found: dict[str, int] = {}
    for kind, cell in rank.ledger.cells.items():
        if kind.mode.value == mode:
            name = "fine" if kind.reason is None else kind.reason.value
            found[name] = found.get(name, 0) + cell.steps
    return found


def test_each_phase_is_what_it_says() -> None:
    rank = Rank({})
    seen: list[dict[str, int]] = []
    time = iter(range(100))
    scenario = Scenario(
        [rank], [], lambda: float(next(time)), lambda: False, lambda _: seen.append(steps(rank, "decode"))
    )
    scenario.phases = [Phase(one.name, one.text, 1.5, one.audited, one.forced) for one in PHASES]
    assert scenario.play()
    assert seen[0] == {}
    assert set(seen[1]) == {"fine"}
    assert set(seen[2]) == {"fine", "backend_unknown"}
    assert set(seen[3]) == {"fine", "backend_unknown", "forced"}
    last = steps(rank, "decode")
    assert last["fine"] > seen[3]["fine"]
    assert {name: count for name, count in last.items() if name != "fine"} == {
        name: count for name, count in seen[3].items() if name != "fine"
    }


def test_every_step_of_every_round_is_timed() -> None:
    rank = Rank({})
    for _ in range(3):
        rank.serve()
    assert all(cell.forward.count == cell.steps for cell in rank.ledger.cells.values())


def test_eagle_is_coarse_in_every_round_for_its_draft_runner() -> None:
    rank = Rank({}, speculative="eagle")
    rank.serve()
    assert set(steps(rank, "target_verify")) == {"backend_unknown"}
    unknown = {(phase.role, phase.mode.value) for phase in rank.ledger.phases if phase.resolved.name == "UNKNOWN"}
    assert ("draft", "draft_extend") in unknown
    assert ("target", "target_verify") not in unknown


def test_a_scenario_that_is_told_to_end_ends() -> None:
    scenario = Scenario([], phases_at(1.0), lambda: 0.0, lambda: True, lambda _: None)
    assert not scenario.play()


@pytest.mark.parametrize("speed", [0.0, -1.0, float("inf"), float("nan")])
def test_what_is_no_speed_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match=r"^--speed "):
        phases_at(speed)
