"""Registering: each target that is there, with a signature that is known, gets its hook."""

from __future__ import annotations

import inspect
import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sglang_fence.sglang_plugin.source import MISSING, PRESENT, SIGNATURE
from sglang_fence.sglang_plugin.switches import Switches, problems
from sglang_fence.sglang_plugin.targets import KNOWN_VERSIONS, SCHEDULER, TARGETS

if TYPE_CHECKING:
    from sglang_fence.sglang_plugin.targets import Target

logger = logging.getLogger(__name__)

FAILED = "failed"


def install() -> None:
    """Register the hooks, if this process is a scheduler's. Never raises: without us, SGLang serves as it always did.

    SGLang calls this in every process. One that hasn't loaded the scheduler's module won't run a scheduler, and
    registering would only make it load what it doesn't need.
    """
    try:
        switches = Switches.from_environ()
        if switches.on and SCHEDULER in sys.modules:
            for name, problem in problems().items():
                logger.warning("sglang-fence: %s=%s", name, problem)
            _install(switches)
    except Exception:
        logger.exception("sglang-fence: hooks can't be installed; SGLang serves without them")


def _install(switches: Switches) -> None:
    from sglang_fence.sglang_plugin.border import version  # noqa: PLC0415 - only where a scheduler may run
    from sglang_fence.sglang_plugin.guard import Hook  # noqa: PLC0415 - as above
    from sglang_fence.sglang_plugin.session import Session  # noqa: PLC0415 - as above

    registry: Any = import_module("sglang.srt.plugins.hook_registry")
    session = Session(switches)
    health = session.ledger.health
    unseen: list[str] = []
    for target in TARGETS:
        handler = session.handlers.get(target.key)
        if handler is None:
            continue  # nobody asked for what it marks
        state = state_of(target)
        if state == PRESENT:
            hook = Hook(target, handler, health, session.meter_of(target.key))
            health.errors[target.key] = 0
            health.cost_ns[target.key] = 0
            registry.HookRegistry.register(
                target.path, session.in_front(target.key, hook.around()), registry.HookType.AROUND
            )
        else:
            unseen.append(f"{target.path} ({state}): {target.unseen}")
        health.hooks[target.path] = state
    running = version()
    if unseen or running not in KNOWN_VERSIONS:
        logger.warning(
            "sglang-fence knows SGLang %s and this is %s. Not seen here: %s",
            ", ".join(KNOWN_VERSIONS),
            running,
            "; ".join(unseen) or "nothing is known to be missing",
        )


def state_of(target: Target) -> str:
    """Return whether the running SGLang has a target: a value of the catalogue's label ``state``."""
    try:
        owner: Any = import_module(target.module)
    except ModuleNotFoundError:
        return MISSING
    except Exception:
        logger.exception("sglang-fence: %s can't be imported", target.module)
        return FAILED
    if target.owner is not None:
        owner = vars(owner).get(target.owner)
    function = vars(owner).get(target.name) if owner is not None else None
    if not inspect.isfunction(function):
        return MISSING
    return PRESENT if tuple(inspect.signature(function).parameters) in target.signatures else SIGNATURE
