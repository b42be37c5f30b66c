"""The write-after-read fence of an overlap scheduler, with every step of it observed.

Read ``contract`` for the words, then ``fence`` for what is done with them. Imports point downwards only, and a linter
enforces it::

    cli                              the command line
    sglang_plugin   analyze          the observer inside SGLang; captures of Nsight Systems
    audit   bench                    whether declared read ends are sound; what the fence is worth
    mixin   demo   testing           rules and dashboards; a scenario for them; aids for tests
    engine                           requests, batches, the overlap scheduler
    speculative                      draft, verify, extend
    runners                          who loads, replays and publishes
    attention   graphs   models      what is run
    fence                            events, publication, barrier: the heart
    memory                           the pools that two streams share
    device                           streams, events, graphs: CUDA or simulated
    observe                          hooks, clock, step records; called through a protocol
    native                           what is compiled from C; everything works without it
    ───────────────────────────────────────────────────────────────────────────────────
    catalogue   environ              leaves: what is emitted; the switches
    contract   errors   garbage      leaves: the words; the error tree; no garbage collection for a while

    sglang_fence_exporters           beside it: NVTX, OpenTelemetry, Prometheus, Perfetto. It imports the core and is
                                     found through entry points; the core never imports it.

Importing this package imports neither torch nor transformers: public names are loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
    from sglang_fence.errors import FenceError

__all__ = ["FallbackReason", "FenceError", "FenceKind", "ForwardMode", "SharedReadEnds", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "FallbackReason": "sglang_fence.contract",
    "FenceError": "sglang_fence.errors",
    "FenceKind": "sglang_fence.contract",
    "ForwardMode": "sglang_fence.contract",
    "SharedReadEnds": "sglang_fence.contract",
}


if not TYPE_CHECKING:  # a type checker that saw this would take any name for a public one

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value: object = getattr(importlib.import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
