"""The process of an audit of SGLang: an engine with dummy weights that is asked to decode until the verdict is in.

    python -m sglang_fence.sglang_plugin.audit.engine MODEL VERDICT ARGUMENTS [TOKENS]

``ARGUMENTS`` are the engine's, as JSON, over :data:`ENGINE`. With ``TOKENS``, fifty requests are served afterwards, and
their tokens written to that file. Without a file to write the verdict to (``-``), nothing is audited.
"""

from __future__ import annotations

import json
import os
import random
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ENGINE = {
    "load_format": "dummy",
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "skip_tokenizer_init": True,
    "max_running_requests": 8,
    "max_total_tokens": 4096,
    "cuda_graph_bs_decode": [1, 2, 4, 8],
    "disable_prefill_cuda_graph": True,
    "disable_radix_cache": True,
    "mem_fraction_static": 0.3,
    "random_seed": 1,
    "skip_server_warmup": True,
}
_WAVES = 40
_LINES, _PROMPT, _NEW = 3, 24, 8
_FIFTY = 50


def _ask(engine: Any, vocabulary: int, seed: int, count: int = _LINES) -> list[list[int]]:  # noqa: ANN401 - SGLang's engine
    numbers = random.Random(seed)  # noqa: S311 - no secret
    prompts = [[numbers.randrange(2, vocabulary) for _ in range(_PROMPT + line % 7)] for line in range(count)]
    sampling = {"max_new_tokens": _NEW, "temperature": 0, "ignore_eos": True}
    return [reply["output_ids"] for reply in engine.generate(input_ids=prompts, sampling_params=sampling)]


def main(model: str, verdict: str, arguments: str, tokens: str | None = None) -> None:
    """Run."""
    sglang: Any = import_module("sglang")
    vocabulary: int = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    engine = sglang.Engine(model_path=model, **{**ENGINE, **json.loads(arguments)})
    file = Path(verdict)
    for seed in range(0 if verdict == "-" else _WAVES):
        _ask(engine, vocabulary, seed)
        if not file.exists() or not json.loads(file.read_text(encoding="utf-8"))["left"]:
            break
    if tokens is not None:
        Path(tokens).write_text(json.dumps(_ask(engine, vocabulary, 1000, _FIFTY)) + "\n", encoding="utf-8")
    engine.shutdown()


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main(*sys.argv[1:])
