"""``Likeness``: what steps are compared with, to see whether they repeat the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import Phase
    from sglang_fence.sglang_plugin.shapes import BackendLike, DraftExtendLike, RunnerLike
    from sglang_fence.sglang_plugin.words import Named


class Counted(Protocol):
    """Where steps are counted."""

    steps: int


class Graph(NamedTuple):
    """A decode or verify graph that replayed."""

    replayed_by: object
    """The runner of graphs."""
    runner: RunnerLike
    """The model runner above it."""
    backend: BackendLike
    """The one that it asked."""
    mode: Named
    """The mode that it asked for."""
    declared: Named
    """What that declared, which is settled when the server starts."""
    resolved: Named
    """What SGLang resolved."""
    phase: Phase


class Extension(NamedTuple):
    """A draft-extend that ended a step, by a graph, and published nothing."""

    replayed_by: DraftExtendLike
    backend: BackendLike
    mode: Named
    declared: Named
    phase: Phase


class Likeness:
    """What a step was made of, and where it was counted. All of it is compared by identity.

    It is a fine step of one phase, or one that is coarse because the last of its phases declares nothing: a graph, or a
    draft-extend behind the graph of another runner. The names of SGLang's parts are those of
    :mod:`sglang_fence.sglang_plugin.shapes`.
    """

    __slots__ = (
        "backend",
        "backend_name",
        "batch_mode",
        "cell",
        "coarse",
        "declared",
        "extend_backend",
        "extend_mode",
        "extended",
        "extender",
        "extends",
        "extension",
        "graph",
        "graph_backend",
        "graph_mode",
        "mode",
        "owner",
        "phase",
        "reason",
        "resolved",
        "route",
        "runner",
        "sole",
    )

    def __init__(  # noqa: PLR0913 - one for each part
        self,
        graph: Graph,
        extension: Extension | None,
        *,
        owner: RunnerLike,
        backend: BackendLike,
        batch_mode: object,
        mode: ForwardMode,
        reason: FallbackReason | None,
        place: tuple[Counted, Counted],
        extends: bool,
        sole: bool,
    ) -> None:
        self.owner = owner
        """The model runner whose mailbox the barrier looks into."""
        self.backend = backend
        """Its attention backend."""
        self.backend_name = type(backend).__name__
        self.batch_mode = batch_mode
        """SGLang's mode of the batch."""
        self.mode = mode
        """The same in our words."""
        self.reason = reason
        """Why the fence was coarse; None: it was fine."""
        self.coarse = reason is not None
        self.graph, self.runner, self.graph_backend, self.graph_mode, self.declared, self.resolved, self.phase = graph
        self.extension = extension
        """How the draft was extended; None: it wasn't, as in the next four."""
        self.extender = None if extension is None else extension.replayed_by
        self.extend_backend = None if extension is None else extension.backend
        self.extend_mode = None if extension is None else extension.mode
        self.extended = None if extension is None else extension.phase
        self.extends = extends
        """Whether batches of the mode compute other than one token a request."""
        self.sole = sole
        """Whether no other runner can own the last shared read: without speculation there is one."""
        self.cell, self.route = place

    def is_still(
        self, graph: Graph, extension: Extension | None, backend: BackendLike, place: tuple[Counted, Counted]
    ) -> bool:
        """Whether a step of these is like it."""
        extended = (None, None) if extension is None else (extension.replayed_by, extension.phase)
        return (
            self.cell is place[0]
            and self.route is place[1]
            and self.backend is backend
            and self.phase is graph.phase
            and self.graph is graph.replayed_by
            and self.extender is extended[0]
            and self.extended is extended[1]
        )

    @property
    def ends(self) -> SharedReadEnds:
        """What the fence goes by: what the last phase resolved."""
        return self.phase.resolved if self.extended is None else self.extended.resolved
