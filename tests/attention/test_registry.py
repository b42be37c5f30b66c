"""Specs: what is understood, and what is said of what isn't."""

from __future__ import annotations

import pytest

from sglang_fence.attention.by_layer import ByLayerAttnBackend
from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.hybrid import HybridAttnBackend
from sglang_fence.attention.registry import LEAVES, WRAPPERS, BackendSpec, make_backend, parse_spec
from sglang_fence.attention.tbo import TboAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import ConfigError
from tests.attention.stores import tiny_store


@pytest.mark.parametrize("spec", [*LEAVES, *WRAPPED, *(wrapper.example for wrapper in WRAPPERS.values())])
def test_a_backend_is_called_what_it_was_asked_for(spec: str) -> None:
    assert make_backend(spec, *tiny_store(SimulatedDevice())).name == spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "no such backend; known are native, trtllm_mha, sparse, deepseek_v4, hybrid:PREFILL,DECODE, tbo:KIND"),
        ("trtllm", "no such backend; known are native"),
        ("Native", "no such backend; known are native"),
        ("trtllm:native", "no such backend; known are native"),
        ("native:", "native takes no children, write native"),
        ("native:sparse", "native takes no children, write native"),
        (
            "hybrid",
            "hybrid takes two children, write hybrid:PREFILL,DECODE, such as hybrid:trtllm_mha,native",
        ),
        ("hybrid:", "hybrid takes two children"),
        ("hybrid:native", "hybrid takes two children"),
        ("hybrid:native,", "hybrid takes two children"),
        ("hybrid:native,native,native", "hybrid takes two children"),
        ("tbo", "tbo takes one child, write tbo:KIND, such as tbo:trtllm_mha"),
        ("tbo:native,native", "tbo takes one child"),
        ("hybrid_linear:", "hybrid_linear takes one child, write hybrid_linear:FULL"),
        ("minimax:sparse", "minimax takes two children, write minimax:SPARSE,DENSE"),
        ("hybrid:trtllm,native", "its child 'trtllm' is no backend; a child is one of native, trtllm_mha, sparse"),
        ("hybrid:native, native", "its child ' native' is no backend"),
        ("hybrid:tbo,native", "its child 'tbo' wraps others itself; a child is one of"),
        ("tbo:tbo:native", "its child 'tbo:native' is no backend"),
    ],
)
def test_what_is_no_spec_is_told_what_to_write(spec: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make_backend(spec, *tiny_store(SimulatedDevice()))
    assert str(raised.value).startswith(f"--attention {spec}: {said}")


def test_what_an_engine_has_to_know_of_a_spec() -> None:
    keeping = {spec for spec in (*LEAVES, *WRAPPED) if parse_spec(spec).keeps_state}
    assert keeping == {"hybrid_linear:native", "hybrid_linear:trtllm_mha"}
    splitting = {spec for spec in (*LEAVES, *WRAPPED) if parse_spec(spec).splits_batches}
    assert splitting == {"tbo:native", "tbo:trtllm_mha", "tbo:deepseek_v4"}
    assert parse_spec("minimax:sparse,native") == BackendSpec("minimax", ("sparse", "native"))


def test_dspark_reaches_the_leaf_that_asks_for_it() -> None:
    for spec in ("deepseek_v4", "hybrid:native,deepseek_v4", "tbo:deepseek_v4", "minimax:deepseek_v4,native"):
        plain, dspark = (make_backend(spec, *tiny_store(SimulatedDevice()), dspark=on) for on in (False, True))
        assert plain.shared_read_ends(ForwardMode.TARGET_VERIFY) is SharedReadEnds.POST_REPLAY
        assert dspark.shared_read_ends(ForwardMode.TARGET_VERIFY) is SharedReadEnds.IN_REPLAY
        assert not plain.verifies_in_one_graph
        assert dspark.verifies_in_one_graph


def test_compressed_keys_are_one_wherever_a_leaf_selects_pages() -> None:
    store = tiny_store(SimulatedDevice())
    hybrid = make_backend("hybrid:native,sparse", *store)
    assert isinstance(hybrid, HybridAttnBackend)
    assert len(hybrid.prefill.side_buffers) == 1
    assert hybrid.prefill.side_buffers == hybrid.decode.side_buffers
    overlap = make_backend("tbo:deepseek_v4", *store)
    assert isinstance(overlap, TboAttnBackend)
    assert {child.side_buffers for child in overlap.children} == {overlap.primary.side_buffers}
    assert not make_backend("tbo:native", *store).side_buffers
    by_layer = make_backend("minimax:sparse,native", *store)
    assert isinstance(by_layer, ByLayerAttnBackend)
    assert len(by_layer.side_buffers) == 1


def test_backends_wrap_each_other_in_python() -> None:
    store = tiny_store(SimulatedDevice())

    def both() -> HybridAttnBackend:
        return HybridAttnBackend(make_backend("trtllm_mha", *store), make_backend("native", *store))

    overlap = TboAttnBackend(both(), (both(), both()))
    assert overlap.name == "tbo:hybrid:trtllm_mha,native"
    assert overlap.shared_read_ends(ForwardMode.EXTEND) is SharedReadEnds.PRE_REPLAY
