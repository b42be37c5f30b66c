"""``sglang-fence audit --sglang``: an engine of its own, with dummy weights, audited and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from sglang_fence.errors import ConfigError, DeviceUnavailableError
from sglang_fence.models.loading import EMBEDDED
from sglang_fence.sglang_plugin.audit.switches import REPEATS, VERDICT

ARGUMENTS = "SGLANG_FENCE_AUDIT_ENGINE"
"""More arguments for the engine, as JSON: another attention backend, a speculative algorithm."""

TOKENS = "SGLANG_FENCE_AUDIT_TOKENS"
"""A file for the tokens of fifty requests that are served after the audit."""

_LONGEST_LOG = 4000
_REPEATS = 20

_TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def run_sglang(model: str, repeats: int | None, json_file: Path | None) -> int:
    """Audit the decode graphs of the SGLang that is installed; return the exit status: 0, or 1 if one is unsound.

    Args:
        model: a folder with a ``config.json``, whose weights are made up; ``embedded``: a small Llama.
        repeats: runs with fresh data for each candidate end and buffer; None: 20.
        json_file: for the verdict.

    Raises:
        ConfigError: SGLang isn't installed, or arguments that are no JSON.
        DeviceUnavailableError: its engine came to no verdict; the message has the end of its log.
    """
    if find_spec("sglang") is None:
        msg = "--sglang: SGLang isn't installed here; install it beside sglang-fence, in the same environment"
        raise ConfigError(msg)
    arguments = os.environ.get(ARGUMENTS, "{}")
    try:
        json.loads(arguments)
    except ValueError as error:
        msg = f"{ARGUMENTS}={arguments}: write a JSON object of arguments of sglang.Engine ({error})"
        raise ConfigError(msg) from error
    with tempfile.TemporaryDirectory(prefix="sglang-fence-audit-") as scratch:
        content = _audit(Path(scratch), model, arguments, repeats or _REPEATS)
    for text in content["sentences"]:
        typer.echo(text)
    if json_file is not None:
        json_file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if content["unsound"] or content["missed"] else 0


def _audit(scratch: Path, model: str, arguments: str, repeats: int) -> dict[str, Any]:
    folder = Path(model)
    if model == EMBEDDED:
        folder = scratch / "model"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(_TINY), encoding="utf-8")
    elif not (folder / "config.json").is_file():
        msg = f"--model {model}: --sglang takes a folder with a config.json; the weights are made up"
        raise ConfigError(msg)
    verdict, log = scratch / "verdict.json", scratch / "engine.log"
    tokens = os.environ.get(TOKENS)
    plugins = os.environ.get("SGLANG_PLUGINS")
    with log.open("wb") as out:
        subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", "sglang_fence.sglang_plugin.audit.engine", str(folder), str(verdict), arguments]
            + ([tokens] if tokens else []),
            env=os.environ
            | {VERDICT: str(verdict), REPEATS: str(repeats)}
            | ({} if plugins is None else {"SGLANG_PLUGINS": f"{plugins},sglang_fence"}),
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not verdict.exists():
        end = log.read_text(encoding="utf-8", errors="replace")[-_LONGEST_LOG:]
        msg = f"--sglang: the engine decoded nothing by a graph, so there is no verdict. Its log ends with: {end}"
        raise DeviceUnavailableError(msg)
    content: dict[str, Any] = json.loads(verdict.read_text(encoding="utf-8"))
    return content
