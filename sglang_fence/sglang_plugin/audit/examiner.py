"""Each decode of SGLang's graph runner, run again and again from the same state before it runs for good."""

from __future__ import annotations

import json
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.audit.cases import CANDIDATES, Case, Claim
from sglang_fence.audit.delays import delays_for
from sglang_fence.audit.device import AuditDevice, Place
from sglang_fence.audit.poison import Poisoner, other_rows
from sglang_fence.audit.state import first_difference
from sglang_fence.audit.strikes import Strike
from sglang_fence.audit.tally import Tally
from sglang_fence.audit.verdicts import CaseVerdict
from sglang_fence.audit.wording import sentence
from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.device.cuda import CudaDevice, CudaEvent
from sglang_fence.sglang_plugin.audit.immediate import ImmediateDevice
from sglang_fence.sglang_plugin.audit.memory import Memory, Outputs, others, tables
from sglang_fence.sglang_plugin.words import forward_mode, read_ends

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.sglang_plugin.audit.shapes import AuditedBatch, AuditedModelRunner, AuditedRunner
    from sglang_fence.sglang_plugin.audit.switches import AuditSwitches

_MODES_AUDITED = ("DECODE", "TARGET_VERIFY")


class SGLangExaminer:
    """The audit of one scheduler process.

    Args:
        switches: what was asked for.
        immediate: whether there are no streams, so that a marker is a call in the middle of the replay.
    """

    def __init__(self, switches: AuditSwitches, *, immediate: bool) -> None:
        inner = ImmediateDevice() if immediate else CudaDevice()
        self._immediate = immediate
        self._device = AuditDevice(inner, None if immediate else delays_for(inner))
        self._adversary = self._device.Stream("adversary")
        self._switches = switches
        self._tally = Tally(CANDIDATES, switches.repeats)
        self._buffers: dict[str, SharedBuffer] = {}
        self._strike: Strike | None = None
        self._busy = False
        self._backend = ""

    def behind_marker(self, runner: AuditedRunner) -> None:
        """A forward passes the place of its marker: captured, warmed up, or, without streams, replayed."""
        self._take_up(runner.model_runner)
        self._device.delay()
        if self._immediate and self._strike is not None:
            self._strike.behind_marker(self._device.Event())
        self._device.read_all(Place.MARKER)

    def with_reader(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward at whose end late readers stand."""

        @wraps(forward)
        def planted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - SGLang's
            out = forward(*args, **kwargs)
            self._device.read_all(Place.END)
            return out

        return planted

    def execute(self, run: Callable[[], Any], runner: AuditedRunner, batch: AuditedBatch) -> Any:  # noqa: ANN401 - SGLang's output
        """Examine one decode, then run it as if nothing had been."""
        if not self._busy and batch.forward_mode.name in _MODES_AUDITED:
            self._busy = True
            try:
                self._examine(run, runner, batch)
            finally:
                self._busy = False
        return run()

    def _examine(self, run: Callable[[], Any], runner: AuditedRunner, batch: AuditedBatch) -> None:
        self._take_up(runner.model_runner)
        claim = self._see(runner, batch)
        wanted = [
            (ends, buffer)
            for ends in (None, *CANDIDATES)
            for buffer in self._tally.buffers
            if (ends is None or ends in self._tally.known[claim].available)
            and self._tally.wants(claim, ends, buffer, batch.batch_size)
        ]
        if not wanted:
            return
        self._device.synchronize()
        memory = Memory(runner.model_runner)
        try:
            clean = self._run(run, runner, memory, None)
            if first_difference(clean, self._run(run, runner, memory, None)) is not None:
                self._tally.known[claim].noisy += 1
            else:
                for ends, buffer in wanted:
                    self._try(partial(self._poisoned, run, runner, memory, clean), batch, claim, ends, buffer)
        finally:
            self._device.synchronize()
            memory.restore()
            self._device.synchronize()
            self._write()

    def _try(
        self,
        poisoned: Callable[..., tuple[bool | None, str | None]],
        batch: AuditedBatch,
        claim: Claim,
        ends: SharedReadEnds | None,
        buffer: str,
    ) -> None:
        count = self._tally.count(claim, ends, buffer)
        in_time, difference = poisoned(ends, buffer, None)
        diverged = count.add(batch.batch_size, difference, in_time=in_time)
        if diverged and ends is not None and buffer == "req_to_token" and not count.rows:
            rows: list[int] = sorted({0, *batch.req_pool_indices.tolist()})
            count.rows.update(row for row in rows if poisoned(ends, buffer, (row,))[1] is not None)

    def _poisoned(
        self,
        run: Callable[[], Any],
        runner: AuditedRunner,
        memory: Memory,
        clean: Outputs,
        ends: SharedReadEnds | None,
        buffer: str,
        rows: tuple[int, ...] | None,
    ) -> tuple[bool | None, str | None]:
        values = others(runner.model_runner).get(buffer, other_rows)
        poisoner = Poisoner(self._device, self._adversary, self._device.readers[buffer], values, rows)
        self._strike = Strike(self._device, poisoner, ends)
        try:
            outputs = self._run(run, runner, memory, self._strike)
            return self._strike.in_time(), first_difference(clean, outputs)
        finally:
            self._strike = None

    def _run(self, run: Callable[[], Any], runner: AuditedRunner, memory: Memory, strike: Strike | None) -> Outputs:
        """Run once from the state kept; the device is idle before and after."""
        memory.restore()
        self._device.synchronize()
        backend = runner.backend
        replay = backend.replay
        if strike is not None:
            vars(backend)["replay"] = partial(self._replay, replay, runner, strike)
            strike.poisoner.prepare()
            if strike.ends is None:
                strike.here()
                strike.poisoner.heal()
        try:
            out = run()
        finally:
            if strike is not None:
                del vars(backend)["replay"]
        self._device.synchronize()
        logits = getattr(out, "next_token_logits", None)
        return {**memory.now(), **({} if logits is None else {"logits": logits.clone()})}

    def _replay(
        self,
        replay: Callable[..., Any],
        runner: AuditedRunner,
        strike: Strike,
        *args: Any,  # noqa: ANN401 - SGLang's
        **kwargs: Any,  # noqa: ANN401 - SGLang's
    ) -> Any:  # noqa: ANN401 - SGLang's
        marker = runner.in_graph_metadata_prep_done
        strike.poisoner.prepare()
        strike.before_replay()
        out = replay(*args, **kwargs)
        if marker is not None and not self._immediate:
            strike.behind_marker(CudaEvent(marker))
        strike.behind_replay(marked=marker is not None)
        strike.poisoner.heal()
        return out

    def _see(self, runner: AuditedRunner, batch: AuditedBatch) -> Claim:
        backend, mode = runner._replay_attn_backend(), batch.forward_mode  # noqa: SLF001 - SGLang has no other name for it
        role = "draft" if runner.model_runner.is_draft_worker else "target"
        self._backend = type(backend).__name__
        claim = Claim("phase", role, self._backend, forward_mode(mode))
        resolved = read_ends(runner._resolve_shared_read_ends(backend, mode))  # noqa: SLF001 - as above
        known = self._tally.see(claim, read_ends(backend.shared_read_ends(mode)), resolved)
        known.available.update({SharedReadEnds.PRE_REPLAY, SharedReadEnds.POST_REPLAY})
        if runner.in_graph_metadata_prep_done is not None:
            known.available.add(SharedReadEnds.IN_REPLAY)
        return claim

    def _take_up(self, runner: AuditedModelRunner) -> None:
        for name, tensor in tables(runner).items():
            if name not in self._buffers:
                self._buffers[name] = SharedBuffer(self._device, name, tensor)
        self._device.take_up()
        self._tally.buffers = sorted(self._device.readers)

    def _write(self) -> None:
        by = f"poison on {torch.cuda.get_device_name()}" if not self._immediate else "poison on a CPU, in order"
        verdict = CaseVerdict(Case(self._backend, "sglang", "decode"), by)
        verdict.missed, verdict.claims = self._tally.missed, self._tally.verdicts()
        sentences = verdict.missed or [sentence(one, by) for one in verdict.claims]
        content = {**verdict.to_json(), "unsound": verdict.unsound, "sentences": sentences, "left": self._tally.wanting}
        new = self._switches.verdict.with_suffix(".new")
        new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        new.replace(self._switches.verdict)
