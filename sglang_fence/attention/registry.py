"""Attention backends by name. Factories import lazily: a name costs nothing until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool

BACKENDS: dict[str, tuple[str, str]] = {
    "native": ("sglang_fence.attention.native", "NativeAttnBackend"),
    "trtllm_mha": ("sglang_fence.attention.trtllm_mha", "TRTLLMMHAAttnBackend"),
}
"""Name → module and class."""


def make_backend(spec: str, device: DeviceModule, requests: ReqToTokenPool, kv: KVStore) -> AttentionBackend:
    """Make the backend called ``spec``.

    Raises:
        ConfigError: nobody goes by that name.
    """
    entry = BACKENDS.get(spec)
    if entry is None:
        msg = f"--attention {spec}: no such backend; known are {', '.join(sorted(BACKENDS))}"
        raise ConfigError(msg)
    module, cls = entry
    backend: AttentionBackend = getattr(import_module(module), cls)(device, requests, kv)
    return backend
