"""What was decided at start: versions and switches, whether the barrier is on, what the backends in use declare."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence import __version__
from sglang_fence.catalogue import ends_label
from sglang_fence.observe.standing import Facts
from sglang_fence.sglang_plugin.border import version
from sglang_fence.sglang_plugin.words import forward_mode, read_ends

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.sglang_plugin.border import Border
    from sglang_fence.sglang_plugin.shapes import BackendLike, SchedulerLike
    from sglang_fence.sglang_plugin.words import Named

logger = logging.getLogger(__name__)

MODES = ("DECODE", "EXTEND", "MIXED", "TARGET_VERIFY", "DRAFT_EXTEND_V2")
"""Those that a backend is asked about."""


def facts_of(border: Border, scheduler: SchedulerLike) -> Facts:
    """Find them out, and log what an operator wants to read."""
    backends = list(backends_in_use(scheduler))
    facts = Facts(
        config=config(border, scheduler, backends),
        barrier_enabled=scheduler._war_barrier_enabled,  # noqa: SLF001 - SGLang's name; it has no other
        barrier_why=barrier_why(border),
        declarations=tuple(declarations(backends, sglang_modes())),
    )
    logger.info(
        "sglang-fence %s: the barrier is %s (%s)",
        __version__,
        "on" if facts.barrier_enabled else "off",
        facts.barrier_why,
    )
    for backend in dict.fromkeys(name for name, _, _ in facts.declarations):
        rows = [f"{mode} {ends_label(ends)}" for name, mode, ends in facts.declarations if name == backend]
        logger.info("sglang-fence: %s declares that shared reads end: %s", backend, ", ".join(rows))
    return facts


def barrier_why(border: Border) -> str:
    """Return what decided whether the barrier is on: a value of the catalogue's label ``why``."""
    if border.is_cuda():
        return "asynchronous_device"
    return "switch" if border.barrier_switched_on() else "synchronous_device"


def config(border: Border, scheduler: SchedulerLike, backends: list[BackendLike]) -> dict[str, str]:
    """Return the labels of ``sglang_fence_config_info``."""
    speculative = scheduler.model_worker.last_shared_read_runner.spec_algorithm
    algorithm = str(getattr(speculative, "name", type(speculative).__name__))
    return {
        "version": __version__,
        "torch": torch.__version__,
        "sglang": version(),
        "device": str(scheduler.device),
        "backend": type(backends[0]).__name__ if backends else "",
        "algorithm": algorithm.lower(),
        "device_max_connections": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", ""),
        "fence": "",
        "enable_war_barrier": _word(border.barrier_switched_on()),
        "force_coarse_war_barrier": _word(border.forced()),
        "enable_prefill_war_read_done": _word(border.prefill_on()),
    }


def _word(value: bool) -> str:  # noqa: FBT001 - a switch's value
    return "true" if value else "false"


def backends_in_use(scheduler: SchedulerLike) -> Iterator[BackendLike]:
    """Yield each attention backend that a step touches and that declares, the target's first.

    Those that wrap several draft steps into one declare nothing, and nobody asks them.
    """
    worker: Any = scheduler.model_worker
    target = getattr(getattr(scheduler, "tp_worker", None), "model_runner", None)
    found = [
        getattr(target, "attn_backend", None),
        worker.last_shared_read_runner.attn_backend,
        *getattr(worker, "spec_v2_attn_backends", ()),
    ]
    seen: set[int] = set()
    for backend in found:
        if hasattr(backend, "shared_read_ends") and id(backend) not in seen:
            seen.add(id(backend))
            yield backend


def sglang_modes() -> list[Named]:
    """Return the modes that a backend is asked about."""
    modes: Any = import_module("sglang.srt.model_executor.forward_batch_info").ForwardMode
    return [getattr(modes, name) for name in MODES if hasattr(modes, name)]


def declarations(
    backends: Iterable[BackendLike], modes: Iterable[Named]
) -> Iterator[tuple[str, ForwardMode, SharedReadEnds]]:
    """Yield what each backend declares for each mode. Two of one class that differ are both told."""
    asked = list(modes)
    rows = (
        (type(backend).__name__, forward_mode(mode), read_ends(backend.shared_read_ends(mode)))
        for backend in backends
        for mode in asked
    )
    yield from dict.fromkeys(rows)
