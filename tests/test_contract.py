"""The words of the contract: their order, their predicates, and the table of reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.contract import REASONS, FallbackReason, FenceKind, ForwardMode, SharedReadEnds

ENDS = st.sampled_from(list(SharedReadEnds))


def test_ends_are_ordered_by_lateness() -> None:
    assert [(ends.name, ends.value) for ends in sorted(SharedReadEnds)] == [
        ("PRE_REPLAY", 1),
        ("IN_REPLAY", 2),
        ("POST_REPLAY", 3),
        ("UNKNOWN", 4),
    ]


@given(st.lists(ENDS, min_size=1))
def test_max_of_is_one_of_the_items_and_no_item_is_later(items: list[SharedReadEnds]) -> None:
    latest = SharedReadEnds.max_of(items)
    assert isinstance(latest, SharedReadEnds)
    assert latest in items
    assert all(item <= latest for item in items)


@given(st.lists(ENDS), st.integers(min_value=0))
def test_one_unaudited_child_makes_the_whole_unknown(items: list[SharedReadEnds], place: int) -> None:
    items.insert(place % (len(items) + 1), SharedReadEnds.UNKNOWN)
    assert SharedReadEnds.max_of(items) is SharedReadEnds.UNKNOWN


def test_max_of_takes_any_iterable() -> None:
    assert SharedReadEnds.max_of(SharedReadEnds(value) for value in (1, 3, 2)) is SharedReadEnds.POST_REPLAY


def test_max_of_nothing_is_an_error_that_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"max_of\(\) needs at least one item: a wrapper must name the children"):
        SharedReadEnds.max_of(())


PREDICATES = {
    "is_extend": {"EXTEND", "MIXED", "TARGET_VERIFY", "DRAFT_EXTEND"},
    "is_prefill": {"EXTEND", "MIXED"},
    "is_decode": {"DECODE"},
    "is_mixed": {"MIXED"},
    "is_idle": {"IDLE"},
    "is_target_verify": {"TARGET_VERIFY"},
    "is_draft_extend": {"DRAFT_EXTEND"},
    "is_decode_or_idle": {"DECODE", "IDLE"},
    "is_cuda_graph": {"DECODE", "TARGET_VERIFY", "IDLE"},
}


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_predicate_holds_for_exactly_its_modes(predicate: str) -> None:
    assert {mode.name for mode in ForwardMode if getattr(mode, predicate)()} == PREDICATES[predicate]


def test_every_predicate_is_tested() -> None:
    assert {name for name in vars(ForwardMode) if name.startswith("is_")} == set(PREDICATES)


@pytest.mark.parametrize("words", [ForwardMode, FenceKind, FallbackReason])
def test_words_are_written_as_their_names(words: type[ForwardMode | FenceKind | FallbackReason]) -> None:
    assert all(word.value == word.name.lower() == str(word) for word in words)


def test_the_table_of_reasons_has_a_row_for_each_and_no_other() -> None:
    assert list(REASONS) == list(FallbackReason)


@pytest.mark.parametrize("reason", FallbackReason)
def test_a_reason_is_explained(reason: FallbackReason) -> None:
    assert reason.info is REASONS[reason]
    assert len(reason.info.meaning.split()) >= 5
    assert sum(info.meaning == reason.info.meaning for info in REASONS.values()) == 1


def test_the_unexpected_reasons_are_those_that_point_at_a_fault_or_an_unaudited_backend() -> None:
    assert {reason.value for reason, info in REASONS.items() if not info.expected} == {
        "backend_unknown",
        "not_last_phase",
        "owner_silent",
        "stale",
        "unrecorded",
        "snapshot_missing",
    }
