"""Planted: publications that are left over, not replaced, or made too early in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode
from sglang_fence.fence import barrier
from sglang_fence.fence.barrier import Verdict, WarBarrier, judge
from sglang_fence.fence.publication import Mailbox
from sglang_fence.runners.graph_runner import GraphRunner
from sglang_fence.runners.prefill import PrefillRunner
from sglang_fence.speculative.algorithm import built_in_algorithms
from sglang_fence.speculative.draft import DraftWorker, Standalone
from sglang_fence.speculative.ngram import Ngram, NgramWorker
from tests.planted.planting import check_torn_table, hazards_of, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.contract import SharedReadEnds
    from sglang_fence.fence.barrier import FencePolicy, LastReader
    from sglang_fence.fence.events import Marker
    from sglang_fence.fence.publication import ReadDone
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.step_result import Outbox
    from sglang_fence.runners.work import ForwardWork
    from sglang_fence.speculative.algorithm import AlgorithmRegistry, SpecContext, SpeculativeAlgorithm
    from sglang_fence.speculative.worker import SpeculativeWorker
    from tests.speculative.serving import Served


def _reasons(served: Served) -> set[FallbackReason | None]:
    return {step.reason for step in served.rounds}


class TestLeftOver:
    """The owner changes from round to round, and the new one is silent: what lies there is an earlier step's."""

    @staticmethod
    def run() -> Served:
        return run(speculative="multi_layer_eagle", attention="trtllm_mha", graph="off")

    @pytest.fixture(autouse=True)
    def _silent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let verification publish only where draft-extend isn't staged: then somebody else owns the last read."""
        published = GraphRunner._publish_read_done
        staged = [False]
        prepared = GraphRunner.prepare

        def prepare(self: GraphRunner, *args: object, **named: object) -> object:
            if self._mode.is_draft_extend():
                staged[0] = self._runner.attn_backend.name == "staged"
            elif self._mode.is_decode():
                staged[0] = False
            return prepared(self, *args, **named)  # type: ignore[arg-type]

        def publish(self: GraphRunner, batch: ForwardBatch, ends: SharedReadEnds, marker: Marker | None) -> None:
            if not (batch.mode.is_target_verify() and staged[0]):
                published(self, batch, ends, marker)

        monkeypatch.setattr(GraphRunner, "prepare", prepare)
        monkeypatch.setattr(GraphRunner, "_publish_read_done", publish)

    @staticmethod
    def keep_what_others_published(monkeypatch: pytest.MonkeyPatch) -> None:
        def discard(_: WarBarrier, __: LastReader) -> list[ReadDone]:
            return []

        monkeypatch.setattr(WarBarrier, "discard", discard)

    @staticmethod
    def trust_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
        def trusting(step: int, done: ReadDone | None, *, last_phase: bool, policy: FencePolicy) -> Verdict:
            return judge(step if done is None else done.step, done, last_phase=last_phase, policy=policy)

        monkeypatch.setattr(barrier, "judge", trusting)

    def test_with_emptied_mailboxes_the_owner_is_silent(self) -> None:
        served = self.run()
        assert _reasons(served) == {FallbackReason.BACKEND_UNKNOWN, FallbackReason.OWNER_SILENT}
        assert hazards_of(served) == set()

    def test_the_step_tells_what_is_stale(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keep_what_others_published(monkeypatch)
        served = self.run()
        assert FallbackReason.STALE in _reasons(served)
        assert None not in _reasons(served)
        assert hazards_of(served) == set()

    def test_what_is_taken_for_this_steps_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keep_what_others_published(monkeypatch)
        self.trust_any_step(monkeypatch)
        served = self.run()
        assert None in _reasons(served)
        # Verification's, and before it those of the draft-extends that were staged.
        check_torn_table(hazards_of(served), {"gather_page_table", "snapshot_metadata"})


class SaysSo(NgramWorker):
    """NGRAM whose commit, which reads behind verification, publishes that its end is unknown."""

    def after_accept(self, work: ForwardWork, outbox: Outbox) -> None:
        """Commit, then publish."""
        super().after_accept(work, outbox)
        self.target.publisher.unknown(work.step, ForwardMode.DRAFT_EXTEND, FallbackReason.BACKEND_UNKNOWN)


class CommitIsLast(Ngram):
    """Counts the commit as a phase, the last one."""

    name = "commit_is_last"

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:  # noqa: ARG002 - never staged
        """The commit."""
        return mode.is_draft_extend()

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See above."""
        return SaysSo(self, context)


class AnyIsLast(CommitIsLast):
    """Doesn't look at the phase."""

    name = "any_is_last"

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:  # noqa: ARG002 - the plant
        """Whatever the owner published last."""
        return True


class TestNotReplaced:
    """An UNKNOWN phase comes behind one of the same runner that published an event."""

    @staticmethod
    def run(algorithm: SpeculativeAlgorithm) -> Served:
        registry = built_in_algorithms()
        registry.register(algorithm)
        return run(speculative=algorithm.name, algorithms=registry)

    @staticmethod
    def leave_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
        put = Mailbox.put

        def keep(self: Mailbox, done: ReadDone) -> None:
            if done.event is not None or self.peek() is None:
                put(self, done)

        monkeypatch.setattr(Mailbox, "put", keep)

    @pytest.mark.parametrize("algorithm", [CommitIsLast(), AnyIsLast()], ids=lambda algorithm: algorithm.name)
    def test_an_unknown_replaces_the_event(self, algorithm: SpeculativeAlgorithm) -> None:
        served = self.run(algorithm)
        assert _reasons(served) == {FallbackReason.BACKEND_UNKNOWN}
        assert hazards_of(served) == set()

    def test_the_phase_tells_what_was_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leave_the_event(monkeypatch)
        served = self.run(CommitIsLast())
        assert _reasons(served) == {FallbackReason.NOT_LAST_PHASE}
        assert hazards_of(served) == set()

    @pytest.mark.parametrize("algorithm", ["standalone", "eagle"])
    def test_with_a_draft_runner_the_phase_and_the_order_tell(
        self,
        algorithm: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.leave_the_event(monkeypatch)
        served = run(speculative=algorithm)
        assert _reasons(served) == {FallbackReason.NOT_LAST_PHASE}
        assert hazards_of(served) == set()

    def test_an_event_that_unknown_left_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leave_the_event(monkeypatch)
        served = self.run(AnyIsLast())
        assert _reasons(served) == {None}
        check_torn_table(hazards_of(served), {"ngram_commit"})


class OwnedByTheTarget(DraftWorker):
    """Names the target's runner for prefills, although the draft's prefill comes later."""

    @property
    def last_shared_read_runner(self) -> ModelRunner:
        """The target's, until a round was drafted."""
        return self.target if self.prefilling else super().last_shared_read_runner

    prefilling = False

    def after_prefill(self, work: ForwardWork, prefilled: Activations) -> None:
        """Note it."""
        self.prefilling = True
        super().after_prefill(work, prefilled)

    def draft(self, work: ForwardWork) -> None:
        """Note it."""
        self.prefilling = False
        super().draft(work)


class NothingFollowsPrefill(Standalone):
    """Says that no draft reads behind a prefill, although its own does."""

    name = "nothing_follows"

    def supports_prefill_shared_read_done(self) -> bool:
        """The plant."""
        return True

    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """See above."""
        return OwnedByTheTarget(self, context, context.draft_model)


class TestPrefillBeforeADraft:
    """The target's prefill publishes although the draft model's is still to come."""

    @staticmethod
    def run(algorithm: Callable[[], Standalone] = NothingFollowsPrefill) -> Served:
        registry: AlgorithmRegistry = built_in_algorithms()
        if algorithm is not Standalone:
            registry.register(algorithm())
        return run(speculative=algorithm().name, algorithms=registry, attention="trtllm_mha")

    def test_the_drafts_own_publication_is_the_one(self) -> None:
        served = self.run(Standalone)
        assert {step.fence for step in served.prefills} == {FenceKind.FINE}
        assert hazards_of(served) == set()

    def test_the_order_of_publications_tells(self) -> None:
        served = self.run()
        assert {step.reason for step in served.prefills} == {FallbackReason.NOT_LAST_PHASE}
        assert hazards_of(served) == set()

    def test_where_the_draft_is_silent_it_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = PrefillRunner.execute_batch

        def execute_batch(self: PrefillRunner, *args: object) -> ForwardBatch:
            batch = original(self, *args)  # type: ignore[arg-type]
            if self._runner.role == "draft":
                self._runner.shared_read_done.take()
            return batch

        monkeypatch.setattr(PrefillRunner, "execute_batch", execute_batch)
        served = self.run()
        assert {step.fence for step in served.prefills} == {FenceKind.FINE}
        check_torn_table(hazards_of(served), {"snapshot_metadata"})
