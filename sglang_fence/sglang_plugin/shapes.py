"""What is read of SGLang's objects, as protocols: nothing else of them is touched.

SGLang has no type information and isn't there when this project is checked. An object that lacks an attribute raises
``AttributeError`` in the hook that asks; the guard counts it, and serving goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from sglang_fence.sglang_plugin.words import Named


class BackendLike(Protocol):
    """An attention backend."""

    def shared_read_ends(self, fm: Named, /) -> Named:
        """Declare where shared reads end in mode ``fm``."""


class AlgorithmLike(Protocol):
    """A speculative algorithm. Up to 0.5.20 it can't say whether prefill may publish under it."""

    @property
    def name(self) -> str:
        """Its name; ``NONE`` without."""

    def is_none(self) -> bool:
        """Whether there is none."""


class RunnerLike(Protocol):
    """A ``ModelRunner``: owner of a mailbox."""

    is_draft_worker: bool
    shared_read_done_event: object | None
    attn_backend: BackendLike
    spec_algorithm: AlgorithmLike


class WorkerLike(Protocol):
    """The scheduler's ``model_worker``."""

    @property
    def last_shared_read_runner(self) -> RunnerLike:
        """Who owns the step's last shared read. It may change from step to step."""


class BatchLike(Protocol):
    """A ``ScheduleBatch`` or a ``ForwardBatch``."""

    forward_mode: Named


class ScheduleBatchLike(BatchLike, Protocol):
    """A ``ScheduleBatch``."""

    reqs: Sequence[object]
    extend_num_tokens: int | None


class SchedulerLike(Protocol):
    """The ``Scheduler``. Its schedule stream and whether the barrier is on are only settled when its loop runs."""

    model_worker: WorkerLike
    forward_stream: object
    schedule_stream: object
    cur_batch_for_debug: ScheduleBatchLike | None
    last_batch: ScheduleBatchLike | None
    result_queue: Sized
    """Results that aren't processed yet; of the loops that overlap."""
    device: str
    _war_barrier_enabled: bool


class GraphRunnerLike(Protocol):
    """A runner below a ``ModelRunner``: eager, decode graph or prefill graph."""

    model_runner: RunnerLike


class DraftExtendLike(GraphRunnerLike, Protocol):
    """The graph runner of EAGLE's draft-extend."""

    forward_mode: Named
    draft_extend_attn_backend: BackendLike
