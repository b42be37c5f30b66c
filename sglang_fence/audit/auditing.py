"""One case, from its engine to its verdict: by poison on any device, by happens-before on the simulated one."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.cases import CANDIDATES, Case
from sglang_fence.audit.costs import Timing
from sglang_fence.audit.delays import delays_for, simulated_costs
from sglang_fence.audit.device import ON_TRIAL, AuditDevice
from sglang_fence.audit.examining import Examined, Examiner
from sglang_fence.audit.ordering import OrderKeeper
from sglang_fence.audit.phases import Phases
from sglang_fence.audit.poison import other_values
from sglang_fence.audit.tally import Tally
from sglang_fence.audit.verdicts import CaseVerdict
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.engine.requests import Request, SamplingParams
from sglang_fence.environ import Switches
from sglang_fence.models.loading import EMBEDDED, ModelOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.audit.costs import Remaining
    from sglang_fence.contract import SharedReadEnds
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.speculative.algorithm import AlgorithmRegistry

_REPEATS, _REPEATS_IN_VIRTUAL_TIME = 20, 3
_CONTEXT = 96
_TIMED_WAVES = 4
_LINES = 3
"""Requests at once: one less than a captured batch size, so that there is padding."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How a case is audited."""

    model: str = EMBEDDED
    candidates: Sequence[SharedReadEnds] = CANDIDATES
    repeats: int | None = None
    """Runs with fresh data for each claim, end and buffer; None: 20; in virtual time, where all come out alike, 3."""
    seed: int = 0
    costs: bool = True
    """Whether a real device is timed, with an engine of its own, where an earlier end would be sound."""
    on_trial: Sequence[str] = ON_TRIAL
    """Names of the buffers that are overwritten."""
    algorithms: AlgorithmRegistry | None = field(default=None, compare=False)
    """None: the built-in ones."""


def engine_options(case: Case, model: str) -> EngineOptions:
    """Return what the case is served with: pages and windows so short that every buffer matters in every step.

    The embedded model gets a sliding window in all layers but one, so that the mapping is read too, and what is read
    of it matters: to each part of a backend that takes turns at layers, to each layer of a block draft, which has the
    target's first two, and behind every break of a breakable graph. The other one selects pages where a backend does.
    """
    embedded = model == EMBEDDED
    return EngineOptions(
        model=ModelOptions(
            model,
            context_len=_CONTEXT,
            sliding_window=16 if embedded else None,
            sliding_layers=(0, 1, 3) if embedded else None,
        ),
        attention=case.attention,
        speculative=case.speculative,
        graph=case.graph,
        fence="fine",
        max_running=_LINES + 1,
        chunk=64,
        page_size=4,
        switches=Switches(),
    )


def poison(
    case: Case,
    device: DeviceModule,
    options: AuditOptions | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> CaseVerdict:
    """Audit by poison.

    Args:
        case: what to audit.
        device: where; on the simulated one, made with ``simulated_costs()``, order is time's and each run comes out
            the same.
        options: how.
        stop: asked before each run; once it is true, the rest is left undone, and everything put back.

    Raises:
        UserError: the case can't be served.
    """
    options = options or AuditOptions()
    planted = AuditDevice(device, delays_for(device), options.on_trial)
    engine = Engine(planted, engine_options(case, options.model), algorithms=options.algorithms)
    tally = examine(engine, planted, options, stop=stop)
    engine.close()
    return tally


def examine(
    engine: Engine,
    device: AuditDevice,
    options: AuditOptions,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> CaseVerdict:
    """Audit an engine that is idle, and leave it as it was: with requests of the audit's own, all of them served.

    Raises:
        ConfigError: one of them can't be served with the engine's options.
    """
    repeats = options.repeats or (_REPEATS if device.virtual_seconds() is None else _REPEATS_IN_VIRTUAL_TIME)
    tally = Tally(options.candidates, repeats)
    phases = Phases(engine)
    examiner = Examiner(
        engine,
        device,
        phases,
        tally,
        other_values(engine.memory.kv, engine.model.vocab_size),
        stop,
    )
    rounds = 0
    try:
        with Examined(engine, examiner):
            # Each wave has one extend, so that there are waves enough once every run was in time.
            while not stop() and rounds < 2 * repeats and (not rounds or tally.wanting):
                engine.serve(wave(engine, options.seed + rounds))
                rounds += 1
    finally:
        phases.remove()
    done = engine.options
    verdict = CaseVerdict(Case(done.attention, done.speculative, done.graph), f"poison on {_described(device)}")
    verdict.missed = tally.missed
    verdict.claims = tally.verdicts()
    verdict.unheard = examiner.unheard
    if stop():
        verdict.not_done = tally.wanting if tally.known else ["everything: no step had been examined"]
    return verdict


def happens_before(case: Case, options: AuditOptions | None = None) -> CaseVerdict:
    """Audit by order alone: exact, for all interleavings with the same synchronisation.

    Raises:
        UserError: the case can't be served.
    """
    options = options or AuditOptions()
    simulated = SimulatedDevice(simulated_costs())
    planted = AuditDevice(simulated, None, options.on_trial)
    engine = Engine(planted, engine_options(case, EMBEDDED), algorithms=options.algorithms)
    keeper = OrderKeeper(engine, planted, simulated)
    try:
        for number in range(3):
            engine.serve(wave(engine, options.seed + number))
    finally:
        keeper.remove()
    engine.close()
    return keeper.verdict(case, options.candidates)


def remaining(case: Case, device: DeviceModule, options: AuditOptions) -> Remaining:
    """Time the moments of a case on an engine in which nothing is planted that takes time."""
    engine = Engine(device, engine_options(case, options.model), algorithms=options.algorithms)
    timing = Timing(engine, device)
    try:
        for number in range(_TIMED_WAVES):
            engine.serve(wave(engine, options.seed + number))
    finally:
        timing.remove()
    engine.close()
    return timing.remaining()


def _described(device: DeviceModule) -> str:
    """Name the chip, where there is one."""
    place = device.torch_device
    return torch.cuda.get_device_name(place) if place.type == "cuda" else f"the {device.name} device"


def wave(engine: Engine, seed: int) -> list[Request]:
    """Make requests of different lengths, two with a common beginning, that decode in several steps.

    In every third wave they are longer than a chunk, so that extends follow on one another.
    """
    long = seed % 3 == 2  # noqa: PLR2004 - the third
    rng = random.Random(seed)  # noqa: S311 - the same requests for the same seed
    vocabulary = min(engine.model.vocab_size, 256)
    most = 4 if engine.options.speculative == "none" else 4 * (engine.options.draft_tokens + 1)
    common = [rng.randrange(1, vocabulary) for _ in range(8)]
    requests: list[Request] = []
    for index in range(_LINES):
        own = [rng.randrange(1, vocabulary) for _ in range(rng.randint(24, 36) if long else rng.randint(3, 12))]
        prompt = common + own if index < _LINES - 1 else own
        requests.append(Request(index, prompt, SamplingParams(max_new_tokens=most + 2 * index)))
    for request in requests:
        engine.check(request)
    return requests
