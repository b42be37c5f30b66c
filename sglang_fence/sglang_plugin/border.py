"""What is asked of SGLang's modules. They are imported by name, late, and only where they are loaded anyway."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.shapes import BackendLike, RunnerLike

ENVIRON = "sglang.srt.environ"
CONTEXT = "sglang.srt.runtime_context"


class Border:
    """SGLang's own answers: its switches as it reads them, its device, its caches."""

    def __init__(self) -> None:
        switches: Any = import_module(ENVIRON).envs
        self.forced: Callable[[], bool] = quick(switches.SGLANG_FORCE_COARSE_WAR_BARRIER)
        """Whether every fence is to be coarse. SGLang reads it at each barrier; so does whoever asks here."""
        self.barrier_switched_on: Callable[[], bool] = switches.SGLANG_ENABLE_WAR_BARRIER.get
        self.prefill_on: Callable[[], bool] = switches.SGLANG_ENABLE_PREFILL_WAR_READ_DONE.get
        base: Any = import_module("sglang.srt.layers.attention.base_attn_backend")
        self._base_snapshot: object = getattr(base.AttentionBackend, "_snapshot_prefill_shared_reads", None)
        draft: Any = import_module("sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner")
        self.draft_extend_declares: bool = hasattr(draft, "SharedReadEnds")
        """Whether draft-extend publishes where its backend says (0.5.23), or always before the replay (to 0.5.21)."""

    def is_cuda(self) -> bool:
        """Whether SGLang runs on CUDA: then the barrier is on."""
        return bool(import_module("sglang.srt.utils").is_cuda())

    def host_cache(self) -> bool:
        """Whether a host or storage cache keeps prefill from publishing. Versions up to 0.5.21 don't look at that."""
        memory: Any = import_module(CONTEXT).get_memory()
        return bool(
            getattr(memory, "enable_hierarchical_cache", False)
            or getattr(memory, "hicache_storage_backend", None) is not None
            or getattr(memory, "enable_lmcache", False)
        )

    def snapshots_prefill(self, backend: BackendLike) -> bool:
        """Whether the backend answers for each batch by the snapshot that it built, rather than by declaration."""
        own = getattr(type(backend), "_snapshot_prefill_shared_reads", None)
        return own is not None and own is not self._base_snapshot

    @staticmethod
    def spec_reader_follows(runner: RunnerLike) -> bool:
        """Whether the speculative algorithm reads shared buffers again after prefill."""
        algorithm = runner.spec_algorithm
        may_publish: Callable[[], bool] | None = getattr(algorithm, "supports_prefill_shared_read_done", None)
        return not may_publish() if may_publish is not None else not algorithm.is_none()


def quick(switch: Any) -> Callable[[], bool]:  # noqa: ANN401 - one of SGLang's environment fields
    """Return what reads a switch as SGLang does, but sees without it that the variable isn't set.

    ``os.environ`` encodes the name at each look, which takes longer than all else that is done for it at a barrier.
    """
    ask: Callable[[], bool] = switch.get
    variables: object = getattr(os.environ, "_data", None)
    encode: Callable[[str], Any] | None = getattr(os.environ, "encodekey", None)
    if not isinstance(variables, dict) or encode is None or switch.name in os.environ:
        return ask
    return ask if ask() else Unset(ask, variables, encode(switch.name))


class Unset:
    """A switch that is off where its variable isn't set; whoever is in a hurry may look for that himself."""

    def __init__(self, ask: Callable[[], bool], variables: dict[Any, Any], key: object) -> None:
        self._ask = ask
        self.variables = variables
        """The environment, as it is held."""
        self.key = key
        """The variable's name in it."""

    def __call__(self) -> bool:
        """Whether it is on."""
        return self.key in self.variables and self._ask()


def version() -> str:
    """Return SGLang's version."""
    return str(import_module("sglang.version").__version__)
