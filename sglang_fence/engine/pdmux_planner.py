"""``PDMuxPlanner``: prepares prefills and decodes apart, so that one of each may run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.engine.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Container

    from sglang_fence.contract import ForwardMode
    from sglang_fence.engine.batch import ScheduledBatch
    from sglang_fence.engine.requests import Request


class PDMuxPlanner(Planner):
    """See :class:`~sglang_fence.engine.planner.Planner`."""

    _joining: Container[Request] = ()

    def next_extend(self, step: int) -> ScheduledBatch | None:
        """Prepare ``step`` as a prefill; None when there is nothing to prefill, or no memory for it."""
        self._device.host("schedule")
        return self._next_extend(step)

    def next_decode(self, step: int, joining: Container[Request]) -> ScheduledBatch | None:
        """Prepare ``step`` as a decode; None when nobody can decode.

        Args:
            step: its number.
            joining: requests whose prefill still runs. A decode with one of them waits on the device until that is
                done, so they are taken only where nobody else would have to wait with them.
        """
        self._device.host("schedule")
        self._joining = joining
        return self._next_decode(step)

    def _decodable(self) -> list[Request]:
        requests = super()._decodable()
        return [request for request in requests if request not in self._joining] or requests

    def _batch(
        self,
        step: int,
        mode: ForwardMode,
        requests: list[Request],
        query_lens: tuple[int, ...],
        tokens: list[int],
    ) -> ScheduledBatch:
        """Say which pages the step writes: those before are a prefix, which a step on another stream may read too."""
        batch = super()._batch(step, mode, requests, query_lens, tokens)
        kv = self._memory.kv
        batch.work.written = tuple(
            page
            for request, new in zip(requests, query_lens, strict=True)
            for page in request.pages[(request.kv_len - new) // kv.page_size : kv.pages_for(request.kv_len)]
        )
        return batch
