"""The hooks of an audit, registered instead of the observer's."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sglang_fence.sglang_plugin.audit.switches import AuditSwitches
from sglang_fence.sglang_plugin.targets import RUNNERS, SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.audit.examiner import SGLangExaminer
    from sglang_fence.sglang_plugin.audit.shapes import AuditedBatch, AuditedRunner

logger = logging.getLogger(__name__)

_RUNNER = f"{RUNNERS}.decode_cuda_graph_runner.DecodeCudaGraphRunner"
MARKER = f"{_RUNNER}._record_in_graph_metadata_prep_done"
CAPTURE = f"{_RUNNER}.capture_one_shape"
EXECUTE = f"{_RUNNER}.execute"


def install_audit() -> bool:
    """Register the hooks, if this is the scheduler of an audit; return whether an audit was asked for at all."""
    switches = AuditSwitches.from_environ()
    if switches is None:
        return False
    if SCHEDULER in sys.modules:
        registry: Any = import_module("sglang.srt.plugins.hook_registry")
        hooks = Hooks(switches)
        for path, hook in ((MARKER, hooks.marker), (CAPTURE, hooks.capture), (EXECUTE, hooks.execute)):
            registry.HookRegistry.register(path, hook, registry.HookType.AROUND)
    return True


class Hooks:
    """What SGLang calls. The examiner is made at the first call, once the device is settled."""

    def __init__(self, switches: AuditSwitches) -> None:
        self._switches = switches
        self._examiner: SGLangExaminer | None = None

    def marker(self, original: Callable[..., Any], runner: AuditedRunner) -> Any:  # noqa: ANN401 - SGLang's
        """Behind the marker come a delay and late readers."""
        out = original(runner)
        self._made(runner).behind_marker(runner)
        return out

    def capture(self, original: Callable[..., Any], runner: AuditedRunner, size: int, forward: Any, *args: Any) -> Any:  # noqa: ANN401 - SGLang's
        """At the end of a forward stand late readers."""
        return original(runner, size, self._made(runner).with_reader(forward), *args)

    def execute(
        self,
        original: Callable[..., Any],
        runner: AuditedRunner,
        batch: AuditedBatch,
        *args: Any,  # noqa: ANN401 - SGLang's
        **kwargs: Any,  # noqa: ANN401 - SGLang's
    ) -> Any:  # noqa: ANN401 - SGLang's
        """Examine."""
        return self._made(runner).execute(lambda: original(runner, batch, *args, **kwargs), runner, batch)

    def _made(self, runner: AuditedRunner) -> SGLangExaminer:
        if self._examiner is None:
            from sglang_fence.sglang_plugin.audit.examiner import SGLangExaminer  # noqa: PLC0415 - imports torch

            arguments = runner.model_runner.server_args
            if arguments.load_format != "dummy":  # a server with a model is a server with requests
                msg = "an audit runs each step many times over: it is for engines with dummy weights alone"
                raise RuntimeError(msg)
            self._examiner = SGLangExaminer(self._switches, immediate=arguments.device == "cpu")
            logger.info("sglang-fence: this engine is audited")
        return self._examiner
