"""Prompts, their reference tokens from Transformers, and a run that is looked at step by step."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.models.loading import ModelOptions, embedded_causal_lm, embedded_config
from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.engine.scheduler import Scheduler
    from sglang_fence.observe.record import Phase, StepRecord
    from sglang_fence.speculative.algorithm import AlgorithmRegistry

ALGORITHMS = ("ngram", "standalone", "eagle", "multi_layer_eagle", "dflash", "dspark")
PLAIN_BACKENDS = ("native", "trtllm_mha", "hybrid:trtllm_mha,native", "tbo:native")
"""Those that compute plain attention, so that Transformers can be asked for the tokens."""

WINDOW = 32
CONTEXT = 372
"""The longest prompt, and as much as may follow it."""


class Prompt(NamedTuple):
    """A prompt and how much is to follow it."""

    tokens: tuple[int, ...]
    new_tokens: int


def prompts(count: int = 64, longest: int = 300) -> list[Prompt]:
    """Make prompts of 1 to ``longest`` tokens: some random, some with a common beginning, some that repeat."""
    rng = random.Random(8)  # noqa: S311 - the same prompts each time
    common = [rng.randrange(256) for _ in range(longest * 2 // 3)]
    made: list[Prompt] = []
    for index in range(count):
        length = (1, longest, 2)[index] if index < 3 else rng.randint(1, longest)
        if index % 3 == 0:
            tokens = [*common[: length // 2], *(rng.randrange(256) for _ in range(length - length // 2))]
        elif index % 3 == 1:
            unit = [rng.randrange(256) for _ in range(rng.randint(1, 9))]
            tokens = (unit * longest)[:length]
        else:
            tokens = [rng.randrange(256) for _ in range(length)]
        made.append(Prompt(tuple(tokens), 64 if index % 8 == 1 else 1 + index * 5 % 32))
    return made


@cache
def reference(window: int | None = None) -> Any:  # noqa: ANN401 - Transformers' model
    """Return the embedded model; with a sliding window as a Mistral, whose attention has one."""
    model = embedded_causal_lm()
    if window is None:
        return model
    from transformers import MistralConfig, MistralForCausalLM  # noqa: PLC0415 - slow to import

    sliding = MistralForCausalLM(MistralConfig(**embedded_config(), sliding_window=window)).eval()
    sliding.load_state_dict(model.state_dict())
    return sliding


@cache
def generated(prompt: Prompt, window: int | None = None) -> list[int]:
    """Return what Transformers generates."""
    with torch.inference_mode():
        out = reference(window).generate(
            torch.tensor([prompt.tokens]), max_new_tokens=prompt.new_tokens, do_sample=False
        )
    tokens: list[int] = out[0, len(prompt.tokens) :].tolist()
    return tokens


class Step(NamedTuple):
    """What is left of a step's record."""

    step: int
    mode: ForwardMode
    fence: FenceKind
    reason: FallbackReason | None
    declared: SharedReadEnds
    resolved: SharedReadEnds
    phases: tuple[Phase, ...]


class Steps(Observer):
    """Keeps every step."""

    def __init__(self) -> None:
        self.seen: list[Step] = []

    def step_finished(self, record: StepRecord) -> None:
        """Copy it: the record is reused."""
        self.seen.append(
            Step(
                record.step,
                record.mode,
                record.fence,
                record.reason,
                record.declared,
                record.resolved,
                tuple(record.phases),
            )
        )


@dataclass(frozen=True)
class Served:
    """What a run left behind."""

    device: SimulatedDevice
    engine: Engine
    scheduler: Scheduler
    requests: list[Request]
    steps: list[Step]

    @property
    def outputs(self) -> list[list[int]]:
        return [request.output for request in self.requests]

    @property
    def rounds(self) -> list[Step]:
        """Draft, verify, extend."""
        return [step for step in self.steps if step.mode is ForwardMode.TARGET_VERIFY]

    @property
    def prefills(self) -> list[Step]:
        return [step for step in self.steps if step.mode is ForwardMode.EXTEND]

    @property
    def acceptance(self) -> float:
        share = self.scheduler.acceptance
        assert share is not None
        return share


def serve(
    wanted: Sequence[Prompt],
    *,
    window: int | None = None,
    context_len: int = CONTEXT,
    device: SimulatedDevice | None = None,
    algorithms: AlgorithmRegistry | None = None,
    **options: Any,  # noqa: ANN401 - engine options
) -> Served:
    """Serve ``wanted``; see :class:`~sglang_fence.engine.options.EngineOptions`."""
    device = SimulatedDevice() if device is None else device
    steps = Steps()
    options.setdefault("model", ModelOptions(context_len=context_len, sliding_window=window))
    engine = Engine(device, EngineOptions(**options), [steps], algorithms)
    requests = [
        Request(index, list(prompt.tokens), SamplingParams(max_new_tokens=prompt.new_tokens))
        for index, prompt in enumerate(wanted)
    ]
    for request in requests:
        engine.check(request)
    scheduler = engine.serve(requests)
    engine.close()
    return Served(device, engine, scheduler, requests, steps.seen)


def check_explained(served: Served) -> None:
    """Every step was seen once; every coarse one has one reason, every other none."""
    assert [step.step for step in served.steps] == list(range(served.scheduler.steps))
    for step in served.steps:
        assert (step.reason is not None) is (step.fence is FenceKind.COARSE), step


def check_sound(served: Served) -> None:
    """No hazard, nothing resolved too early, every step explained, every event and every page given back."""
    assert served.device.hazards == []
    check_explained(served)
    for step in served.steps:
        assert all(phase.resolved >= phase.declared for phase in step.phases), step
    engine = served.engine
    assert engine.runner.pool.lent == 0
    kv = engine.memory.kv
    assert kv.allocator.available + kv.evictable == kv.allocator.pages
    assert all(mailbox.peek() is None for mailbox in engine.worker.mailboxes)


def check_tokens(served: Served, wanted: Sequence[Prompt], window: int | None = None) -> None:
    """The tokens are those of Transformers."""
    assert [request.error for request in served.requests] == [None] * len(wanted)
    for prompt, output in zip(wanted, served.outputs, strict=True):
        assert output == generated(prompt, window), f"prompt of {len(prompt.tokens)} tokens"
