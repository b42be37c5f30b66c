"""``ResultProcessor``: what follows once a step's tokens are on the host.

Runs on the schedule stream while the next forward runs, so every write here is behind that forward's barrier (R7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.memory.request_pool import RowUpdates
from sglang_fence.observe.record import NO_STEP

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.engine.batch import Lane, ScheduledBatch
    from sglang_fence.engine.memory import RequestMemory
    from sglang_fence.engine.planner import Planner
    from sglang_fence.engine.requests import Request
    from sglang_fence.models.served import ServedModel
    from sglang_fence.observe.flight.progress import Progress


class ResultProcessor:
    """Appends tokens, finishes requests, fills the prefix cache, slides windows.

    Args:
        device: launches on its current stream.
        model: its end tokens and tokenizer.
        memory: rows and pages.
        planner: its running list loses finished requests.
        on_finish: called with each finished request.
        progress: where it is noted which results are waited for, and which are here.
    """

    def __init__(
        self,
        device: DeviceModule,
        model: ServedModel,
        memory: RequestMemory,
        planner: Planner,
        on_finish: Callable[[Request], None],
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._device = device
        self._model = model
        self._memory = memory
        self._planner = planner
        self._on_finish = on_finish
        self.drafted = 0
        """Drafts that were verified for requests still running."""
        self.accepted = 0
        """Those of them that were right."""

    def process(self, batch: ScheduledBatch) -> None:
        """Wait for the step's tokens and act on them. The step must have been launched."""
        if batch.result is None:
            msg = f"step {batch.work.step} was never launched"
            raise RuntimeError(msg)
        progress, step = self._progress, batch.work.step
        progress.awaited = step
        batch.result.done.synchronize()
        progress.in_hand, progress.awaited = step, NO_STEP
        self._device.host("process_results")
        most = batch.result.tokens.shape[1]
        updates = RowUpdates()
        live: list[Request] = []
        for lane, tokens in zip(batch.lanes, batch.result.sequences(), strict=True):
            request = lane.request
            if lane.samples:
                request.in_flight -= 1
            if request.finished:
                continue  # it ended while this step, launched before anybody knew, computed one token too many
            ended = lane.samples and any(self._append(request, token) for token in tokens)
            current = lane.epoch == request.epoch
            self.drafted += batch.result.drafts
            self.accepted += len(tokens) - 1
            if current and not batch.work.mode.is_prefill():
                request.kv_len += len(tokens) - 1
                request.kv_most -= most - len(tokens)
            if ended:
                self._finish(request, current=current)
            elif current:
                if batch.work.mode.is_prefill():
                    self._memory.share(request, _computed(lane), updates)
                live.append(request)
        self._memory.requests.write("rewrite_req_to_token", updates)
        self._memory.slide(live)

    def _append(self, request: Request, token: int) -> bool:
        """Append a token; return whether it is the last."""
        request.output.append(token)
        if token in self._model.eos_ids:
            request.finish_reason = "stop"
        elif request.params.stop:
            text = self._model.tokenizer.decode(request.output)
            if any(stop in text for stop in request.params.stop):
                request.finish_reason = "stop"
        if request.finish_reason is None and len(request.output) >= request.max_new_tokens:
            request.finish_reason = "length"
        return request.finish_reason is not None

    def _finish(self, request: Request, *, current: bool) -> None:
        """Give a finished request's memory back; it has none if it was retracted meanwhile (``current`` false)."""
        text = self._model.tokenizer.decode(request.output)
        cuts = [at for stop in request.params.stop if (at := text.find(stop)) >= 0]
        request.text = text[: min(cuts, default=len(text))]
        if current:
            self._planner.running.remove(request)
            # The last token's keys and values are computed by no step that counts.
            self._memory.release(request, (request.prompt + request.output)[:-1])
        else:
            self._planner.waiting.remove(request)
        self._on_finish(request)


def _computed(lane: Lane) -> list[int]:
    return lane.request.fill[: lane.kv_len]
