"""``Planner``: chooses and prepares the next step. All its writes go to the schedule stream.

Prefill comes first; a prompt longer than the chunk budget is prefilled over several steps. A decode that can't get the
pages it needs retracts the request that was admitted last: its memory goes, its tokens stay, and it is prefilled again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sglang_fence.contract import ForwardMode
from sglang_fence.device.buffers import SharedBuffer
from sglang_fence.engine.batch import Lane, ScheduledBatch
from sglang_fence.engine.sampling import pack_params
from sglang_fence.memory.request_pool import RowUpdates, upload
from sglang_fence.runners.work import ForwardWork, pack_decode, pack_extend, upload_inputs

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule, Stream
    from sglang_fence.engine.memory import RequestMemory
    from sglang_fence.engine.requests import Request


class Planner:
    """Owns the queues.

    Args:
        device: launches preparation kernels on its current stream.
        schedule_stream: that stream; step tensors are allocated on it.
        memory: rows and pages.
        chunk: tokens an extend computes at the most.
        round_tokens: tokens that one decode step may add to a request: 1, or with speculation the drafts and one more.
    """

    def __init__(
        self,
        device: DeviceModule,
        schedule_stream: Stream,
        memory: RequestMemory,
        *,
        chunk: int,
        round_tokens: int = 1,
    ) -> None:
        self._device = device
        self._schedule_stream = schedule_stream
        self._memory = memory
        self._chunk = chunk
        self._round = round_tokens
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        self.running: list[Request] = []
        self.retractions = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is left to serve."""
        return not (self.waiting or self.prefilling or self.running)

    def next_batch(self, step: int) -> ScheduledBatch | None:
        """Prepare ``step``; None when nothing can be launched before more results are in."""
        self._device.host("schedule")
        return self._next_extend(step) or self._next_decode(step)

    def _next_extend(self, step: int) -> ScheduledBatch | None:
        budget = self._chunk
        updates = RowUpdates()
        taken: list[tuple[Request, int]] = []
        for request in self.prefilling:
            if budget:
                budget -= self._take_chunk(request, budget, updates, taken)
        admitted: list[tuple[int, list[int]]] = []
        while budget and self.waiting and self._admit(self.waiting[0], updates):
            request = self.waiting.popleft()
            admitted.append((request.row, request.fill))
            self.prefilling.append(request)
            budget -= self._take_chunk(request, budget, updates, taken)
        if not taken:
            return None
        self._memory.requests.write("assign_req_to_token", updates)
        self._memory.requests.write_history(admitted)
        tokens: list[int] = []
        for request, new in taken:
            tokens.extend(request.fill[request.kv_len - new : request.kv_len])
        requests = [request for request, _ in taken]
        for request in requests:
            if request.filled:
                self.prefilling.remove(request)
                self.running.append(request)
        return self._batch(step, ForwardMode.EXTEND, requests, tuple(new for _, new in taken), tokens)

    def _admit(self, request: Request, updates: RowUpdates) -> bool:
        """Give ``request`` a row, its cached prefix and pages for all it fills; false and no change if there are none.

        A retracted request waits for the token that was in flight: its prefill includes it.
        """
        if request.in_flight:
            return False
        # A page for each decoding request is left alone, or the admission would end in a retraction.
        reserve = len(self.running) + len(self.prefilling)
        return self._memory.admit(request, reserve, updates)

    def _take_chunk(
        self,
        request: Request,
        budget: int,
        updates: RowUpdates,
        taken: list[tuple[Request, int]],
    ) -> int:
        new = min(budget, len(request.fill) - request.kv_len)
        request.kv_len += new
        request.kv_most = request.kv_len
        self._memory.point(request, request.kv_len, updates)
        taken.append((request, new))
        return new

    def _decodable(self) -> list[Request]:
        """Requests that a decode may take, the last admitted at the end."""
        return [request for request in self.running if request.wants_decode]

    def _next_decode(self, step: int) -> ScheduledBatch | None:
        requests = self._decodable()
        while not self._memory.grow(requests, self._round):
            if len(requests) <= 1:
                return None  # others hold the pages until their results are in
            self._retract(requests.pop())
        if not requests:
            return None
        updates = RowUpdates()
        for request in requests:
            request.kv_len += 1
            request.kv_most += self._round
            self._memory.point(request, request.kv_most, updates)
        self._memory.requests.write("assign_req_to_token", updates)
        mode = ForwardMode.DECODE if self._round == 1 else ForwardMode.TARGET_VERIFY
        return self._batch(step, mode, requests, (self._round,) * len(requests), [])

    def _retract(self, request: Request) -> None:
        """Take a request's memory. The token in flight is right all the same, since the fence holds; it is kept."""
        self.running.remove(request)
        self._memory.release(request)
        request.epoch += 1
        self.retractions += 1
        self.waiting.appendleft(request)

    def _batch(
        self,
        step: int,
        mode: ForwardMode,
        requests: list[Request],
        query_lens: tuple[int, ...],
        tokens: list[int],
    ) -> ScheduledBatch:
        rows = tuple(request.row for request in requests)
        kv_lens = tuple(request.kv_len for request in requests)
        packed = pack_extend(rows, kv_lens, query_lens, tokens) if tokens else pack_decode(rows, kv_lens)
        inputs = upload_inputs(self._device, f"inputs_{mode}", packed, self._schedule_stream)
        lanes = tuple(Lane(request, request.epoch, request.kv_len, request.filled) for request in requests)
        for lane in lanes:
            lane.request.in_flight += lane.samples
        work = ForwardWork(step, mode, rows, kv_lens, query_lens, self._memory.live_pages(requests), inputs)
        return ScheduledBatch(work, lanes, self._params(requests, kv_lens))

    def _params(self, requests: list[Request], kv_lens: tuple[int, ...]) -> SharedBuffer | None:
        packed = pack_params([request.params for request in requests], kv_lens)
        if packed is None:
            return None
        buffer = SharedBuffer(self._device, "sampling", upload(self._device, packed), owner=self._schedule_stream)
        self._device.launch("upload_batch", lambda: None, writes=((buffer, range(buffer.rows)),))
        return buffer
