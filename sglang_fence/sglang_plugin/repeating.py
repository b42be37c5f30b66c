"""``Repeating``: steps that are like the one before are recognised by what they are made of, and only counted.

A busy server decodes one token after the other by the same graphs: same mode, backend and ends, and the same fence each
time. To look at all of it anew takes long, since Python code that runs once a step runs from cold caches. So the hooks
that look at everything, *the general ones*, say what a step was made of, a
:class:`~sglang_fence.sglang_plugin.likeness.Likeness`: a fine one of one phase, or one whose graph, or the draft-extend
behind it, declares nothing, as in EAGLE's rounds. Five hooks stand before them, which compare identities, and count a
step that is alike in every respect. As soon as one isn't, the step is begun again in the general way
(:attr:`Repeating.demote`), and the general hooks go on with it.

:mod:`sglang_fence.native` has the same class compiled; tests hold both against the general hooks.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from sglang_fence.observe.record import NO_STEP
from sglang_fence.sglang_plugin.repeating_metered import COST_SAMPLE, is_metered
from sglang_fence.sglang_plugin.repeating_rows import Rows
from sglang_fence.sglang_plugin.repeating_untimed import Untimed

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from sglang_fence.observe.flight.progress import Progress
    from sglang_fence.sglang_plugin.likeness import Likeness


class Repeating(Rows, Untimed):
    """The step in progress, and whether it is like the ones before.

    Args:
        cost_ns: the plugin's own account by hook.
        clock_ns: how long it takes to look at the clock, which is no part of what is measured.
    """

    def __init__(self, cost_ns: MutableMapping[str, int], clock_ns: int) -> None:
        super().__init__()
        self.number = NO_STEP
        """Of the newest step."""
        self.open = False
        """Whether a step was begun and not closed."""
        self.repeats = False
        """Whether the open step has been like the ones before so far. Then the general hooks know nothing of it."""
        self.has_resolved = False
        """Whether its graph said where its reads end."""
        self.has_extended = False
        """Whether its draft was extended behind that."""
        self.due = 0
        """The first step that has to be looked at in any case."""
        self.scheduler: Any = None
        """Of the open step, where it repeats; as :attr:`batch`."""
        self.batch: Any = None
        self.progress: Progress | None = None
        """What the flight recorder knows of the device; None: there is no recorder."""
        self.demote: Callable[[], object] = object
        """Begins the open step in the general way, and tells it what has been seen so far. Raises nothing."""
        self.tell_inputs: Callable[[], object] | None = None
        """Is told once that the first work of a repeated step's forward is enqueued next; None: nobody asks. A step of
        whose forward nothing was told isn't one that repeats. Raises nothing."""
        self.tell_extended: Callable[[Any], object] = bool
        """Tells the open step, in the general way, that this runner of graphs has extended the draft. As above."""
        self._cost_ns, self._clock_ns = cost_ns, clock_ns
        self._forced: Callable[[], bool] = bool
        self._like: Likeness | None = None
        self._metered = self._launching = False

    def ask_forced(
        self,
        forced: Callable[[], bool],
        unset_in: dict[Any, Any] | None = None,
        unset_name: object = None,
    ) -> None:
        """Ask ``forced`` at each barrier whether every fence is to be coarse.

        The compiled class needn't ask while ``unset_name`` isn't a key of ``unset_in``: then it isn't so.
        """
        del unset_in, unset_name
        self._forced = forced

    def arm(self, like: Likeness | None, due: int = 0, every: int = 0) -> None:
        """Take steps that are alike for repeated ones, up to step ``due``; time each so-many-th, where that is done."""
        del every
        self._like, self.due = like, due

    @property
    def like(self) -> Likeness | None:
        """What steps are compared with; None: no step is taken for a repeated one."""
        return self._like

    def launch(self, general: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook around ``run_batch``, before the ``general`` one."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the target takes
            if self._launching:  # a launch within a launch is the same step
                return original(*args, **kwargs)
            if self._like is None or kwargs or not self._begins(*args):
                return general(original, *args, **kwargs)
            self._launching = True
            try:
                return original(*args)
            finally:
                self._launching = False

        return hook

    def inputs(self, general: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook around ``resolve_forward_inputs``, the first work of a forward."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if not self.repeats:
                return general(original, *args, **kwargs)
            tell, self.tell_inputs = self.tell_inputs, None
            if tell is not None:
                tell()
            return original(*args, **kwargs)

        return hook

    def resolve(self, general: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook around a decode graph's ``_resolve_shared_read_ends``."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if not self.repeats:
                return general(original, *args, **kwargs)
            result = original(*args, **kwargs)
            if self.repeats:
                if not kwargs and self._resolves(result, *args):
                    return result
                self.demote()
            return general(lambda *_, **__: result, *args, **kwargs)

        return hook

    def extend(self, general: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook around the ``execute`` of a draft-extend's graph."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if not self.repeats:
                return general(original, *args, **kwargs)
            if not self._extends(*args):
                self.demote()
                return general(original, *args, **kwargs)
            result = original(*args, **kwargs)
            self._extended(args[0])
            return result

        return hook

    def barrier(self, general: Callable[..., Any]) -> Callable[..., Any]:
        """Return the hook around ``_apply_war_barrier``."""

        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            if self.repeats:
                if not kwargs and self._ends(*args):
                    result = original(*args)
                    if self.row is not None:
                        self.row.barrier_ns = perf_counter_ns()
                    return result
                self.demote()
            return general(original, *args, **kwargs)

        return hook

    def _begins(self, scheduler: Any = None, batch: Any = None, *_: object) -> bool:  # noqa: ANN401 - SGLang's
        """Begin a step, if it may be a repetition."""
        like, number = self._like, self.number + 1
        self._metered = metered = is_metered(number)
        began = perf_counter_ns() if metered else 0
        if like is None or self.open or number >= self.due or batch is None:
            return False
        try:
            waiting = len(scheduler.result_queue)
            if (
                batch.forward_mode is not like.batch_mode
                or not waiting  # the launch isn't overlapped with another
                or not (like.sole or scheduler.model_worker.last_shared_read_runner is like.owner)
                or like.owner.shared_read_done_event is not None
                or like.owner.attn_backend is not like.backend
            ):
                return False
            size = len(batch.reqs)
            tokens = (like.extends and batch.extend_num_tokens) or size
            if self.progress is not None:
                self.progress.in_hand = max(NO_STEP, number - 1 - waiting)
            if self.rows:  # last: a step that is begun the general way has no row here
                self._begin_row(like, number, size, tokens)
        except Exception:  # noqa: BLE001 - whoever looks at everything will say what is wrong
            self._like = None
            return False
        self.number, self.scheduler, self.batch = number, scheduler, batch
        self.open = self.repeats = True
        self.has_resolved = self.has_extended = False
        if metered:
            self._meter("run_batch", began)
        return True

    def _resolves(self, result: object, *args: object) -> bool:
        began = perf_counter_ns() if self._metered else 0
        like = self._like
        if (
            like is None
            or self.has_resolved
            or len(args) != 3  # noqa: PLR2004 - the runner of graphs, its backend, and the mode
            or args[0] is not like.graph
            or args[1] is not like.graph_backend
            or args[2] is not like.graph_mode
            or result is not like.resolved
        ):
            return False
        self.has_resolved = True
        self._write_phase(like.phase)
        if began:
            self._meter("decode_resolve", began)
        return True

    def _extends(self, runner: object = None, *_: object) -> bool:
        """Whether a draft-extend that is about to run may be as the ones before."""
        began = perf_counter_ns() if self._metered else 0
        like = self._like
        if like is None or like.extender is None or runner is not like.extender:
            return False
        if not self.has_resolved or self.has_extended:
            return False
        try:
            empty = like.owner.shared_read_done_event is None
        except Exception:  # noqa: BLE001 - as in _begins()
            return False
        if began:
            self._meter("draft_extend_execute", began)
        return empty

    def _extended(self, runner: Any) -> None:  # noqa: ANN401 - SGLang's
        """It has run; where it came out otherwise than the ones before, the step is no repetition."""
        began = perf_counter_ns() if self._metered else 0
        like = self._like
        if not self.repeats:  # it was begun again meanwhile, and hasn't been told of this
            if self.open:
                self.tell_extended(runner)
            return
        try:
            alike = (
                like is not None
                and runner.model_runner is like.owner
                and runner.draft_extend_attn_backend is like.extend_backend
                and runner.forward_mode is like.extend_mode
                and like.owner.shared_read_done_event is None
            )
        except Exception:  # noqa: BLE001 - as in _begins()
            alike = False
        if like is None or not alike:
            self.demote()
            self.tell_extended(runner)
            return
        self.has_extended = True
        self._write_phase(like.extended)
        if began:
            self._meter("draft_extend_execute", began)

    def _ends(self, scheduler: Any = None, *more: object) -> bool:  # noqa: ANN401 - SGLang's
        """Count the step, if its barrier comes out as the last ones did."""
        began = perf_counter_ns() if self._metered else 0
        like = self._like
        try:
            if (
                like is None
                or not self.has_resolved
                or self.has_extended is (like.extender is None)
                or more
                or self.tell_inputs is not None
                or scheduler is not self.scheduler
                or not scheduler._war_barrier_enabled  # noqa: SLF001 - SGLang's name; it has no other
                or not (like.sole or scheduler.model_worker.last_shared_read_runner is like.owner)
            ):
                return False
            event = like.owner.shared_read_done_event
            if (event is None) is not like.coarse or self._forced():
                return False
        except Exception:  # noqa: BLE001 - as above
            return False
        like.cell.steps += 1
        like.route.steps += 1
        self.open = self.repeats = False
        self.scheduler = self.batch = None
        self._end_row(like, self.number, event)
        if began:
            self._meter("apply_war_barrier", began)
        return True

    def _meter(self, hook: str, began: int) -> None:
        spent = max(0, perf_counter_ns() - began - self._clock_ns)
        self._cost_ns[hook] = self._cost_ns.get(hook, 0) + spent * COST_SAMPLE
