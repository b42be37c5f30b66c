"""Engines of a GPU run, each a process of its own: with the plugin and without, side by side, asked in turn.

``FENCE_TEST_ENGINE`` has more arguments for each, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
HELPERS = HERE.parent / "helpers"
PLUGINS = ("barrier_counting", "ledger_dump")

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
        observed: whether the test plugins count and dump; not where throughput is measured.
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
        observed: bool = True,
    ) -> None:
        self.folder = scratch / name
        self.folder.mkdir(parents=True, exist_ok=True)
        names = ["sglang_fence", *(PLUGINS if observed else ())] if plugin else ["none"]
        dist = self.folder / "plugins/fence_test_plugins-1.dist-info"
        dist.mkdir(parents=True, exist_ok=True)
        (dist / "METADATA").write_text("Metadata-Version: 2.1\nName: fence-test-plugins\nVersion: 1\n")
        rows = [f"{one} = {one}:register" for one in PLUGINS]
        (dist / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *rows, ""]))
        search = [str(dist.parent), str(HELPERS), os.environ.get("PYTHONPATH", "")]
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
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()

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
        """Return the ledger, once all that was counted is in it, or after 10 s."""
        deadline = time.monotonic() + 10
        while True:
            (path,) = self.folder.glob("ledger.*.json")
            found: dict[str, Any] = json.loads(path.read_text())
            steps = sum(cell["steps"] for cell in found["cells"])
            if steps == self.counted().total() or time.monotonic() > deadline:
                return found
            time.sleep(0.2)
