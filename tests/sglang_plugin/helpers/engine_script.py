"""Run by a test: an in-process engine that generates, and is shut down. Prints tokens, then the processes left."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

if __name__ == "__main__":
    psutil: Any = import_module("psutil")
    sglang: Any = import_module("sglang")
    engine = sglang.Engine(
        model_path=sys.argv[1],
        device="cpu",
        load_format="dummy",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        dtype="float32",
        mem_fraction_static=0.05,
        max_total_tokens=4096,
        max_running_requests=8,
        disable_cuda_graph=True,
        skip_server_warmup=True,
        random_seed=1,
    )
    replies = engine.generate(
        input_ids=json.loads(sys.argv[2]),
        sampling_params={"max_new_tokens": 6, "temperature": 0, "ignore_eos": True},
    )
    print(json.dumps({"tokens": [reply["output_ids"] for reply in replies]}))  # noqa: T201 - read by the test
    engine.shutdown()
    found = psutil.Process().children(recursive=True)
    left = [child.pid for child in found if child.status() != psutil.STATUS_ZOMBIE]  # killed, and not asked for yet
    print(json.dumps({"left": left}))  # noqa: T201 - as above
