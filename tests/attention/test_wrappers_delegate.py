"""R1: every question that the contract asks is answered for the children that read, a hook added later too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import NonCallableMagicMock, create_autospec, sentinel

import pytest
import torch

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.by_layer import ByLayerAttnBackend
from sglang_fence.attention.hybrid import HybridAttnBackend
from sglang_fence.attention.hybrid_linear import HybridLinearAttnBackend
from sglang_fence.attention.minimax_hybrid import MiniMaxHybridAttnBackend
from sglang_fence.attention.tbo import TboAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LAYER = 2
ANY = torch.zeros(1)

CALLS: dict[str, Callable[[AttentionBackend, ForwardBatch], Any]] = {
    "init_forward_metadata": lambda backend, batch: backend.init_forward_metadata(batch),
    "init_forward_metadata_out_graph": lambda backend, batch: backend.init_forward_metadata_out_graph(batch),
    "init_forward_metadata_in_graph": lambda backend, batch: backend.init_forward_metadata_in_graph(batch),
    "init_forward_metadata_segment": lambda backend, batch: backend.init_forward_metadata_segment(batch, 1),
    "lanes": lambda backend, batch: backend.lanes(batch),
    "shared_read_ends": lambda backend, batch: backend.shared_read_ends(batch.mode),
    "deviation": lambda backend, batch: backend.deviation(batch.mode),
    "has_extend_snapshot": lambda backend, batch: backend.has_extend_snapshot(batch),
    "attend": lambda backend, batch: backend.attend(batch, LAYER, ANY, ANY, ANY),
    "layer_accesses": lambda backend, batch: backend.layer_accesses(batch, LAYER),
    "table_reads": lambda backend, batch: backend.table_reads(batch),
}
"""Each hook that is a method, and a call of it."""

PROPERTIES = {"side_buffers", "captures_extend", "verifies_in_one_graph"}

WRAPPERS = (HybridAttnBackend, TboAttnBackend, HybridLinearAttnBackend, MiniMaxHybridAttnBackend)

OWN_ANSWERS = {
    (HybridLinearAttnBackend, "lanes"),  # parts belong to a forward, children to layers
    (MiniMaxHybridAttnBackend, "lanes"),
    (TboAttnBackend, "captures_extend"),  # where an extend is cut depends on the prompts
}
"""Where a wrapper answers itself, whatever its children would say."""


def _child(name: str = "child") -> Any:  # noqa: ANN401 - a mock
    child = create_autospec(AttentionBackend, instance=True)
    child.name = name
    child.device, child.requests, child.kv = sentinel.device, sentinel.requests, NonCallableMagicMock()
    child.kv.layout.windows = (None,) * 4
    child.side_buffers = ()
    child.shared_read_ends.return_value = SharedReadEnds.POST_REPLAY
    child.has_extend_snapshot.return_value = True
    child.table_reads.return_value = ()
    child.lanes.side_effect = lambda batch: ((child, batch),)
    return child


def _wrap(wrapper: type[AttentionBackend]) -> tuple[AttentionBackend, list[Any]]:
    if wrapper is TboAttnBackend:
        children = [_child(), _child(), _child()]
        return TboAttnBackend(children[0], (children[1], children[2])), children
    children = [_child(), _child()]
    if wrapper is HybridAttnBackend:
        return HybridAttnBackend(*children), children
    if wrapper is HybridLinearAttnBackend:
        return HybridLinearAttnBackend(children[0], full_layers=(0, LAYER), linear=children[1]), children
    return MiniMaxHybridAttnBackend(children[0], children[1], sparse_layers=(0, LAYER)), children


def _batch(mode: ForwardMode, lines: int = 1) -> ForwardBatch:
    numbers = torch.zeros(lines, dtype=torch.int64)
    return ForwardBatch(mode, numbers, numbers, numbers, numbers, width=1)


def _asked(children: Sequence[Any], hook: str) -> list[Any]:
    return [child for child in children if getattr(child, hook).called]


def _readers(wrapper: type[AttentionBackend], children: Sequence[Any], hook: str, mode: ForwardMode) -> list[Any]:
    """Return the children that must have been asked of a batch of one line."""
    if wrapper is HybridAttnBackend:
        prefill = mode in {ForwardMode.EXTEND, ForwardMode.MIXED, ForwardMode.DRAFT_EXTEND}
        return [children[0] if prefill else children[1]]
    if wrapper is TboAttnBackend:
        return list(children) if hook in {"shared_read_ends", "deviation"} else [children[0]]
    return [children[0]] if hook in {"attend", "layer_accesses"} else list(children)


def test_the_hooks_of_the_contract_are_those_that_are_called_here() -> None:
    public = {name for name in vars(AttentionBackend) if not name.startswith("_")} - {"deviations"}
    assert public == set(CALLS) | PROPERTIES


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_no_wrapper_leaves_a_hook_to_the_base(wrapper: type[AttentionBackend]) -> None:
    for hook in (*CALLS, *PROPERTIES):
        definer = next(cls for cls in wrapper.__mro__ if hook in vars(cls))
        assert definer is not AttentionBackend, hook


@pytest.mark.parametrize("mode", list(ForwardMode))
@pytest.mark.parametrize("hook", CALLS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_hook_is_asked_of_the_children_that_read(
    wrapper: type[AttentionBackend],
    hook: str,
    mode: ForwardMode,
) -> None:
    backend, children = _wrap(wrapper)
    batch = _batch(mode)
    CALLS[hook](backend, batch)
    if (wrapper, hook) in OWN_ANSWERS:
        assert not _asked(children, hook)
        return
    readers = _readers(wrapper, children, hook, mode)
    assert _asked(children, hook) == readers
    for child in readers:
        assert getattr(child, hook).call_args.args[0] in (batch, mode)


@pytest.mark.parametrize("hook", CALLS)
def test_two_batch_overlap_asks_each_of_its_own_part(hook: str) -> None:
    backend, children = _wrap(TboAttnBackend)
    batch = _batch(ForwardMode.DECODE, lines=3)
    backend.init_forward_metadata_out_graph(batch)
    (_, first), (_, second) = backend.lanes(batch)
    assert (len(first.tokens), len(second.tokens)) == (1, 2)
    for child in children:
        child.reset_mock()
    parts: list[Any] = [batch, first, second]
    if hook in {"attend", "layer_accesses", "table_reads"}:
        for part in parts:
            CALLS[hook](backend, part)
    else:
        CALLS[hook](backend, batch)
    if hook in {"shared_read_ends", "deviation"}:
        parts = [batch.mode] * 3
    asked = [getattr(child, hook).call_args for child in children]
    assert [call is None for call in asked] == [hook == "lanes", False, False]
    if hook not in {"init_forward_metadata", "init_forward_metadata_out_graph"}:  # those split anew
        assert all(call is None or call.args[0] is part for call, part in zip(asked, parts, strict=True))


@pytest.mark.parametrize(("prefill", "decode"), [(True, False), (False, True)])
def test_hybrid_asks_the_child_of_the_phase_for_its_properties(prefill: bool, decode: bool) -> None:  # noqa: FBT001 - parametrized
    children = [_child(), _child()]
    for child, answer in zip(children, (prefill, decode), strict=True):
        child.captures_extend = child.verifies_in_one_graph = answer
    assert HybridAttnBackend(*children).captures_extend is prefill
    assert HybridAttnBackend(*children).verifies_in_one_graph is decode
    assert HybridAttnBackend(*children, verify="prefill").verifies_in_one_graph is prefill


def test_hybrid_verifies_with_the_child_it_is_told() -> None:
    children = [_child("a"), _child("b")]
    assert HybridAttnBackend(*children).child(ForwardMode.TARGET_VERIFY) is children[1]
    assert HybridAttnBackend(*children, verify="prefill").child(ForwardMode.TARGET_VERIFY) is children[0]


@pytest.mark.parametrize("wrapper", [TboAttnBackend, HybridLinearAttnBackend, MiniMaxHybridAttnBackend])
@pytest.mark.parametrize(("one_graph", "captures"), [(False, True), (True, False)])
def test_one_child_is_enough_to_need_one_graph_and_to_refuse_capture(
    wrapper: type[AttentionBackend],
    one_graph: bool,  # noqa: FBT001 - parametrized
    captures: bool,  # noqa: FBT001 - parametrized
) -> None:
    backend, children = _wrap(wrapper)
    for child in children:
        child.verifies_in_one_graph, child.captures_extend = False, True
    children[-1].verifies_in_one_graph, children[-1].captures_extend = one_graph, captures
    assert backend.verifies_in_one_graph is one_graph
    assert backend.captures_extend is (captures and wrapper is not TboAttnBackend)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_each_child_that_reads_must_have_a_snapshot(wrapper: type[AttentionBackend]) -> None:
    for missing in range(3 if wrapper is TboAttnBackend else 2):
        backend, children = _wrap(wrapper)
        batch = _batch(ForwardMode.EXTEND, lines=2)
        backend.init_forward_metadata_out_graph(batch)
        assert backend.has_extend_snapshot(batch)
        children[missing].has_extend_snapshot.return_value = False
        reads = wrapper is not HybridAttnBackend or missing == 0
        assert backend.has_extend_snapshot(batch) is not reads


def test_what_is_kept_beside_the_store_is_everyones() -> None:
    first, second = _child(), _child()
    first.side_buffers, second.side_buffers = (sentinel.one,), (sentinel.two, sentinel.one)
    assert ByLayerAttnBackend("both", first, second, ()).side_buffers == (sentinel.one, sentinel.two)
