"""Engines of a GPU run, each a process of its own: with the plugin and without, side by side, asked in turn.

``FENCE_TEST_ENGINE`` has more arguments for each, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
HELPERS = HERE.parent / "helpers"
ROOT = HERE.parents[2]
PLUGINS = ("barrier_counting", "ledger_dump", "forcing")
OBSERVING = PLUGINS[:2]
PATIENCE_S = 15.0
"""A dump that was asked for is there within a fraction of a second."""

EAGLE = {
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


class Engine:
    """One engine.

    Args:
        name: for its files.
        model: a folder of models, and which of them.
        eagle: whether it speculates.
        plugin: whether the plugin is loaded.
        environ: more variables.
        plugins: test plugins; by default those beside it: barriers are counted by one of their own, and the ledger is
            dumped.
    """

    def __init__(
        self,
        name: str,
        model: Path,
        scratch: Path,
        *,
        eagle: bool = False,
        plugin: bool = True,
        environ: Mapping[str, str] | None = None,
        plugins: tuple[str, ...] | None = None,
    ) -> None:
        if plugins is None:
            plugins = OBSERVING if plugin else ()
        self.name = name
        self.folder = scratch / name
        self.folder.mkdir(parents=True, exist_ok=True)
        names = ["sglang_fence", *plugins] if plugin else list(plugins) or ["none"]
        dist = self.folder / "plugins/fence_test_plugins-1.dist-info"
        dist.mkdir(parents=True, exist_ok=True)
        (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: fence-test-plugins\nVersion: 1\n")
        rows = [f"{one} = {one}:register" for one in PLUGINS]
        (dist / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *rows, ""]))
        self._asked = self.folder / "ask"
        self._counts = plugin and "barrier_counting" in plugins
        ours = map(str, (dist.parent, HELPERS, ROOT, ROOT / "exporters"))  # this tree, before what is installed
        search = [*ours, os.environ.get("PYTHONPATH", "")]
        variables = {
            **os.environ,
            "SGLANG_PLUGINS": ",".join(names),
            "FENCE_TEST_COUNTS": str(self.folder),
            "FENCE_TEST_DUMP": str(self.folder),
            "PYTHONPATH": os.pathsep.join(search),
            **(environ or {}),
        }
        extra: dict[str, object] = json.loads(os.environ.get("FENCE_TEST_ENGINE", "{}"))
        if eagle:
            extra |= {**EAGLE, "speculative_draft_model_path": f"{model}_eagle"}
        self.log = self.folder / "engine.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "worker.py"), str(model), json.dumps(extra)],
                env=variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let the engine shut down; kill it where it doesn't. A second time does nothing."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            RuntimeError: the engine ended.
        """
        if self.process.stdout is not None:
            for line in self.process.stdout:
                if line.startswith("ANSWER "):
                    found: dict[str, Any] = json.loads(line.removeprefix("ANSWER "))
                    return found
        msg = f"the engine ended:\n{self.log.read_text(errors='replace')[-4000:]}"
        raise RuntimeError(msg)

    def generate(self, seed: int, batch: int = 32, new_tokens: int = 256) -> dict[str, Any]:
        """Generate one block."""
        if self.process.stdin is not None:
            self.process.stdin.write(json.dumps({"seed": seed, "batch": batch, "new_tokens": new_tokens}) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def counted(self) -> Counter[tuple[str, str]]:
        """Return barriers by mode and fence, as the test plugin counted them."""
        lines = [line for path in self.folder.glob("barriers.*") for line in path.read_text().splitlines()]
        return Counter((mode.lower(), fence) for mode, fence in (line.split() for line in lines))

    def ledger(self) -> dict[str, Any]:
        """Return the ledger as it is now; where barriers are counted, once all of them are in it.

        Raises:
            RuntimeError: nothing was dumped.
        """
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        number = 0
        while True:
            number += 1
            asked = f"{time.monotonic_ns()}-{number}"
            self._asked.write_text(asked)
            while (found := self._dumped(asked)) is None:
                if time.monotonic() > deadline:
                    msg = f"nothing was dumped:\n{self.log.read_text(errors='replace')[-4000:]}"
                    raise RuntimeError(msg)
                pause.wait(0.05)
            steps = sum(cell["steps"] for cell in found["cells"])
            if not self._counts or steps == self.counted().total() or time.monotonic() > deadline:
                return found

    def force(self, how: int) -> None:
        """Let every fence be coarse from here on (1), none that needn't be (0), or so many in turn (see ``forcing``).

        Raises:
            RuntimeError: the engine doesn't say that it is so.
        """
        asked, told = str(how), self.folder / "forced"
        (self.folder / "force").write_text(asked)
        deadline, pause = time.monotonic() + PATIENCE_S, threading.Event()
        while not told.exists() or told.read_text() != asked:
            if time.monotonic() > deadline:
                msg = f"fences aren't forced:\n{self.log.read_text(errors='replace')[-4000:]}"
                raise RuntimeError(msg)
            pause.wait(0.05)

    def took_us(self) -> list[tuple[bool, float]]:
        """Return each decode while fences were forced in turn: whether its own was, and how long the step took."""
        pairs = (line.split() for line in (self.folder / "took").read_text().splitlines())
        return [(forced == "1", float(us)) for forced, us in pairs]

    def _dumped(self, asked: str) -> dict[str, Any] | None:
        """Return the dump that answers what was asked for, if it is there."""
        for path in self.folder.glob("ledger.*.json"):
            found: dict[str, Any] = json.loads(path.read_text())
            if found["asked"] == asked:
                return found
        return None
