"""R1: a wrapper's declaration is the latest of the children that read in the mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.attention.base import base_read_ends
from sglang_fence.attention.hybrid import HybridAttnBackend
from sglang_fence.attention.hybrid_linear import HybridLinearAttnBackend
from sglang_fence.attention.minimax_hybrid import MiniMaxHybridAttnBackend
from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.selection import CompressedKeys
from sglang_fence.attention.sparse import SparseAttnBackend
from sglang_fence.attention.tbo import TboAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import ContractError
from tests.attention.stores import tiny_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.attention.base import AttentionBackend

STORE = tiny_store(SimulatedDevice())

Ends = dict[ForwardMode, SharedReadEnds]

declarations: st.SearchStrategy[Ends] = st.fixed_dictionaries(
    {mode: st.sampled_from(SharedReadEnds) for mode in ForwardMode},
)
modes = st.sampled_from(ForwardMode)


class _Child(NativeAttnBackend):
    """Declares what it is told to."""

    name = "child"

    def __init__(self, ends: Ends) -> None:
        super().__init__(*STORE)
        self._ends = ends

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        return self._ends[mode]

    def deviation(self, mode: ForwardMode) -> str | None:
        return None if self._ends[mode] is base_read_ends(mode) else "because"


def _check(backend: AttentionBackend, mode: ForwardMode, expected: SharedReadEnds) -> None:
    assert backend.shared_read_ends(mode) is expected
    assert (backend.deviation(mode) is None) is (expected is base_read_ends(mode))


@settings(deadline=None)
@given(prefill=declarations, decode=declarations, mode=modes)
def test_hybrid_declares_what_the_child_of_the_mode_does(prefill: Ends, decode: Ends, mode: ForwardMode) -> None:
    by_decode = {ForwardMode.DECODE, ForwardMode.IDLE, ForwardMode.TARGET_VERIFY}
    _check(HybridAttnBackend(_Child(prefill), _Child(decode)), mode, (decode if mode in by_decode else prefill)[mode])
    verifies = HybridAttnBackend(_Child(prefill), _Child(decode), verify="prefill")
    reads = decode if mode in by_decode - {ForwardMode.TARGET_VERIFY} else prefill
    _check(verifies, mode, reads[mode])


@settings(deadline=None)
@given(primary=declarations, first=declarations, second=declarations, mode=modes)
def test_tbo_declares_the_latest_of_primary_and_children(
    primary: Ends,
    first: Ends,
    second: Ends,
    mode: ForwardMode,
) -> None:
    backend = TboAttnBackend(_Child(primary), (_Child(first), _Child(second)))
    _check(backend, mode, max(primary[mode], first[mode], second[mode]))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda one, other: HybridLinearAttnBackend(one, (0,), other),
        lambda one, other: MiniMaxHybridAttnBackend(one, other, (0,)),
    ],
)
@settings(deadline=None)
@given(one=declarations, other=declarations, mode=modes)
def test_by_layer_the_later_of_both(
    wrap: Callable[[AttentionBackend, AttentionBackend], AttentionBackend],
    one: Ends,
    other: Ends,
    mode: ForwardMode,
) -> None:
    _check(wrap(_Child(one), _Child(other)), mode, max(one[mode], other[mode]))


@settings(deadline=None)
@given(first=declarations, second=declarations, third=declarations, mode=modes)
def test_a_wrapper_of_wrappers_answers_for_all_below(first: Ends, second: Ends, third: Ends, mode: ForwardMode) -> None:
    def hybrid() -> AttentionBackend:
        return HybridAttnBackend(_Child(first), _Child(second))

    overlap = TboAttnBackend(hybrid(), (hybrid(), hybrid()))
    assert overlap.shared_read_ends(mode) is hybrid().shared_read_ends(mode)
    both = MiniMaxHybridAttnBackend(overlap, _Child(third), (0,))
    _check(both, mode, max(hybrid().shared_read_ends(mode), third[mode]))


def test_one_unaudited_child_makes_the_whole_unknown() -> None:
    known: Ends = dict.fromkeys(ForwardMode, SharedReadEnds.PRE_REPLAY)
    unknown: Ends = dict.fromkeys(ForwardMode, SharedReadEnds.UNKNOWN)
    for mode in ForwardMode:
        backend = TboAttnBackend(_Child(known), (_Child(known), _Child(unknown)))
        assert backend.shared_read_ends(mode) is SharedReadEnds.UNKNOWN


def test_children_that_take_turns_must_keep_the_same_beside_the_store() -> None:
    device = SimulatedDevice()
    store = tiny_store(device)
    apart = SparseAttnBackend(*store)
    with pytest.raises(ContractError, match=r"hybrid:sparse,native: its children take turns .* hand the same one"):
        HybridAttnBackend(apart, NativeAttnBackend(*store))
    with pytest.raises(ContractError, match="tbo:sparse"):
        TboAttnBackend(apart, (SparseAttnBackend(*store), SparseAttnBackend(*store)))
    shared = CompressedKeys(device, store.kv)
    HybridAttnBackend(SparseAttnBackend(*store, compressed=shared), NativeAttnBackend(*store, compressed=shared))


def test_tbo_takes_children_of_one_kind() -> None:
    store = tiny_store(SimulatedDevice())
    native, sparse = NativeAttnBackend(*store), SparseAttnBackend(*store)
    with pytest.raises(ContractError, match="its children are native and sparse; make them of one kind"):
        TboAttnBackend(native, (NativeAttnBackend(*store), sparse))
