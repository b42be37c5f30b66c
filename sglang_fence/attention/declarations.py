"""What each backend declares, and why where that differs from the base: the table behind ``declarations``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.attention.registry import LEAVES, make_backend, parse_spec
from sglang_fence.contract import ForwardMode
from sglang_fence.memory.kv_pool import KVLayout, PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule

WRAPPED = (
    "hybrid:trtllm_mha,native",
    "hybrid:native,deepseek_v4",
    "tbo:native",
    "tbo:trtllm_mha",
    "tbo:deepseek_v4",
    "hybrid_linear:native",
    "hybrid_linear:trtllm_mha",
    "minimax:sparse,trtllm_mha",
    "minimax:deepseek_v4,trtllm_mha",
)
"""Wrappers over typical children."""

MODES = (ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND)
"""Modes that read."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One backend in one mode."""

    backend: str
    mode: str
    declared: str
    """A member of ``SharedReadEnds``."""
    deviation: str | None
    """Why that isn't what the base declares; None where it is."""

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return asdict(self)


def declarations(device: DeviceModule) -> list[Declaration]:
    """Ask all leaves, DeepSeek V4 under DSPARK too, and typical wrappers; no model is needed.

    Args:
        device: holds pools of one page; nothing is launched.
    """
    rows: list[Declaration] = []
    for spec in (*LEAVES, *WRAPPED):
        rows += _rows(device, spec, dspark=False)
        if spec == "deepseek_v4":
            rows += _rows(device, spec, dspark=True)
    return rows


def _rows(device: DeviceModule, spec: str, *, dspark: bool) -> list[Declaration]:
    page = 1
    layout = KVLayout(windows=(None, None), kv_heads=1, head_dim=1, dtype=torch.float32)
    requests = ReqToTokenPool(device, max_running=1, context_len=page)
    kv = PagedKV(device, layout, pages=1, page_size=page, context_len=page, prefix_cache=False)
    backend = make_backend(spec, device, requests, kv, dspark=dspark)
    modes = MODES[:2] if parse_spec(spec).keeps_state else MODES
    name = f"{spec} (DSPARK)" if dspark else spec
    return [Declaration(name, mode, backend.shared_read_ends(mode).name, backend.deviation(mode)) for mode in modes]
