"""``Likeness``: what steps are compared with, to see whether they repeat the one before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.observe.record import Phase
    from sglang_fence.sglang_plugin.shapes import BackendLike, RunnerLike
    from sglang_fence.sglang_plugin.words import Named


class Counted(Protocol):
    """Where steps are counted."""

    steps: int


class Likeness:
    """What a fine step of one phase was made of, and where it was counted. All of it is compared by identity.

    The names of SGLang's parts are those of :mod:`sglang_fence.sglang_plugin.shapes`.
    """

    __slots__ = (
        "backend_name",
        "batch_mode",
        "cell",
        "declared",
        "extends",
        "graph",
        "graph_backend",
        "graph_mode",
        "mode",
        "owner",
        "phase",
        "resolved",
        "route",
        "sole",
    )

    def __init__(  # noqa: PLR0913 - one for each part
        self,
        *,
        owner: RunnerLike,
        backend_name: str,
        batch_mode: object,
        mode: ForwardMode,
        graph: object,
        graph_backend: BackendLike,
        graph_mode: Named,
        declared: Named,
        resolved: Named,
        phase: Phase,
        cell: Counted,
        route: Counted,
        extends: bool,
        sole: bool,
    ) -> None:
        self.owner = owner
        """The model runner whose mailbox the barrier looks into."""
        self.backend_name = backend_name
        """Of its attention backend."""
        self.batch_mode = batch_mode
        """SGLang's mode of the batch."""
        self.mode = mode
        """The same in our words."""
        self.graph = graph
        """The runner of graphs that replayed."""
        self.graph_backend = graph_backend
        """The backend that it asked."""
        self.graph_mode = graph_mode
        """The mode that it asked for."""
        self.declared = declared
        """What that declared, which is settled when the server starts."""
        self.resolved = resolved
        """What SGLang resolved."""
        self.phase = phase
        self.extends = extends
        """Whether batches of the mode compute other than one token a request."""
        self.sole = sole
        """Whether no other runner can own the last shared read: without speculation there is one."""
        self.cell = cell
        self.route = route

    @property
    def ends(self) -> SharedReadEnds:
        """What is published: what the phase resolved."""
        return self.phase.resolved
