"""One engine on a GPU, told by lines on its input what to generate: each is a JSON object, and so is each answer.

{"seed": 1, "batch": 32, "new_tokens": 256}  →  {"tokens_per_s": 6031.2, "digest": "…", "tokens": […]}
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ENGINE = {
    "load_format": "dummy",
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "skip_tokenizer_init": True,
    "dtype": "bfloat16",
    "max_running_requests": 64,
    "max_total_tokens": 20000,  # so that several engines fit on one GPU
    "cuda_graph_bs_decode": [1, 2, 4, 8, 16, 24, 32],
    "disable_prefill_cuda_graph": True,
    "mem_fraction_static": 0.9,  # of what is free at its start, which others that start beside it take from
    "random_seed": 1,
    "skip_server_warmup": True,
    "sleep_on_idle": True,  # an engine that waits for its turn takes no core from the one that runs
}


def say(**answer: object) -> None:
    """Answer."""
    print("ANSWER " + json.dumps(answer), flush=True)  # noqa: T201 - the protocol


def generate(engine: Any, vocabulary: int, *, seed: int, batch: int, new_tokens: int) -> None:  # noqa: ANN401 - SGLang's engine
    """Generate one block, and answer with its rate and tokens."""
    numbers = random.Random(seed)  # noqa: S311 - no secret
    prompts = [[numbers.randrange(2, vocabulary) for _ in range(64)] for _ in range(batch)]
    begun = time.perf_counter()
    replies = engine.generate(
        input_ids=prompts,
        sampling_params={"max_new_tokens": new_tokens, "temperature": 0, "ignore_eos": True},
    )
    took = time.perf_counter() - begun
    tokens = [reply["output_ids"] for reply in replies]
    say(
        tokens_per_s=sum(len(one) for one in tokens) / took,
        seconds=took,
        digest=hashlib.sha256(json.dumps(tokens).encode()).hexdigest(),
        tokens=tokens,
    )


if __name__ == "__main__":
    sglang: Any = import_module("sglang")
    vocabulary: int = json.loads((Path(sys.argv[1]) / "config.json").read_text())["vocab_size"]
    begun = time.perf_counter()
    engine = sglang.Engine(model_path=sys.argv[1], **{**ENGINE, **json.loads(sys.argv[2])})
    say(ready_s=time.perf_counter() - begun)
    for line in sys.stdin:
        generate(engine, vocabulary, **json.loads(line))
    engine.shutdown()
