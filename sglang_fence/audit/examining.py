"""The experiment: a worker that runs each step many times over, with and without poison, before it runs for good."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sglang_fence.audit.poison import Poisoner, other_rows
from sglang_fence.audit.state import DeviceState, Outputs, first_difference, results
from sglang_fence.audit.strikes import Strike
from sglang_fence.audit.targets import Learning, targets_of
from sglang_fence.audit.windows import Keeping, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sglang_fence.audit.device import AuditDevice
    from sglang_fence.audit.phases import Phases
    from sglang_fence.audit.poison import OtherValues
    from sglang_fence.audit.tally import Tally
    from sglang_fence.audit.targets import Target
    from sglang_fence.contract import SharedReadEnds
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.engine.engine import Engine
    from sglang_fence.runners.step_result import StepResult
    from sglang_fence.runners.work import ForwardWork

_MOST_ROWS = 64


class Examiner:
    """Runs a step again and again from the same state.

    Args:
        engine: on an ``AuditDevice``.
        device: that device.
        phases: of the engine.
        tally: takes what comes out, and says what is wanted.
        others: what buffers are overwritten with, by name.
        stop: asked before each run; true leaves the rest undone.
    """

    def __init__(
        self,
        engine: Engine,
        device: AuditDevice,
        phases: Phases,
        tally: Tally,
        others: Mapping[str, OtherValues],
        stop: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._device = device
        self._phases = phases
        self._tally = tally
        self._others = others
        self._stop = stop
        self._adversary = device.Stream("adversary")
        device.take_up()
        self._lasting = device.buffers
        tally.buffers = sorted(device.readers)

    @property
    def unheard(self) -> list[str]:
        """Buffers that the schedule stream wrote and that are not on trial."""
        return self._device.unheard(self._lasting)

    def examine(self, run: Callable[[], StepResult], work: ForwardWork) -> None:
        """Examine one step, on the forward stream; leaves every buffer as it was, whatever happens."""
        if self._stop():
            return
        self._device.synchronize()
        state = DeviceState(self._engine, self._lasting)
        try:
            self._examine(run, work, state)
        finally:
            self._device.synchronize()
            state.restore()
            self._device.synchronize()

    def _examine(self, run: Callable[[], StepResult], work: ForwardWork, state: DeviceState) -> None:
        learning = Learning(self._device)
        clean = self._run(run, learning, state)
        targets = targets_of(self._engine, self._tally, learning.phases, work)
        if not any(self._wanted(target, work.lines) for target in targets):
            return
        again = self._run(run, Keeping(self._device), state)
        if first_difference(clean, again) is not None:
            for target in targets:
                self._tally.known[target.claim].noisy += 1
            return
        for target in targets:
            self._tally.known[target.claim].steps += 1
            for ends in target.candidates:
                for buffer in self._tally.buffers:
                    if self._stop():
                        return
                    if self._tally.wants(target.claim, ends, buffer, work.lines):
                        self._try(run, target, ends, buffer, (clean, state, work))

    def _wanted(self, target: Target, lines: int) -> bool:
        buffers, wants = self._tally.buffers, self._tally.wants
        return any(wants(target.claim, ends, buffer, lines) for ends in target.candidates for buffer in buffers)

    def _try(
        self,
        run: Callable[[], StepResult],
        target: Target,
        ends: SharedReadEnds | None,
        buffer: str,
        against: tuple[Outputs, DeviceState, ForwardWork],
    ) -> None:
        clean, state, work = against
        count = self._tally.count(target.claim, ends, buffer)
        try_rows = partial(self._strike, run, target, ends, buffer, (clean, state))
        in_time, difference = try_rows(None)
        diverged = count.add(work.lines, difference, in_time=in_time)
        if diverged and ends is not None and not count.rows:
            rows = self._rows_of(buffer, work)
            count.rows.update(row for row in rows if not self._stop() and try_rows((row,))[1] is not None)

    def _strike(
        self,
        run: Callable[[], StepResult],
        target: Target,
        ends: SharedReadEnds | None,
        buffer: str,
        against: tuple[Outputs, DeviceState],
        rows: Sequence[int] | None,
    ) -> tuple[bool | None, str | None]:
        """Run once with poison; return whether it was in time, and the first difference."""
        clean, state = against
        poisoner = Poisoner(
            self._device,
            self._adversary,
            self._device.readers[buffer],
            self._others.get(buffer, other_rows),
            rows,
        )
        strike = Strike(self._device, poisoner, ends)
        window = Window(strike, target.chosen, whole_step=target.whole_step)
        outputs = self._run(run, window, state)
        return strike.in_time(), first_difference(clean, outputs)

    def _run(self, run: Callable[[], StepResult], listener: Keeping, state: DeviceState) -> Outputs:
        """Run the step from its state, and return all that it computed; the device is idle before and after."""
        state.restore()
        self._device.synchronize()
        self._phases.begin(listener)
        result = run()
        if isinstance(listener, Window):
            listener.finish()
        if not isinstance(listener, Learning):  # whose publications are still to be looked at
            self._engine.barrier.discard(self._engine.worker)
        self._device.synchronize()
        return {**listener.kept, **results(result), **state.now()}

    def _rows_of(self, buffer: str, work: ForwardWork) -> Sequence[int]:
        """Rows worth trying one by one: those of the step and padding's, or all where there are few."""
        rows = self._device.readers[buffer].buffer.rows
        memory = self._engine.memory
        if rows == memory.requests.max_running + 1:
            return (0, *work.rows)
        if rows == memory.kv.buffer.rows:
            return (0, *work.pages)[:_MOST_ROWS]
        return range(min(rows, _MOST_ROWS))


class Examined:
    """An engine each of whose steps is examined, and then run as if nothing had been; for a ``with`` block."""

    def __init__(self, engine: Engine, examiner: Examiner) -> None:
        self._worker = engine.worker
        self._run = engine.worker.run
        self._examiner = examiner

    def __enter__(self) -> None:
        # The scheduler is made when requests are served, and takes what it finds here.
        vars(self._worker)["run"] = self._examine_and_run

    def __exit__(self, *_: object) -> None:
        del vars(self._worker)["run"]

    def _examine_and_run(self, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        self._examiner.examine(partial(self._run, work, params), work)
        return self._run(work, params)
