"""``sglang-fence audit --sglang`` on a real engine: its decode graph runner on a CPU, where a graph is a closure.

Torch-native attention, all that a CPU has, reads the table in every layer. It inherits a declaration that holds for
graphs whose metadata is gathered at their start. It is never captured in earnest, so that nobody is hurt; but an
audit has to call that unsound.
"""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from sglang_fence.errors import ConfigError
from sglang_fence.sglang_plugin.audit import command
from sglang_fence.sglang_plugin.audit.hooks import Hooks, install_audit
from sglang_fence.sglang_plugin.audit.switches import REPEATS, VERDICT, AuditSwitches
from tests.sglang_plugin.serving import HELPERS, plugin_folder

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.sglang_plugin.audit.shapes import AuditedBatch, AuditedRunner

ENGINE = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "dtype": "float32",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.05,
}


def _run(environment: Path, scratch: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {
        **os.environ,
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_ENABLE_WAR_BARRIER": "1",
        "FENCE_TEST_GRAPHS": "marker",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join([str(plugin_folder(scratch, ("cpu_graphs",))), str(HELPERS)]),
        command.ARGUMENTS: json.dumps(ENGINE),
        **variables,
    }
    program = [str(environment / "bin/python"), "-m", *arguments]
    return subprocess.run(program, env=environ, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.sglang
def test_a_backend_that_reads_live_is_unsound_and_the_engine_serves_on_as_if_nothing_had_been(
    environment: Path, tmp_path: Path
) -> None:
    file, audited, never = tmp_path / "verdict.json", tmp_path / "audited.json", tmp_path / "never.json"
    model = str(environment / "tiny-llama")
    made = _run(
        environment,
        tmp_path,
        *("sglang_fence", "audit", "--sglang", "--repeats", "3", "--model", model, "--json", str(file)),
        **{command.TOKENS: str(audited)},
    )
    assert made.returncode == 1, made.stderr
    assert "TorchNativeAttnBackend (target, decode) declares IN_REPLAY: UNSOUND." in made.stdout
    assert "The earliest sound end is POST_REPLAY." in made.stdout
    verdict = json.loads(file.read_text())
    assert verdict["missed"] == []
    assert verdict["left"] == []
    (claim,) = verdict["claims"]
    ends = {one["ends"]: one["buffers"][0] for one in claim["ends"]}
    assert {one["buffer"] for one in ends.values()} == {"req_to_token"}
    # One run more for a batch size that came up behind the third.
    runs = {name: one["runs"] for name, one in ends.items()}
    assert all(count >= 3 for count in runs.values())
    assert {name: one["diverged"] for name, one in ends.items()} == {**runs, "POST_REPLAY": 0}
    assert len(ends["IN_REPLAY"]["rows"]) == 3
    control = _run(
        environment,
        tmp_path,
        *("sglang_fence.sglang_plugin.audit.engine", model, "-", json.dumps(ENGINE), str(never)),
    )
    assert control.returncode == 0, control.stderr
    tokens = json.loads(audited.read_text())
    assert len(tokens) == 50
    assert tokens == json.loads(never.read_text())


class TestAsking:
    """Nobody is audited who didn't ask."""

    def test_without_the_variable_nothing_is_registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(VERDICT, raising=False)
        assert AuditSwitches.from_environ() is None
        assert not install_audit()

    def test_with_it_the_observer_stays_away(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv(VERDICT, str(tmp_path / "verdict.json"))
        monkeypatch.setenv(REPEATS, "7")
        asked = AuditSwitches.from_environ()
        assert asked is not None
        assert (asked.verdict, asked.repeats) == (tmp_path / "verdict.json", 7)
        assert install_audit()  # no scheduler is loaded here: nothing is registered, and nobody else registers

    def test_an_engine_with_a_model_is_refused_before_anything_is_run(self, tmp_path: Path) -> None:
        runner = SimpleNamespace(model_runner=SimpleNamespace(server_args=SimpleNamespace(load_format="auto")))
        hooks, ran = Hooks(AuditSwitches(tmp_path / "verdict.json", 1)), list[object]()
        with pytest.raises(RuntimeError, match="it is for engines with dummy weights alone"):
            hooks.execute(ran.append, cast("AuditedRunner", runner), cast("AuditedBatch", None))
        assert ran == []

    def test_without_sglang_it_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def nowhere(_: str) -> None:
            """As if it weren't installed."""

        monkeypatch.setattr(command, "find_spec", nowhere)
        with pytest.raises(ConfigError, match="SGLang isn't installed here"):
            command.run_sglang("embedded", None, None)

    @pytest.mark.parametrize(
        ("model", "arguments", "message"),
        [("embedded", "{", "write a JSON object"), ("/nowhere", "{}", "takes a folder with a config.json")],
    )
    def test_what_is_wrong_is_said(
        self, model: str, arguments: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def there(_: str) -> str:
            return "sglang"

        monkeypatch.setattr(command, "find_spec", there)
        monkeypatch.setenv(command.ARGUMENTS, arguments)
        with pytest.raises(ConfigError, match=message):
            command.run_sglang(model, 1, None)
