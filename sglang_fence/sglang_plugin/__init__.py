"""The observer inside SGLang: found by SGLang's plugin loader, it hooks the scheduler's barrier and what leads to it.

Read ``targets`` for what is hooked, ``scheduler_hooks`` and ``runner_hooks`` for what the hooks see, ``guard`` for how
they fail, and ``start`` for what is made of it once a scheduler's loop begins. Nothing here imports SGLang by name
before its own loader called :func:`register`, and nothing imports ``prometheus_client`` before the loop begins: an
earlier import would freeze its in-process value class, and SGLang's own series would be lost.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Register every hook that this version of SGLang can take. Called in each of SGLang's processes; never raises."""
    from sglang_fence.sglang_plugin.audit.hooks import install_audit  # noqa: PLC0415 - the entry point itself must cost nothing
    from sglang_fence.sglang_plugin.install import install  # noqa: PLC0415 - as above

    if not install_audit():  # an engine that is audited has nothing to observe
        install()
