"""A plugin of its own, for tests: the real ``DecodeCudaGraphRunner`` serves decode on a CPU.

Capturing keeps the closure, replaying runs it. ``FENCE_TEST_GRAPHS=1`` turns it on; ``marker`` also makes the external
event that a CPU lacks, so that each graph has its marker.
"""

# ruff: noqa: ANN401 - what SGLang hands over has no types

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

COMPONENTS = "sglang.srt.model_executor.model_runner_components.cuda_graph_setup"
DECODE = "sglang.srt.model_executor.runner.decode_cuda_graph_runner"
BATCH_SIZES = [1, 2, 4, 8]


class _Capturing:
    now = False


class EagerReplay:
    """In place of a backend of CUDA graphs."""

    def __init__(self) -> None:
        self._captured: dict[Any, Callable[[], Any]] = {}

    @contextlib.contextmanager
    def capture_session(self, _: object) -> Generator[None]:
        yield

    @contextlib.contextmanager
    def replay_session(self) -> Generator[None]:
        yield

    def capture_one(self, shape_key: Any, forward: Callable[[], Any], *_: object, **__: object) -> None:
        forward()  # the warm-up, which plants no marker
        _Capturing.now = True
        try:
            forward()
        finally:
            _Capturing.now = False
        self._captured[shape_key] = forward

    def can_run(self, _: object, shape_key: Any) -> bool:
        return shape_key in self._captured

    def replay(self, shape_key: Any, *_: object, **__: object) -> Any:
        return self._captured[shape_key]()

    def cleanup(self) -> None:
        self._captured.clear()


def register() -> None:
    """Put the runner in place, if a test asks for it."""
    kind = os.environ.get("FENCE_TEST_GRAPHS")
    if not kind:
        return
    torch: Any = import_module("torch")
    registry: Any = import_module("sglang.srt.plugins.hook_registry")
    hooks, types = registry.HookRegistry, registry.HookType
    torch.cpu.is_current_stream_capturing = lambda: _Capturing.now
    hooks.register(f"{COMPONENTS}.capture_decode_graph", _make_runner, types.AROUND)
    hooks.register(f"{DECODE}.DecodeCudaGraphRunner.capture", _capture, types.AROUND)
    hooks.register(
        "sglang.srt.model_executor.runner_backend.utils.resolve_decode_backend", lambda _: EagerReplay(), types.REPLACE
    )
    if kind == "marker":
        hooks.register(
            "sglang.srt.model_executor.runner_utils.shared_read_event.make_external_event",
            lambda _: torch.cpu.Event(),
            types.REPLACE,
        )


def _make_runner(_: object, *, model_runner: Any) -> Any:
    backend = type(model_runner.attn_backend)
    backend.init_cuda_graph_state = lambda *_: None
    backend.get_cuda_graph_seq_len_fill_value = lambda _: 1
    settings = import_module("sglang.srt.runtime_context").get_exec().graph.cuda_graph_config.decode
    settings.backend = import_module("sglang.srt.model_executor.cuda_graph_config").Backend.FULL
    settings.bs = BATCH_SIZES  # resolved for a CPU: disabled, and no sizes
    shared: Any = import_module("sglang.srt.model_executor.graph_shared_output").GraphSharedOutput
    model_runner.graph_shared_output = shared.create_for_model_runner(model_runner)
    runner = import_module(DECODE).DecodeCudaGraphRunner(model_runner)
    made: Any = import_module(COMPONENTS).GraphCapture
    return made(runner=runner, memory_phase="decode", memory_usage_gb=0, capture_time=0)


def _capture(_: object, runner: Any) -> None:
    runner.warmup()
    runner.buffers.seq_lens.fill_(runner.seq_len_fill_value)
    runner.buffers.seq_lens_cpu.fill_(runner.seq_len_fill_value)
    runner.buffers.reset_index_buffers()
    runner._profiler = None
    with runner.backend.capture_session(None):
        runner._capture_one_stream()
