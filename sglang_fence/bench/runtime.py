"""``bench runtime``: tokens a second of this runtime, of its plain loop, and of Transformers' ``generate``."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sglang_fence.bench.blocks import Measured, in_turns
from sglang_fence.bench.generating import Generator
from sglang_fence.bench.machine import describe
from sglang_fence.bench.random_model import ModelSize, write_checkpoint
from sglang_fence.bench.runtime_result import (
    AGAIN,
    COARSE,
    GENERATE,
    PLAIN,
    RUNTIME,
    BatchResult,
    RuntimeResult,
    TokenCheck,
)
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.errors import CapacityError, ConfigError, InternalError
from sglang_fence.models.loading import ModelOptions

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule

_TOLERANCES = {"float32": 1e-3, "bfloat16": 1.0}
"""What a token may fall short of the best, in standard deviations of the logits, by data type.

Float32 shows that the computation is the same: no more than a tie. In bfloat16 two orders of summing were 0.6 apart in
the worst of 4,096 tokens (H200); a token of another computation falls short by 3 and more."""

_SEED = 7

Serve = Callable[[Sequence[Sequence[int]], int], list[list[int]]]
"""From prompts of one length, and how many new tokens each gets, to those."""


@dataclass(frozen=True, slots=True)
class RuntimePlan:
    """What is measured."""

    size: ModelSize = field(default_factory=ModelSize)
    dtype: str = "bfloat16"
    attention: str = "native"
    batches: Sequence[int] = (1, 8, 32)
    prompt_tokens: int = 16
    new_tokens: int = 128
    rounds: int = 5

    def __post_init__(self) -> None:
        if self.new_tokens < 2:  # noqa: PLR2004 - the first comes from the prefill
            msg = f"--new-tokens {self.new_tokens}: give 2 or more; the first is the prefill's"
            raise ConfigError(msg)
        if not self.batches or min(self.batches) < 1:
            msg = f"--batches {','.join(map(str, self.batches))}: give sizes of 1 or more"
            raise ConfigError(msg)

    def prompts(self, batch: int) -> list[list[int]]:
        """Return ``batch`` prompts of random tokens, the same each time."""
        source = random.Random(_SEED)  # noqa: S311 - reproducible prompts, no secret
        return [[source.randrange(self.size.vocab_size) for _ in range(self.prompt_tokens)] for _ in range(batch)]

    def options(self, folder: Path, dtype: str) -> EngineOptions:
        """Return the runtime's options; the context is just as long as the static cache of ``generate``."""
        context = self.prompt_tokens + self.new_tokens
        return EngineOptions(
            model=ModelOptions(str(folder), dtype=dtype, context_len=context),
            attention=self.attention,
            max_running=max(self.batches),
            chunk=max(512, max(self.batches) * self.prompt_tokens),  # a batch is prefilled at once, as generate does
            prefix_cache=False,
            fence="fine",
        )


def measure(device: DeviceModule, plan: RuntimePlan, on_phase: Callable[[str], None] = lambda _: None) -> RuntimeResult:
    """Check the tokens, then measure each batch size, each variant in turn.

    Args:
        device: where both run; on the simulated device the runtime's times include the simulation.
        plan: what is measured.
        on_phase: told what is done next.

    Raises:
        ModelError: Transformers isn't installed.
        UserError: options that can't be served.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_checkpoint(plan.size, folder, getattr(torch, plan.dtype))
        on_phase("tokens")
        checks = tuple(_check_tokens(device, plan, folder, dtype) for dtype in dict.fromkeys(("float32", plan.dtype)))
        on_phase("captures")
        variants = _variants(device, plan, folder)
    batches: list[BatchResult] = []
    for batch in plan.batches:
        on_phase(f"batch {batch}")
        batches.append(_measure_batch(device, plan, batch, variants))
    settings = {
        "model": plan.size.to_json(),
        "dtype": plan.dtype,
        "attention": plan.attention,
        "prompt_tokens": plan.prompt_tokens,
        "new_tokens": plan.new_tokens,
        "rounds": plan.rounds,
    }
    return RuntimeResult(describe(device), settings, checks, tuple(batches))


def served_by(engine: Engine) -> Serve:
    """Return what serves prompts greedily on ``engine`` and gives their tokens.

    What it returns raises CapacityError where a request was retracted: its time isn't comparable.
    """

    def serve(prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
        params = SamplingParams(max_new_tokens=new_tokens)
        asked = [Request(index, list(prompt), params) for index, prompt in enumerate(prompts)]
        for request in asked:
            engine.check(request)
        retracted = engine.serve(asked).retractions
        if retracted:
            msg = (
                f"with {len(asked)} requests at once there were {retracted} retractions, whose tokens were computed "
                "twice for want of room in the KV pool: speeds can't be compared; give smaller --batches"
            )
            raise CapacityError(msg)
        failed = [request.error for request in asked if request.error is not None]
        if failed:
            msg = f"a request of the benchmark failed: {failed[0]}"
            raise InternalError(msg)
        return [request.output for request in asked]

    return serve


def _variants(device: DeviceModule, plan: RuntimePlan, folder: Path) -> dict[str, Serve]:
    options = plan.options(folder, plan.dtype)
    engines = {
        RUNTIME: options,
        AGAIN: options,
        COARSE: replace(options, fence="coarse"),
        PLAIN: replace(options, overlap=False),
    }
    generator = Generator(folder, device.torch_device, getattr(torch, plan.dtype))
    return {**{name: served_by(Engine(device, one)) for name, one in engines.items()}, GENERATE: generator.generate}


def _check_tokens(device: DeviceModule, plan: RuntimePlan, folder: Path, dtype: str) -> TokenCheck:
    generator = Generator(folder, device.torch_device, getattr(torch, dtype))
    prompts = plan.prompts(max(plan.batches))
    ours = served_by(Engine(device, plan.options(folder, dtype)))(prompts, plan.new_tokens)
    theirs = generator.generate(prompts, plan.new_tokens)
    lengths = {len(output) for output in (*ours, *theirs)}
    if lengths != {plan.new_tokens}:
        msg = f"outputs have {sorted(lengths)} tokens, where {plan.new_tokens} were asked for"
        raise InternalError(msg)
    pairs = [zip(own, other, strict=True) for own, other in zip(ours, theirs, strict=True)]
    return TokenCheck(
        dtype=dtype,
        tokens=len(prompts) * plan.new_tokens,
        equal=sum(len(list(takewhile(lambda pair: pair[0] == pair[1], pair))) for pair in pairs),
        shortfall=generator.shortfall(prompts, ours),
        own_shortfall=generator.shortfall(prompts, theirs),
        tolerance=_TOLERANCES[dtype],
    )


@dataclass(frozen=True, slots=True)
class _Block:
    whole_s: float
    first_s: float
    """Of a run that ends with its first token: the prefill, and what a run costs by itself."""


def _measure_batch(device: DeviceModule, plan: RuntimePlan, batch: int, variants: dict[str, Serve]) -> BatchResult:
    prompts = plan.prompts(batch)

    def block(serve: Serve) -> Callable[[], _Block]:
        def timed(new_tokens: int) -> float:
            device.synchronize()
            began = time.perf_counter()
            serve(prompts, new_tokens)
            device.synchronize()
            return time.perf_counter() - began

        return lambda: _Block(first_s=timed(1), whole_s=timed(plan.new_tokens))

    rows = in_turns({name: block(serve) for name, serve in variants.items()}, rounds=plan.rounds)

    def compared(figure: Callable[[_Block], float]) -> dict[str, Measured]:
        base = [figure(row[GENERATE]) for row in rows]
        return {name: Measured.of([figure(row[name]) for row in rows], base) for name in variants}

    return BatchResult(
        batch,
        step_us=compared(lambda one: 1e6 * (one.whole_s - one.first_s) / (plan.new_tokens - 1)),
        tokens_per_s=compared(lambda one: batch * plan.new_tokens / one.whole_s),
    )
