"""Makes the captures of ``tests/data/nsys`` on a machine with a GPU, and compares the observer with the tool.

From the root of the repository, with Nsight Systems on the machine::

    PYTHONPATH=.:exporters python3 -m tests.analyze.making.capture OUT [--libraries FOLDER] [--seconds 200]
        [--only pre,post]

OUT gets a stripped capture ``NAME.sqlite.gz`` and its ``NAME.json`` for each scenario, to be moved to
``tests/data/nsys`` together; those whose analysis differs from the run's own record lie in ``doubtful`` below it, to be
looked into first. ``results.json`` says what each program said where it failed, in what an analysis differs, and how
observer and tool compare over more than a thousand steps, under several ways of tracing and without any; what each of
those steps was compared by is in ``NAME.moments.json.gz``. Whatever fails is written down and the rest goes on; what no
longer fits into the time is left out, and said. A scenario is printed as one line of JSON when it is done.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sglang_fence.analyze.report import analyse
from sglang_fence.analyze.strip import strip
from tests.analyze.expectations import SUFFIX, from_record, unlike
from tests.analyze.making.compare import compare, spread_of_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_BYTES = 240_000
"""Of one capture, packed: what is larger is left out of the test data."""

LONGEST_S, GRACE_S = 90.0, 10.0
"""So long a program may run, and so long behind the end of the time that is given."""

SMALL = ("--requests", "2", "--max-running", "2", "--chunk", "32", "--context-length", "256", "--max-new-tokens", "8")
LONG = ("--requests", "48", "--max-running", "4", "--max-new-tokens", "112", "--context-length", "512")
SPIN_US = 4_000.0
"""Makes a forward more than twice as long as the host takes for a step under the tool, so that the host is ahead."""

EVERY = ("--device", "cuda", "--timing-every", "1", "--trace-ratio", "0", "--nvtx")
TRACED = ("profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true")
NODES, WHOLE = "--cuda-graph-trace=node", "--cuda-graph-trace=graph"
RANGE = range(4, 8)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One program under the tool."""

    name: str
    arguments: tuple[str, ...]
    tracing: tuple[str, ...] = (NODES,)
    compared: bool = False
    """Whether it is a long run with a witness, of which the comparison is kept and not the capture."""

    steps: range | None = None
    """Those that are captured; None: all."""

    spin_us: float = 0.0
    """By how much each forward is made longer."""


SCENARIOS = (
    Scenario("post", (*SMALL, "--attention", "deepseek_v4", "--speculative", "dflash", "--graph", "breakable")),
    Scenario("nodes", LONG, compared=True),
    Scenario("longer", LONG, compared=True, spin_us=SPIN_US),
    Scenario("pre", (*SMALL, "--attention", "trtllm_mha")),
    Scenario("eagle", (*SMALL, "--speculative", "eagle")),
    Scenario("whole_graphs", LONG, (WHOLE,), compared=True),
    Scenario("ngram", (*SMALL, "--speculative", "ngram")),
    Scenario("coarse", (*SMALL, "--fence", "coarse")),
    # Each extend of a prompt runs every layer's draft kernel by kernel: one chunk, or it is too large.
    Scenario("multi_layer_eagle", (*SMALL, "--chunk", "512", "--speculative", "multi_layer_eagle")),
    Scenario("whole", SMALL, (WHOLE,)),
    Scenario(
        "range",
        (*SMALL, "--max-new-tokens", "16", "--profile-steps", f"{RANGE[0]}:{RANGE[-1]}"),
        (NODES, "--capture-range=cudaProfilerApi", "--capture-range-end=stop"),
        steps=RANGE,
    ),
    Scenario("events", LONG, (NODES, "--cuda-event-trace=true"), compared=True),
)
"""In order of what matters most, since time may run out."""


class Making:
    """One round of captures."""

    def __init__(self, out: Path, tool: str, libraries: Path | None, seconds: float, only: set[str]) -> None:
        self.out = out
        self._only = only
        self._tool = tool
        self._work = Path(tempfile.mkdtemp(prefix="sglang-fence-captures-"))
        self._until = time.monotonic() + seconds
        self._tool_environment = os.environ | _library_path(libraries)
        self.results: dict[str, Any] = {"tool": self._version(), "scenarios": {}}

    def all(self) -> None:
        """Run each scenario that still fits, and write the results after each."""
        if not self._only or "untraced" in self._only:
            self._keep("untraced", self._untraced)
        longest = 0.0
        for scenario in SCENARIOS:
            if self._only and scenario.name not in self._only:
                continue
            began = time.monotonic()
            if began + longest > self._until:
                self.results["scenarios"][scenario.name] = {"left out": "there was no time"}
                continue
            self._keep(scenario.name, lambda: self._scenario(scenario))  # noqa: B023 - called at once
            longest = max(longest, time.monotonic() - began)
        self._write()
        shutil.rmtree(self._work, ignore_errors=True)

    def _keep(self, name: str, make: Callable[[], dict[str, Any]]) -> None:
        began = time.monotonic()
        found: dict[str, Any]
        try:
            found = make()
        except Exception as error:  # noqa: BLE001 - one scenario must not cost the others
            found = {"failed": str(error)[-2000:], "where": traceback.format_exc()[-2000:]}
        found["seconds"] = round(time.monotonic() - began, 1)
        self.results["scenarios"][name] = found
        self._write()
        printed = {key: value for key, value in found.items() if key != "columns"}
        sys.stdout.write(f"{json.dumps({name: printed}, separators=(',', ':'))}\n")
        sys.stdout.flush()

    def _untraced(self) -> dict[str, Any]:
        record = self._work / "untraced.json"
        program = _program(self._work / "untraced.witness.json")
        command = [*program, *EVERY, *LONG, "--record", str(record)]
        self._run(command, os.environ)
        return spread_of_record(json.loads(record.read_text(encoding="utf-8")))

    def _scenario(self, scenario: Scenario) -> dict[str, Any]:
        record, output = self._work / f"{scenario.name}.json", self._work / scenario.name
        witness = self._work / f"{scenario.name}.witness.json"
        program = _program(witness if scenario.compared else None, scenario.spin_us)
        program += [*EVERY, *scenario.arguments, "--record", str(record)]
        command = [self._tool, *TRACED, *scenario.tracing, f"--output={output}", *program]
        self._run(command, self._tool_environment)
        reports = sorted(self._work.glob(f"{scenario.name}*.nsys-rep"))  # some versions number those of ranges
        if not reports:
            msg = "the tool wrote no report"
            raise RuntimeError(msg)
        report, database = reports[0], output.with_suffix(".sqlite")
        export = [self._tool, "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
        self._run(export, self._tool_environment)
        told = json.loads(record.read_text(encoding="utf-8"))
        found: dict[str, Any] = {"columns": _columns(database)}
        if scenario.compared:
            return found | self._compare(scenario.name, database, told, witness)
        known = from_record(told, nodes=NODES in scenario.tracing, steps=scenario.steps)
        known["command"] = " ".join(("sglang-fence run", *EVERY, *scenario.arguments))
        known["traced"] = " ".join(scenario.tracing)
        return found | self._add(scenario.name, database, known)

    def _compare(self, name: str, database: Path, told: dict[str, Any], witness: Path) -> dict[str, Any]:
        calibrated = json.loads(witness.read_text(encoding="utf-8")) if witness.is_file() else {}

        def keep(moments: list[dict[str, Any]]) -> None:
            with gzip.open(self.out / f"{name}.moments.json.gz", "wt", encoding="utf-8") as file:
                json.dump({"calibrated": calibrated, "steps": moments}, file, separators=(",", ":"))

        return compare(database, told, calibrated, keep)

    def _add(self, name: str, database: Path, known: dict[str, Any]) -> dict[str, Any]:
        copy = self._work / f"{name}.stripped.sqlite"
        strip(database, copy)
        differs = unlike(analyse(copy), known)
        packed = gzip.compress(copy.read_bytes(), 9, mtime=0)
        kept = len(packed) <= MOST_BYTES
        folder = self.out / "doubtful" if differs else self.out
        if kept:
            folder.mkdir(exist_ok=True)
            (folder / f"{name}{SUFFIX}").write_bytes(packed)
            (folder / f"{name}.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        return {"steps": len(known["steps"]), "bytes": len(packed), "kept": kept, "differs": differs}

    def _run(self, command: list[str], environment: Mapping[str, str]) -> None:
        seconds = min(LONGEST_S, max(0.0, self._until - time.monotonic()) + GRACE_S)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=seconds, check=False, cwd=Path.cwd()
        )
        if done.returncode != 0:
            msg = f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}"
            raise RuntimeError(msg)

    def _version(self) -> str:
        command = [self._tool, "--version"]
        done = subprocess.run(command, env=self._tool_environment, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def _write(self) -> None:
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")


def _program(witness: Path | None, spin_us: float = 0.0) -> list[str]:
    asked = [] if witness is None else ["--witness", str(witness)]
    if spin_us:
        asked += ["--spin-us", str(spin_us)]
    return [sys.executable, "-m", "tests.analyze.making.serve", *asked, "run"]


def _columns(database: Path) -> dict[str, list[str]]:
    """Return the columns of the tables in which a record might have a moment, since tools differ in that."""
    with closing(sqlite3.connect(database)) as opened:
        tables = (
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            "CUDA_GRAPH_NODE_EVENTS",
        )
        return {
            table: [name for (name,) in opened.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            for table in tables
        }


def _library_path(folder: Path | None) -> dict[str, str]:
    if folder is None:
        return {}
    unpacked = Path(tempfile.mkdtemp(prefix="sglang-fence-libraries-"))
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)  # noqa: S607 - Debian's own
    found = sorted({str(path.parent) for path in unpacked.rglob("lib*.so*")})
    return {"LD_LIBRARY_PATH": ":".join([*found, os.environ.get("LD_LIBRARY_PATH", "")])}


def _find_tool() -> str:
    on_path = shutil.which("nsys")
    if on_path is not None:
        return on_path
    for top in ("/opt", "/usr/local"):
        for folder, _, files in os.walk(top):
            if "nsys" in files and os.access(Path(folder, "nsys"), os.X_OK) and Path(folder, "nsys").is_file():
                return str(Path(folder, "nsys"))
    found = subprocess.run(
        ["find", "/", "-xdev", "-name", "nsys", "-type", "f"],  # noqa: S607 - wherever it is
        capture_output=True,
        text=True,
        check=False,
    )
    lines = found.stdout.split()
    if not lines:
        msg = "there is no nsys on this machine"
        raise SystemExit(msg)
    return lines[0]


def main() -> None:
    """Read the command line and make them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--libraries", type=Path, help="a folder of .deb packages that nsys needs and that are missing")
    parser.add_argument("--seconds", type=float, default=190.0)
    parser.add_argument("--only", default="", help="scenarios, separated by commas; untraced is one")
    given = parser.parse_args()
    only = {name for name in given.only.split(",") if name}
    unknown = only - {"untraced", *(scenario.name for scenario in SCENARIOS)}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    given.out.mkdir(parents=True, exist_ok=True)
    Making(given.out, _find_tool(), given.libraries, given.seconds, only).all()


if __name__ == "__main__":
    main()
