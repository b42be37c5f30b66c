"""The audit on a GPU says what the happens-before relation says; planted mistakes are refuted there, too.

All of the cases, which take minutes, are ``tests/gpu/audit_matrix.py``'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.attention.base import base_read_ends
from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.attention.registry import LEAVES
from sglang_fence.audit.auditing import AuditOptions, engine_options, examine
from sglang_fence.audit.cases import Case
from sglang_fence.audit.delays import delays_for
from sglang_fence.audit.device import AuditDevice
from sglang_fence.audit.matrix import audit_case
from sglang_fence.audit.verdicts import Status
from sglang_fence.contract import SharedReadEnds
from sglang_fence.engine.engine import Engine
from sglang_fence.models.loading import EMBEDDED
from sglang_fence.runners.graph_runner import GraphRunner
from tests.audit.live import tokens
from tests.audit.running import IN, PRE, check_sound, check_torn, claim_of
from tests.planted.test_markers import ForksItsMetadata
from tests.planted.test_prefill import TranslatesLive

if TYPE_CHECKING:
    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.contract import ForwardMode
    from tests.gpu.conftest import Opened

pytestmark = pytest.mark.gpu

BOTH = ("full_to_swa", "req_to_token")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "case",
    [
        Case("native", "none", "full"),
        Case("trtllm_mha", "none", "breakable"),
        Case("deepseek_v4", "dflash", "breakable"),
        Case("native", "ngram", "full"),
        Case("tbo:trtllm_mha", "eagle", "full"),
        Case("tbo:trtllm_mha", "ngram", "breakable"),
    ],
    ids=lambda case: f"{case.attention}-{case.speculative}-{case.graph}",
)
def test_twenty_repeats_say_what_order_says(case: Case) -> None:
    report = audit_case(case, "cuda", AuditOptions(repeats=20, costs=False))
    check_sound(report)
    for claim in report.poisoned.claims:
        for end in claim.ends.values():
            for result in end.buffers:
                assert result.runs >= 20
                assert result.diverged in {0, result.runs}


@pytest.mark.usefixtures("gpu")
class TestPlanted:
    """Mistakes."""

    @staticmethod
    def check(case: Case, mode: str, *buffers: str) -> None:
        report = audit_case(case, "cuda", AuditOptions(repeats=5, costs=False))
        assert report.missed == []
        assert report.disagreements == []
        for verdict in (report.poisoned, report.ordered):
            check_torn(claim_of(verdict, mode), *buffers)

    def test_in_replay_for_a_verify_that_reads_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def early(_: AttentionBackend, mode: ForwardMode) -> SharedReadEnds:
            return base_read_ends(mode)

        monkeypatch.setattr(DeepSeekV4AttnBackend, "shared_read_ends", early)
        self.check(Case("deepseek_v4", "dflash", "breakable"), "target_verify", *BOTH)

    def test_a_live_translation_behind_the_snapshot(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(LEAVES, "trtllm_mha", TranslatesLive)
        self.check(Case("trtllm_mha", "none", "full"), "extend", "full_to_swa")

    def test_a_marker_before_the_join(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(LEAVES, "native", ForksItsMetadata)
        plant = GraphRunner._record_in_graph_metadata_prep_done

        def plant_then_join(self: GraphRunner) -> None:
            plant(self)
            backend = self._replay_attn_backend()
            assert isinstance(backend, ForksItsMetadata)
            backend.join()

        monkeypatch.setattr(GraphRunner, "_record_in_graph_metadata_prep_done", plant_then_join)
        self.check(Case("native", "none", "full"), "decode", *BOTH)

    def test_a_decode_that_is_declared_before_its_replay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def early(_: AttentionBackend, mode: ForwardMode) -> SharedReadEnds:
            return SharedReadEnds.PRE_REPLAY if mode.is_decode() else base_read_ends(mode)

        monkeypatch.setattr(LEAVES["native"], "shared_read_ends", early)
        self.check(Case("native", "none", "full"), "decode", *BOTH)


def test_an_engine_that_was_audited_serves_as_one_that_never_was(gpu: Opened) -> None:
    case = Case("native", "none", "full")
    never = tokens(Engine(gpu.device, engine_options(case, EMBEDDED)))
    device = AuditDevice(gpu.device, delays_for(gpu.device))
    engine = Engine(device, engine_options(case, EMBEDDED))
    verdict = examine(engine, device, AuditOptions(repeats=3))
    decode = claim_of(verdict, "decode")
    assert (decode.ends[PRE].status, decode.ends[IN].status) == (Status.UNSOUND, Status.SOUND)
    assert tokens(engine) == never
