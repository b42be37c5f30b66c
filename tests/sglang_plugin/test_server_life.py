"""The ends of real servers on a CPU: SIGTERM, a restart in the same place, an engine that is shut down."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.sglang_plugin.controls import files_left, prompts
from tests.sglang_plugin.serving import (
    HELPERS,
    alive,
    by,
    children,
    free_port,
    samples,
    search_path,
    serve,
    stop,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sglang_plugin.controls import Control

pytestmark = pytest.mark.sglang


def test_a_server_starts_again_on_its_port_and_in_its_folder_of_metrics(
    environment: Path, tmp_path: Path, control: Callable[[Path], Control]
) -> None:
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    port, expected = free_port(), control(environment).tokens
    logs: list[str] = []
    for run in (1, 2):
        # Counts of both runs go to one folder, as their metrics do.
        with serve(environment, tmp_path, environ={"PROMETHEUS_MULTIPROC_DIR": str(metrics)}, port=port) as server:
            assert server.generate(prompts()) == expected
            text = server.settled()
            assert total(text, "sglang_fence_steps_total") == server.counted().total()
            assert by(text, "sglang_fence_barrier_enabled", "why") == {("switch",): 1}
            assert len(samples(text, "sglang_fence_config_info")) == 1
            below = children(server.process.pid)
            assert below
            assert stop(server) == 0, run
        assert not alive(below)
        logs.append(server.log.read_text(errors="replace"))
    assert not [line for log in logs for line in log.splitlines() if "sglang-fence" in line and "left out" in line]
    assert not any(re.findall(r'File "\S*sglang_fence\S*"', log) for log in logs)  # SGLang has tracebacks of its own
    assert {path.suffix for path in metrics.iterdir()} == {".db"}  # as prometheus_client leaves them
    expected_files = control(environment).files
    expected_files = expected_files | Counter(random=2 * expected_files["random"], metrics=1)  # SGLang's, of each run
    assert files_left(tmp_path) == expected_files


def test_an_engine_in_a_process_shuts_down_and_leaves_nothing(
    environment: Path, tmp_path: Path, control: Callable[[Path], Control]
) -> None:
    asked = prompts()[:8]
    command: list[str | Path] = [
        environment / "bin/python",
        HELPERS / "engine_script.py",
        environment / "tiny-llama",
        json.dumps(asked),
    ]
    variables = {
        **os.environ,
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_ENABLE_WAR_BARRIER": "1",
        "PYTHONPATH": search_path(tmp_path, ("barrier_counting",)),
    }
    done = subprocess.run(command, env=variables, capture_output=True, timeout=300, check=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines[0]["tokens"] == control(environment).tokens[:8]
    assert lines[1]["left"] == []
