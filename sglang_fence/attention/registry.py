"""Attention backends by spec.

::

    SPEC = LEAF | WRAPPER:LEAF[,LEAF]

    native  trtllm_mha  sparse  deepseek_v4        leaves
    hybrid:PREFILL,DECODE                          by mode
    tbo:KIND                                       two halves of a batch, each with a backend of this kind
    hybrid_linear:FULL                             by layer; the others are linear, with a recurrent state
    minimax:SPARSE,DENSE                           by layer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.attention.hybrid import HybridAttnBackend
from sglang_fence.attention.hybrid_linear import HybridLinearAttnBackend
from sglang_fence.attention.minimax_hybrid import MiniMaxHybridAttnBackend
from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.attention.selection import CompressedKeys
from sglang_fence.attention.sparse import SparseAttnBackend
from sglang_fence.attention.tbo import TboAttnBackend
from sglang_fence.attention.trtllm_mha import TRTLLMMHAAttnBackend
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool

LEAVES: dict[str, type[NativeAttnBackend]] = {
    "native": NativeAttnBackend,
    "trtllm_mha": TRTLLMMHAAttnBackend,
    "sparse": SparseAttnBackend,
    "deepseek_v4": DeepSeekV4AttnBackend,
}
"""Name → class."""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a wrapper is written."""

    children: tuple[str, ...]
    """What each child is for."""
    example: str


WRAPPERS: dict[str, Wrapper] = {
    "hybrid": Wrapper(("PREFILL", "DECODE"), "hybrid:trtllm_mha,native"),
    "tbo": Wrapper(("KIND",), "tbo:trtllm_mha"),
    "hybrid_linear": Wrapper(("FULL",), "hybrid_linear:trtllm_mha"),
    "minimax": Wrapper(("SPARSE", "DENSE"), "minimax:sparse,trtllm_mha"),
}
"""Name → how it is written."""


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """A spec taken apart: a leaf without children, or a wrapper with leaves."""

    name: str
    children: tuple[str, ...] = ()

    @property
    def keeps_state(self) -> bool:
        """Whether requests have a recurrent state: no prefix of one can be cached, and no token taken back."""
        return self.name == "hybrid_linear"

    @property
    def splits_batches(self) -> bool:
        """Whether it takes two requests to make sense."""
        return self.name == "tbo"


def parse_spec(spec: str) -> BackendSpec:
    """Take a spec apart.

    Raises:
        ConfigError: it isn't one; the message says what to write.
    """
    name, colon, rest = spec.partition(":")
    children = tuple(rest.split(",")) if colon else ()
    wrapper = WRAPPERS.get(name)
    if wrapper is None:
        if name not in LEAVES:
            msg = f"no such backend; known are {_known()}"
        elif colon:
            msg = f"{name} takes no children, write {name}"
        else:
            return BackendSpec(name)
    elif len(children) != len(wrapper.children) or "" in children:
        count = {1: "one child", 2: "two children"}[len(wrapper.children)]
        msg = f"{name} takes {count}, write {name}:{','.join(wrapper.children)}, such as {wrapper.example}"
    else:
        unknown = next((child for child in children if child not in LEAVES), None)
        if unknown is None:
            return BackendSpec(name, children)
        what = "wraps others itself" if unknown in WRAPPERS else "is no backend"
        msg = f"its child {unknown!r} {what}; a child is one of {', '.join(LEAVES)}"
    msg = f"--attention {spec}: {msg}"
    raise ConfigError(msg)


def make_backend(
    spec: str,
    device: DeviceModule,
    requests: ReqToTokenPool,
    kv: KVStore,
    *,
    dspark: bool = False,
) -> AttentionBackend:
    """Make the backend that ``spec`` describes; it is called so in reports.

    Args:
        spec: see the module.
        device: where it runs.
        requests: rows.
        kv: pages.
        dspark: whether its verifications are DSPARK's.

    Raises:
        ConfigError: it isn't a spec.
    """
    parsed = parse_spec(spec)
    make = _leaves(parsed, device, requests, kv, dspark=dspark)
    if parsed.name == "hybrid":
        prefill, decode = parsed.children
        return HybridAttnBackend(make(prefill), make(decode))
    if parsed.name == "minimax":
        sparse, dense = parsed.children
        return MiniMaxHybridAttnBackend(make(sparse), make(dense))
    if parsed.name == "hybrid_linear":
        return HybridLinearAttnBackend(make(parsed.children[0]))
    if parsed.name == "tbo":
        kind = parsed.children[0]
        return TboAttnBackend(make(kind), (make(kind), make(kind)))
    return make(parsed.name)


def _leaves(
    spec: BackendSpec,
    device: DeviceModule,
    requests: ReqToTokenPool,
    kv: KVStore,
    *,
    dspark: bool,
) -> Callable[[str], NativeAttnBackend]:
    """Return what makes the leaves of one backend; where one of them selects pages, all keep the same compressed keys.

    The children of ``minimax`` serve different layers, but nobody has to know that: a layer's keys are compressed by
    whoever writes them.
    """
    selecting = any(issubclass(LEAVES[name], SparseAttnBackend) for name in (spec.children or (spec.name,)))
    compressed = CompressedKeys(device, kv) if selecting else None

    def make(name: str) -> NativeAttnBackend:
        leaf = LEAVES[name]
        if issubclass(leaf, DeepSeekV4AttnBackend):
            return leaf(device, requests, kv, compressed=compressed, dspark=dspark)
        return leaf(device, requests, kv, compressed=compressed)

    return make


def _known() -> str:
    return ", ".join([*LEAVES, *(f"{name}:{','.join(wrapper.children)}" for name, wrapper in WRAPPERS.items())])
