"""Every end that the project declares is sound, by experiment and by order, and they agree in what would be tighter."""

from __future__ import annotations

import pytest

from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.registry import LEAVES
from sglang_fence.audit.cases import Case, select
from sglang_fence.audit.verdicts import Status
from sglang_fence.errors import ConfigError
from sglang_fence.runners.graph_runner import GRAPH_KINDS
from sglang_fence.speculative.algorithm import built_in_algorithms
from tests.audit.running import IN, POST, PRE, audited, check_sound, claim_of, name

EVERY = select(["all"], ["all"], ["all"])
TELLING = [
    Case("native", "none", "off"),
    Case("native", "ngram", "full"),
    Case("sparse", "dspark", "breakable"),
    Case("hybrid:native,deepseek_v4", "multi_layer_eagle", "breakable"),
    Case("tbo:trtllm_mha", "standalone", "full"),
    Case("hybrid_linear:trtllm_mha", "none", "breakable"),
    Case("minimax:deepseek_v4,trtllm_mha", "eagle", "off"),
]


def test_every_backend_algorithm_and_kind_of_graph_is_among_the_cases() -> None:
    assert {case.attention for case in EVERY} == {*LEAVES, *WRAPPED}
    assert {case.speculative for case in EVERY} == set(built_in_algorithms().names)
    assert {case.graph for case in EVERY} == set(GRAPH_KINDS)
    recurrent = [case for case in EVERY if case.attention.startswith("hybrid_linear")]
    assert {case.speculative for case in recurrent} == {"none"}
    assert len(EVERY) == 11 * 7 * 3 + 2 * 3


def test_what_is_asked_for_by_name_is_left_to_the_engine() -> None:
    (case,) = select(["hybrid_linear:native"], ["dflash"], ["full"])
    with pytest.raises(ConfigError, match="hybrid_linear:native"):
        audited(case)


@pytest.mark.parametrize("wrong", [("natife", "none", "full"), ("native", "medusa", "full")])
def test_a_name_that_nobody_has_is_refused(wrong: tuple[str, str, str]) -> None:
    with pytest.raises(ConfigError, match="known are"):
        select(*([one] for one in wrong))


@pytest.mark.parametrize("case", TELLING, ids=name)
def test_what_is_declared_is_sound(case: Case) -> None:
    check_sound(audited(case, repeats=1))


@pytest.mark.matrix
@pytest.mark.parametrize("case", EVERY, ids=name)
def test_what_is_declared_is_sound_everywhere(case: Case) -> None:
    check_sound(audited(case))


def test_native_decodes_in_replay_and_no_sooner() -> None:
    report = audited(Case("native", "none", "full"))
    check_sound(report)
    for verdict in (report.poisoned, report.ordered):
        decode = claim_of(verdict, "decode")
        assert {ends: one.status for ends, one in decode.ends.items()} == {
            PRE: Status.UNSOUND,
            IN: Status.SOUND,
            POST: Status.SOUND,
        }
        assert decode.ends[PRE].torn == ("full_to_swa", "req_to_token")
        assert decode.tightest is decode.resolved is IN
        # Rows of three requests, and padding's.
        assert {result.rows for result in decode.ends[PRE].buffers if result.buffer == "req_to_token"} == {(0, 1, 2, 3)}
        assert claim_of(verdict, "extend").tightest is POST


def test_trtllm_mha_extends_before_the_replay() -> None:
    for graph in GRAPH_KINDS:
        report = audited(Case("trtllm_mha", "none", graph), repeats=1)
        check_sound(report)
        for verdict in (report.poisoned, report.ordered):
            extend = claim_of(verdict, "extend")
            assert extend.resolved is extend.tightest is PRE
            assert extend.ends[PRE].status is Status.SOUND
            assert {(result.buffer, result.read) for result in extend.ends[PRE].buffers} == {
                ("full_to_swa", True),
                ("req_to_token", True),
            }


def test_deepseek_v4_verifies_in_segments_until_the_replay_is_done() -> None:
    report = audited(Case("deepseek_v4", "dflash", "breakable"))
    check_sound(report)
    for verdict in (report.poisoned, report.ordered):
        verify = claim_of(verdict, "target_verify")
        assert verify.ends[IN].status is Status.UNSOUND
        assert verify.ends[IN].torn == ("full_to_swa", "req_to_token")
        assert verify.ends[POST].status is Status.SOUND
        assert verify.resolved is verify.tightest is POST
    ordered = claim_of(report.ordered, "target_verify").ends[IN].buffers
    assert {result.first.split("[")[0] for result in ordered} == {"target_verify_bs4.1"}
    assert {result.first.split("/")[1].split("#")[0] for result in ordered} == {"regather_page_table"}


def test_in_one_graph_it_could_be_earlier_and_the_audit_says_what_that_is_worth() -> None:
    report = audited(Case("deepseek_v4", "dflash", "full"))
    check_sound(report)
    for verdict in (report.poisoned, report.ordered):
        verify = claim_of(verdict, "target_verify")
        assert (verify.resolved, verify.tightest) == (POST, IN)
        assert verify.last
        # Embedding, four layers and the head come between the two.
        assert verify.cost_us == 3 + 4 * 35 + 10
    (text,) = (one for one in report.sentences() if one.startswith("deepseek_v4 (target, target_verify)"))
    assert text.endswith("IN_REPLAY would be sound, and would let the schedule stream go 153.0 µs sooner a step.")


def test_an_earlier_end_is_worth_nothing_where_others_read_later() -> None:
    report = audited(Case("native", "ngram", "full"), repeats=1)
    verify = claim_of(report.poisoned, "target_verify")
    assert verify.tightest is IN
    assert not verify.last
    # The commit behind verification reads again, so that no fence of the whole step is fine.
    step = claim_of(report.ordered, "target_verify", scope="step", role="")
    assert step.resolved.name == "UNKNOWN"
    assert step.note.startswith("not_last_phase")
