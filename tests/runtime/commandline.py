"""Run ``sglang-fence`` in this process, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.cli import main
from sglang_fence.environ import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pytest

    from tests.runtime.prompts import Prompt


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def mistake(self) -> str:
        """Return the one line that says what the user got wrong; anything else fails."""
        assert self.code == 2, self
        assert "Traceback" not in self.err + self.out
        assert not self.out
        (line,) = self.err.splitlines()
        assert line.startswith("sglang-fence: ")
        return line


@dataclass(frozen=True, slots=True)
class Ran:
    """An ``sglang-fence run`` with what it wrote."""

    code: int
    out: str
    err: str
    report: dict[str, Any]
    """The ``--json`` file."""
    lines: list[dict[str, Any]]
    """The ``--output`` file."""

    @property
    def outputs(self) -> list[list[int]]:
        """Generated tokens, a list a request."""
        return [line["output_ids"] for line in self.lines]


class CommandLine:
    """Runs commands in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        for switch in SWITCHES:
            monkeypatch.delenv(switch.name, raising=False)

    def __call__(self, *args: object) -> Ended:
        """Run ``sglang-fence ARGS``."""
        self._monkeypatch.setattr(sys, "argv", ["sglang-fence", *map(str, args)])
        self._capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code
        out, err = self._capsys.readouterr()
        return Ended(code if isinstance(code, int) else 0 if code is None else 1, out, err)

    def run(self, *args: object) -> Ran:
        """Run ``sglang-fence run`` on the simulated device, and read what it wrote."""
        report, output = self.folder / "report.json", self.folder / "output.jsonl"
        ended = self("run", "--device", "simulated", "--json", report, "--output", output, *args)
        assert ended.code in (0, 1), ended
        return Ran(ended.code, ended.out, ended.err, read_json(report), read_jsonl(output))


def subprocess_run(*args: object, env: Mapping[str, str] | None = None) -> Ended:
    """Run ``sglang-fence ARGS`` in a process of its own, without the environment's switches."""
    inherited = {name: value for name, value in os.environ.items() if name not in {one.name for one in SWITCHES}}
    program = "from sglang_fence.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        env={**inherited, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **(env or {})},
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def write_prompts(path: Path, prompts: Iterable[Prompt | Mapping[str, object] | str]) -> Path:
    """Write JSONL; a string is written as it stands."""
    lines = [prompt if isinstance(prompt, str) else json.dumps(_as_object(prompt)) for prompt in prompts]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Read a JSON object a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _as_object(prompt: Prompt | Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(prompt, tuple):
        return prompt
    params = prompt.params
    return {
        "input_ids": prompt.ids,
        "max_new_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "seed": params.seed,
        "stop": list(params.stop),
    }
