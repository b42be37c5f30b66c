"""Exit statuses: a user's mistake, hazards, and a fault of ours are told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.cli import main, run_command
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import CapacityError
from sglang_fence.memory.budget import check_fits

if TYPE_CHECKING:
    from pathlib import Path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["sglang-fence", "run", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_fault_of_ours_is_neither_a_hazard_nor_a_users_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        msg = "broken on purpose"
        raise RuntimeError(msg)

    monkeypatch.setattr(run_command, "open_device", broken)
    assert run(monkeypatch) == 3
    assert "broken on purpose" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--output", "{}", "--json", "{}"), "both name"),
        (("--prompts", "{}", "--output", "{}"), "both name"),
        (("--draft-model", "x"), "only --speculative standalone"),
        (("--draft-tokens", "2"), "nothing drafts; give --speculative as well"),
        (("--top-p", "0.9"), "nothing is sampled at temperature 0"),
        (("--kv-tokens", 10**12), "GiB"),
        (("--json", "x" * 300), "can't be a file (File name too long)"),
        (("--prompts", "x" * 300, "--output", "{}"), "File name too long"),
    ],
)
def test_a_users_mistake_is_one_line_and_nothing_is_left_behind(
    arguments: tuple[object, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "file"
    assert run(monkeypatch, *(str(one).format(path) for one in arguments)) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert "\n" not in said
    assert not path.exists()


def test_pools_that_fit_are_let_pass() -> None:
    device = SimulatedDevice()
    check_fits(device, "--kv-tokens 1", 1)
    with pytest.raises(CapacityError, match=r"--kv-tokens 9.*GiB.*ask for less"):
        check_fits(device, "--kv-tokens 9", 1 << 60)
