"""Auditing a backend of one's own, which no registry knows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sglang_fence.attention.registry import LEAVES, WRAPPERS
from sglang_fence.audit.auditing import AuditOptions
from sglang_fence.audit.cases import Case
from sglang_fence.audit.matrix import CaseReport, audit_case
from sglang_fence.device import open_device
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator

    from sglang_fence.attention.native import NativeAttnBackend


def audit_backend(
    backend: type[NativeAttnBackend],
    *,
    speculative: str = "none",
    graph: str = "full",
    device: str = "auto",
    options: AuditOptions | None = None,
) -> CaseReport:
    """Audit a backend by poison and by happens-before.

    Args:
        backend: its class; made as those of the project are, and called by its ``name``.
        speculative: the algorithm that it serves.
        graph: the kind of graphs.
        device: for the experiment; ``auto``: CUDA where there is one.
        options: how; ``on_trial`` names its own shared buffers, if it has any.

    Raises:
        ConfigError: its name is a known backend's, or can't be one.
        UserError: the case can't be served.
    """
    with _known(backend):
        return audit_case(Case(backend.name, speculative, graph), open_device(device).name, options or AuditOptions())


@contextmanager
def _known(backend: type[NativeAttnBackend]) -> Generator[None]:
    name = backend.name
    if name in LEAVES or name in WRAPPERS or not name.isidentifier():
        msg = f"a backend called {name!r} can't be audited beside those that there are: give the class another name"
        raise ConfigError(msg)
    LEAVES[name] = backend
    try:
        yield
    finally:
        del LEAVES[name]
