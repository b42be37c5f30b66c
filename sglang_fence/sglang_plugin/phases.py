"""What the runners of a step served, and what lies in each owner's mailbox because of it.

A decode or verify graph says where its reads end before it replays, and publishes accordingly. Prefill publishes in one
function, whose effect is seen in the mailbox. An eager decode publishes nothing. EAGLE's draft-extend has a way of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, SharedReadEnds
from sglang_fence.observe.record import Phase
from sglang_fence.sglang_plugin.likeness import Extension, Graph
from sglang_fence.sglang_plugin.words import forward_mode, read_ends

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sglang_fence.contract import ForwardMode
    from sglang_fence.sglang_plugin.shapes import BackendLike, BatchLike, DraftExtendLike, RunnerLike
    from sglang_fence.sglang_plugin.steps import Steps
    from sglang_fence.sglang_plugin.words import Named

NO_MARKER = "no_marker"
"""Cause of a downgrade: the graph that replays carries no marker."""


class Served:
    """The last phase of a runner, and what SGLang said of it: a step that says the same is the same phase."""

    __slots__ = (
        "backend",
        "declared",
        "extender",
        "graph",
        "mode",
        "phase",
        "published",
        "reason",
        "resolved",
        "runner",
        "step",
    )

    def __init__(self, runner: RunnerLike) -> None:
        self.runner = runner
        self.step = -1
        self.phase: Phase | None = None
        self.published = False
        """Whether the runner put a read end into its mailbox."""
        self.reason: FallbackReason | None = None
        """Why not."""
        self.backend: BackendLike | None = None
        self.mode: Named | None = None
        self.declared: Named | None = None
        self.resolved: Named | None = None
        self.graph: object | None = None
        """The runner of graphs that replayed; None where it was none of decode or verify."""
        self.extender: DraftExtendLike | None = None
        """The runner of graphs that extended the draft; None where it was none."""

    @property
    def as_graph(self) -> Graph | None:
        """A decode or verify graph, if it was one."""
        backend, mode, declared, resolved = self.backend, self.mode, self.declared, self.resolved
        if self.graph is None or self.phase is None or backend is None or mode is None:
            return None
        if declared is None or resolved is None:
            return None
        return Graph(self.graph, self.runner, backend, mode, declared, resolved, self.phase)

    @property
    def as_extension(self) -> Extension | None:
        """A draft-extend by a graph, if it was one that published nothing."""
        backend, mode, declared = self.backend, self.mode, self.declared
        if self.extender is None or self.phase is None or self.published:
            return None
        if backend is None or mode is None or declared is None:
            return None
        return Extension(self.extender, backend, mode, declared, self.phase)


@dataclass(slots=True)
class Serving:
    """A runner below a model runner is at work on a batch, and hasn't said yet how it came out."""

    runner: RunnerLike
    batch: BatchLike
    mode: Named
    """Of the batch, as it came."""
    marked: AbstractContextManager[None] | None = None
    """Its range."""
    told: bool = False


class Phases:
    """Keeps the last phase of each runner, and tells the step of each."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        """Warm-up and capture run batches too, while none is open."""
        self.served: dict[int, Served] = {}
        """By the identity of the runner: there is a handful of them, which live as long as the scheduler."""
        self.serving: list[Serving] = []
        """Innermost last."""
        self.unsound_seen = False
        """Whether a resolution was earlier than its declaration: that is warned of once."""

    def mark(self, name: str) -> AbstractContextManager[None] | None:
        """Begin a range of the step in progress."""
        steps = self.steps
        return steps.range(name) if steps.marks and steps.current.open else None

    def tell_again(
        self,
        runner: RunnerLike,
        backend: BackendLike,
        mode: Named,
        resolved: Named,
        graph: object | None = None,
        extender: DraftExtendLike | None = None,
    ) -> bool:
        """Tell the step of the phase that ``runner`` served last, if it is the same again; return whether it is.

        What a backend declares for a mode is settled when the server starts, so that nobody has to be asked anew.
        """
        if self.steps.current.repeats:
            self.steps.begin_again()
        served = self.served.get(id(runner))
        if (
            served is None
            or served.phase is None
            or resolved is not served.resolved
            or backend is not served.backend
            or mode is not served.mode
        ):
            return False
        served.graph, served.extender = graph, extender
        served.step = self.steps.current.number
        served.reason = None if served.published else FallbackReason.BACKEND_UNKNOWN
        self.steps.probe.resolved(served.phase)
        return True

    def tell(
        self,
        runner: RunnerLike,
        backend: BackendLike,
        mode: Named,
        declared: Named,
        resolved: Named,
        reason: FallbackReason | None = None,
        graph: object | None = None,
        extender: DraftExtendLike | None = None,
    ) -> Phase:
        """A phase of the step in progress is served."""
        if self.steps.current.repeats:
            self.steps.begin_again()
        served = self.served.get(id(runner))
        if served is None:
            served = self.served[id(runner)] = Served(runner)
        phase = served.phase
        if (
            phase is None
            or backend is not served.backend
            or mode is not served.mode
            or declared is not served.declared
            or resolved is not served.resolved
        ):
            served.backend, served.mode, served.declared, served.resolved = backend, mode, declared, resolved
            phase = served.phase = _phase(runner, backend, forward_mode(mode), read_ends(declared), read_ends(resolved))
            served.published = phase.resolved is not SharedReadEnds.UNKNOWN
        served.graph, served.extender = graph, extender
        served.step = self.steps.current.number
        served.reason = reason if reason is not None or served.published else FallbackReason.BACKEND_UNKNOWN
        self.steps.probe.resolved(phase)
        return phase


def _phase(
    runner: RunnerLike,
    backend: BackendLike,
    mode: ForwardMode,
    declared: SharedReadEnds,
    resolved: SharedReadEnds,
) -> Phase:
    marker_missing = declared is SharedReadEnds.IN_REPLAY and resolved is SharedReadEnds.POST_REPLAY
    return Phase(
        mode,
        role_of(runner),
        type(backend).__name__,
        declared,
        resolved,
        NO_MARKER if marker_missing else None,
    )


def role_of(runner: RunnerLike) -> str:
    """Return a runner's part: a value of the catalogue's label ``runner``."""
    return "draft" if runner.is_draft_worker else "target"
