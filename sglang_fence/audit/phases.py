"""Hearing of phases: what an engine's runners load, replay and publish, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sglang_fence.audit.cases import Claim
from sglang_fence.speculative.worker import SpeculativeWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.engine.engine import Engine
    from sglang_fence.fence.events import Marker
    from sglang_fence.graphs.parts import CapturedForward
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.work import ForwardWork


@dataclass(slots=True)
class Phase:
    """One forward of a step."""

    runner: ModelRunner
    backend: AttentionBackend
    batch: ForwardBatch
    number: int
    """Of the step's phases, in the order in which their metadata is prepared."""
    graph: CapturedForward | None = None
    """What replays; None: it runs eagerly, or isn't launched yet."""

    @property
    def claim(self) -> Claim:
        """Whom its reads bear out or refute."""
        return Claim("phase", self.runner.role, self.backend.name, self.batch.mode)

    @property
    def marker(self) -> Marker | None:
        """The marker that its graph hands out."""
        return None if self.graph is None else self.graph.in_graph_metadata_prep_done


class Listener:
    """Hears of a step's phases, on the forward stream. Every method does nothing here."""

    def before_metadata(self, phase: Phase) -> None:
        """The batch is loaded; its metadata outside the graph is about to be prepared."""

    def after_metadata(self, phase: Phase) -> None:
        """The metadata is prepared; another phase may come before this one's replay."""

    def before_replay(self, phase: Phase) -> None:
        """PRE_REPLAY: the replay is about to be launched."""

    def after_replay(self, phase: Phase) -> None:
        """POST_REPLAY: it was launched; IN_REPLAY's marker is armed."""


class Phases:
    """Tells whoever listens at the moment. Put between an engine's runners and their forwards; can be taken out again.

    Args:
        engine: to listen to.
    """

    def __init__(self, engine: Engine) -> None:
        self.listener = Listener()
        self._count = 0
        self._prepared: dict[int, Phase] = {}
        self._before: list[tuple[ModelRunner, Callable[..., None], Callable[..., None]]] = []
        for runner in runners_of(engine):
            self._before.append((runner, runner.prepare_metadata, runner.replay))
            runner.prepare_metadata = partial(self._prepare, runner, runner.prepare_metadata)
            runner.replay = partial(self._replay, runner.replay)

    def remove(self) -> None:
        """Leave the engine as it was."""
        for runner, prepare, replay in self._before:
            runner.prepare_metadata, runner.replay = prepare, replay

    def begin(self, listener: Listener) -> None:
        """A step is about to be launched; ``listener`` hears of its phases."""
        self.listener = listener
        self._count = 0
        self._prepared.clear()

    def _prepare(
        self,
        runner: ModelRunner,
        prepare: Callable[..., None],
        backend: AttentionBackend,
        batch: ForwardBatch,
    ) -> None:
        phase = Phase(runner, backend, batch, self._count)
        self._count += 1
        self._prepared[id(batch)] = phase
        self.listener.before_metadata(phase)
        prepare(backend, batch)
        self.listener.after_metadata(phase)

    def _replay(
        self,
        replay: Callable[..., None],
        graph: CapturedForward | None,
        backend: AttentionBackend,
        batch: ForwardBatch,
        work: ForwardWork,
    ) -> None:
        phase = self._prepared[id(batch)]
        phase.graph = graph
        self.listener.before_replay(phase)
        replay(graph, backend, batch, work)
        self.listener.after_replay(phase)


def runners_of(engine: Engine) -> list[ModelRunner]:
    """Every runner of an engine, the target's first."""
    worker = engine.worker
    return list(worker.runners) if isinstance(worker, SpeculativeWorker) else [engine.runner]


def reads_last(engine: Engine, phase: Phase) -> bool:
    """Whether nothing of the step just launched reads after ``phase``: the worker's and algorithm's answer (R3)."""
    worker = engine.worker
    own = phase.runner.shared_read_done is worker.last_shared_read_mailbox
    return own and worker.is_last_shared_read_phase(phase.batch.mode)
