"""What a backend is by default, what each declares, and how one is found by its name."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING
from unittest.mock import call, create_autospec

import pytest
import torch

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.registry import LEAVES, make_backend
from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.errors import ConfigError
from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Access

PRE, IN, _POST, UNKNOWN = SharedReadEnds
BY_DEFAULT = {mode: IN if mode in {ForwardMode.DECODE, ForwardMode.TARGET_VERIFY} else UNKNOWN for mode in ForwardMode}


def backend(name: str, window: int | None = None) -> AttentionBackend:
    device = SimulatedDevice()
    requests = ReqToTokenPool(device, max_running=2, context_len=8)
    layout = KVLayout((None, window), 1, 2, torch.float32)
    kv = PagedKV(device, layout, pages=4, page_size=2, context_len=8, prefix_cache=False)
    return make_backend(name, device, requests, kv)


def batch(mode: ForwardMode = ForwardMode.DECODE) -> ForwardBatch:
    zeros = torch.zeros(1, dtype=torch.int64)
    extend = mode is not ForwardMode.DECODE
    return ForwardBatch(
        mode,
        zeros,
        zeros + 1,
        zeros.clone(),
        zeros.clone(),
        token_lines=zeros.clone() if extend else None,
        last_tokens=zeros.clone() if extend else None,
        width=0 if extend else 1,
        rows=(1,),
        pages=(3,),
        query_lens=(1,),
        kv_lens=(1,),
    )


def test_the_base_declares_in_replay_for_decode_and_verify_and_unknown_for_all_else() -> None:
    one = create_autospec(AttentionBackend, instance=True)
    assert {mode: AttentionBackend.shared_read_ends(one, mode) for mode in ForwardMode} == BY_DEFAULT


def test_each_backend_declares_what_was_audited() -> None:
    declared = {name: {mode: backend(name).shared_read_ends(mode) for mode in ForwardMode} for name in LEAVES}
    assert declared == {
        "native": BY_DEFAULT,
        "sparse": BY_DEFAULT,
        "trtllm_mha": {**BY_DEFAULT, ForwardMode.EXTEND: PRE},
        "deepseek_v4": {**BY_DEFAULT, ForwardMode.EXTEND: PRE, ForwardMode.TARGET_VERIFY: _POST},
    }


def test_eager_metadata_is_the_two_hooks_in_order() -> None:
    one, prepared = create_autospec(AttentionBackend, instance=True), batch()
    AttentionBackend.init_forward_metadata(one, prepared)
    assert one.method_calls == [
        call.init_forward_metadata_out_graph(prepared),
        call.init_forward_metadata_in_graph(prepared),
    ]


def test_the_base_has_no_snapshot() -> None:
    one = create_autospec(AttentionBackend, instance=True)
    assert not AttentionBackend.has_extend_snapshot(one, batch(ForwardMode.EXTEND))


@pytest.mark.parametrize(("name", "cls"), [("native", NativeAttnBackend), ("trtllm_mha", TRTLLMMHAAttnBackend)])
def test_backends_are_found_by_the_name_they_carry(name: str, cls: type[AttentionBackend]) -> None:
    assert type(backend(name)) is cls
    assert cls.name == name


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"--attention flash: no such backend; known are native, trtllm_mha"):
        backend("flash")


def names(accesses: tuple[Access, ...]) -> list[str]:
    return [buffer.name for buffer, _ in accesses]


@pytest.mark.parametrize(
    ("name", "mode"), list(product(("native", "trtllm_mha"), (ForwardMode.DECODE, ForwardMode.EXTEND)))
)
@pytest.mark.parametrize("window", [None, 4])
def test_layers_declare_live_tables_only_where_they_read_them(name: str, mode: ForwardMode, window: int | None) -> None:
    one = backend(name, window)
    reads, writes = one.layer_accesses(batch(mode), 0)
    tables = ["req_to_token"] + (["full_to_swa"] if window else [])
    live = (name, mode) == ("native", ForwardMode.EXTEND)
    assert names(reads) == ["kv_cache", *(tables if live else [])]
    assert names(writes) == ["kv_cache"]


@pytest.mark.parametrize("window", [None, 4])
def test_a_gathers_rows_are_asked_of_the_batch_at_each_replay(window: int | None) -> None:
    one, of_batch = backend("native", window), batch()
    reads = one.table_reads(of_batch)
    of_batch.rows, of_batch.pages = (2, 0), (4, 0)
    asked = [rows() for _, rows in reads if callable(rows)]
    assert asked == [(2, 0), (4, 0)][: len(reads)]
    assert names(reads) == ["req_to_token", "full_to_swa"][: len(reads)]
