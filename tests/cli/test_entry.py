"""How the program ends, seen from outside: Ctrl-C while it loads, nobody who reads on, an output that is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_fence.cli import entry
from sglang_fence.cli.output import CLOSED_OUTPUT

PROGRAMS = {
    "module": [sys.executable, "-m", "sglang_fence"],
    "script": [sys.executable, "-c", "from sglang_fence.cli import main; main()"],
}

SLOW = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("loading", flush=True)
            try:
                time.sleep(60)
            except BaseException:
                pass  # as a package might
sys.meta_path.insert(0, Slow())
"""
"""Makes loading take its time, so that it can be interrupted there for sure; and swallows what is raised meanwhile."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_ctrl_c_while_it_loads_ends_it_quietly(program: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with subprocess.Popen(
        [*PROGRAMS[program], "declarations"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"loading\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_loading_it_needs_nothing_that_takes_long() -> None:
    program = "import sys, sglang_fence.cli; print({'torch', 'typer', 'rich', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"


def test_ctrl_c_is_as_before_once_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("sys.argv", ["sglang-fence", "--version"])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 0
    assert signal.getsignal(signal.SIGINT) is before


def ended(arguments: list[str], output: int, environment: dict[str, str] | None = None) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAMS["module"], *arguments],
        env={**os.environ, **(environment or {})},
        stdout=output,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["declarations"], ["declarations", "--json"]])
def test_where_nobody_reads_on_it_ends_quietly_and_not_as_with_hazards(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert ended(arguments, writing) == (CLOSED_OUTPUT, "")
    finally:
        os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["declarations"]])
def test_an_output_that_is_full_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        code, said = ended(arguments, full.fileno())
    assert code == 2
    assert said.startswith("sglang-fence: standard output can't be written (No space left on device)")
    assert said.count("\n") == 1


def test_files_are_written_though_nobody_reads_what_is_said(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    files = {name: tmp_path / name for name in ("--json", "--output", "--record", "--perfetto")}
    arguments = ["run", "--device", "simulated", "--requests", "2", "--max-new-tokens", "2"]
    try:
        code, said = ended([*arguments, *(str(one) for pair in files.items() for one in pair)], writing)
    finally:
        os.close(writing)
    assert (code, said) == (CLOSED_OUTPUT, "")
    assert all(path.stat().st_size for path in files.values())


def test_letters_that_the_output_cant_take_end_nothing(tmp_path: Path) -> None:
    arguments = ["run", "--device", "simulated", "--requests", "1", "--max-new-tokens", "1"]
    with (tmp_path / "said").open("wb") as said:
        assert ended(arguments, said.fileno(), {"PYTHONIOENCODING": "ascii"}) == (0, "")
    assert b"1 token, " in (tmp_path / "said").read_bytes()
    assert b"\\u2192" in (tmp_path / "said").read_bytes()  # an arrow
