"""Planted mistakes: late reads are unsound with the right buffer by experiment and by order, all others by order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.attention.base import base_read_ends
from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.attention.hybrid import HybridAttnBackend
from sglang_fence.attention.registry import LEAVES
from sglang_fence.audit.cases import Case
from sglang_fence.audit.verdicts import Status
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.engine.lifetimes import StepLifetimes
from sglang_fence.fence.barrier import WarBarrier
from sglang_fence.fence.events import Marker
from sglang_fence.fence.publication import Mailbox
from sglang_fence.runners.graph_runner import GraphRunner
from sglang_fence.runners.prefill import PrefillRunner
from sglang_fence.speculative.algorithm import built_in_algorithms
from tests.audit.running import IN, PRE, audited, check_sound, check_torn, claim_of
from tests.planted.test_mailboxes import AnyIsLast, NothingFollowsPrefill
from tests.planted.test_markers import ForksItsMetadata, LendsAnothersMarker
from tests.planted.test_prefill import StoresTheFlag, TranslatesLive
from tests.planted.test_streams_and_lifetimes import SCHEDULER, DropsInputs, Offloads

if TYPE_CHECKING:
    import pytest

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.audit.matrix import CaseReport
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.fence.barrier import LastReader
    from sglang_fence.fence.publication import ReadDone

BOTH = ("full_to_swa", "req_to_token")


def _both_call_it_torn(
    report: CaseReport, mode: str, *buffers: str, scope: str = "phase", role: str = "target"
) -> None:
    assert report.missed == []
    assert report.disagreements == []
    assert report.unsound
    for verdict in (report.poisoned, report.ordered):
        check_torn(claim_of(verdict, mode, scope=scope, role=role), *buffers)


def _answer_for_itself(_: AttentionBackend, mode: ForwardMode) -> SharedReadEnds:
    return base_read_ends(mode)


def test_a_wrapper_that_answers_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HybridAttnBackend, "shared_read_ends", _answer_for_itself)
    report = audited(Case("hybrid:native,deepseek_v4", "dflash", "breakable"))
    _both_call_it_torn(report, "target_verify", *BOTH)
    _both_call_it_torn(report, "target_verify", *BOTH, scope="step")
    assert report.ordered.hazards


def test_in_replay_for_a_verify_that_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepSeekV4AttnBackend, "shared_read_ends", _answer_for_itself)
    report = audited(Case("deepseek_v4", "dflash", "breakable"))
    _both_call_it_torn(report, "target_verify", *BOTH)
    text = " ".join(report.sentences())
    assert "deepseek_v4 (target, target_verify) declares IN_REPLAY: UNSOUND." in text
    assert "The earliest sound end is POST_REPLAY." in text
    # A full graph has one segment, so nothing is read again.
    check_sound(audited(Case("deepseek_v4", "dflash", "full"), repeats=1))


def test_a_draft_extend_that_publishes_before_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GraphRunner._resolve_shared_read_ends

    def resolve(
        self: GraphRunner,
        backend: AttentionBackend,
        mode: ForwardMode,
        marker: Marker | None,
    ) -> SharedReadEnds:
        return SharedReadEnds.PRE_REPLAY if mode.is_draft_extend() else original(self, backend, mode, marker)

    monkeypatch.setattr(GraphRunner, "_resolve_shared_read_ends", resolve)
    # The backend declares nothing wrong; what its runner publishes is.
    report = audited(Case("trtllm_mha", "standalone", "breakable"))
    _both_call_it_torn(report, "target_verify", "req_to_token", scope="step", role="draft")
    assert claim_of(report.poisoned, "draft_extend", role="draft").status is Status.SOUND


def test_a_live_translation_behind_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEAVES, "trtllm_mha", TranslatesLive)
    _both_call_it_torn(audited(Case("trtllm_mha", "none", "full")), "extend", "full_to_swa")


def test_a_flag_that_another_batch_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEAVES, "deepseek_v4", StoresTheFlag)
    monkeypatch.setattr(StoresTheFlag, "taken", True)
    _both_call_it_torn(audited(Case("deepseek_v4", "none", "full")), "extend", *BOTH)


def test_a_marker_before_the_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEAVES, "native", ForksItsMetadata)
    plant = GraphRunner._record_in_graph_metadata_prep_done

    def plant_then_join(self: GraphRunner) -> None:
        plant(self)
        backend = self._replay_attn_backend()
        assert isinstance(backend, ForksItsMetadata)
        backend.join()

    monkeypatch.setattr(GraphRunner, "_record_in_graph_metadata_prep_done", plant_then_join)
    _both_call_it_torn(audited(Case("native", "none", "full")), "decode", *BOTH)


def test_a_marker_of_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, count = Marker.plant, [0]

    def failing(device: DeviceModule) -> Marker | None:
        """Let the second capture, of two requests, go without its marker."""
        if not device.is_current_stream_capturing():
            return None
        count[0] += 1
        return None if count[0] % 3 == 2 else plant(device)

    monkeypatch.setattr(Marker, "plant", failing)
    check_sound(audited(Case("native", "none", "full"), repeats=1))
    monkeypatch.setattr(LendsAnothersMarker, "latest", None)
    monkeypatch.setattr("sglang_fence.runners.graph_runner.FullGraph", LendsAnothersMarker)
    report = audited(Case("native", "none", "full"), repeats=1)
    assert report.missed == []
    for verdict in (report.poisoned, report.ordered):
        decode = claim_of(verdict, "decode")
        assert decode.status is Status.UNSOUND
        assert decode.ends[IN].torn == BOTH
        # The graphs that have a marker of their own are sound all the same.
        assert all(0 < result.diverged < result.runs for result in decode.ends[IN].buffers)


def _leave_the_event(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Mailbox.put

    def keep(self: Mailbox, done: ReadDone) -> None:
        if done.event is not None or self.peek() is None:
            put(self, done)

    monkeypatch.setattr(Mailbox, "put", keep)


def test_an_event_that_an_unknown_phase_did_not_replace(monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_the_event(monkeypatch)
    registry = built_in_algorithms()
    registry.register(AnyIsLast())
    report = audited(Case("native", "any_is_last", "full"), algorithms=registry)
    # The commit behind verification looks for the slots of rejected drafts, and keeps tokens.
    for verdict in (report.poisoned, report.ordered):
        step = claim_of(verdict, "target_verify", scope="step")
        assert step.resolved is IN
        assert step.status is Status.UNSOUND
        assert "req_to_token" in step.ends[IN].torn
    assert {hazard["first"].split("#")[0] for hazard in report.ordered.hazards} == {"ngram_commit"}
    assert claim_of(report.poisoned, "target_verify").status is Status.SOUND


def test_a_prefill_whose_draft_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PrefillRunner.execute_batch

    def execute_batch(self: PrefillRunner, *args: object) -> ForwardBatch:
        batch = original(self, *args)  # type: ignore[arg-type]
        if self._runner.role == "draft":
            self._runner.shared_read_done.take()
        return batch

    monkeypatch.setattr(PrefillRunner, "execute_batch", execute_batch)
    registry = built_in_algorithms()
    registry.register(NothingFollowsPrefill())
    report = audited(Case("trtllm_mha", "nothing_follows", "full"), algorithms=registry)
    for verdict in (report.poisoned, report.ordered):
        step = claim_of(verdict, "extend", scope="step")
        assert step.resolved is PRE
        check_torn(step, "req_to_token")


class TestByOrderAlone:
    """What isn't a late read of what the schedule stream writes, the experiment can't see."""

    @staticmethod
    def hazards(case: Case) -> set[tuple[str, str]]:
        report = audited(case, repeats=1)
        assert report.missed == []
        assert report.unsound
        assert {one.status for one in report.poisoned.claims} == {Status.SOUND}
        return {(hazard["kind"], hazard["buffer"]) for hazard in report.ordered.hazards}

    def test_a_host_cache_that_copies_behind_the_schedule_stream(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SCHEDULER, Offloads)
        assert self.hazards(Case("trtllm_mha", "none", "full")) == {("RAW", "kv_cache")}

    def test_inputs_that_are_freed_too_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def hold(_: StepLifetimes, *__: object) -> None:
            """Keep nothing."""

        monkeypatch.setattr(SCHEDULER, DropsInputs)
        monkeypatch.setattr(StepLifetimes, "hold", hold)
        assert self.hazards(Case("native", "none", "full")) == {("WAR", "inputs_decode")}

    def test_a_fence_that_is_taken_for_another_steps(self, monkeypatch: pytest.MonkeyPatch) -> None:
        apply = WarBarrier.apply

        def late(self: WarBarrier, step: int, reader: LastReader, forward_stream: object) -> object:
            """Wait for the step before: what a barrier at the loop's top comes to."""
            held = getattr(self, "held", None)
            self.held = reader.last_shared_read_mailbox.peek()  # type: ignore[attr-defined]
            reader.last_shared_read_mailbox.take()
            if held is not None:
                reader.last_shared_read_mailbox.put(held)
            return apply(self, step if held is None else held.step, reader, forward_stream)  # type: ignore[arg-type]

        monkeypatch.setattr(WarBarrier, "apply", late)
        report = audited(Case("trtllm_mha", "none", "off"), repeats=1)
        assert {(hazard["kind"], hazard["buffer"]) for hazard in report.ordered.hazards} >= {("WAR", "req_to_token")}
