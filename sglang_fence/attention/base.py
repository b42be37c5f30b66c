"""``AttentionBackend``: three initialisation hooks and one declaration.

What a backend reads of the shared buffers, and when:

* ``init_forward_metadata_out_graph`` runs each step, before the replay: reads end at PRE_REPLAY if this is all.
* ``init_forward_metadata_in_graph`` is captured and replayed with the graph: reads end at IN_REPLAY, at the marker that
  the runner plants right behind it.
* :meth:`AttentionBackend.attend` runs in each layer: shared reads here go on until the replay is done.

The declaration names the last of them that reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Access, DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool


def base_read_ends(mode: ForwardMode) -> SharedReadEnds:
    """What a backend declares that nobody has audited further: metadata is gathered in the graph, extends are open."""
    if mode.is_decode() or mode.is_target_verify():
        return SharedReadEnds.IN_REPLAY
    return SharedReadEnds.UNKNOWN


class AttentionBackend(ABC):
    """The contract of section 3 of the design."""

    name: str
    """What reports call it: the spec that made it, such as ``hybrid:trtllm_mha,native``."""

    deviations: ClassVar[dict[ForwardMode, str]] = {}
    """Why :meth:`shared_read_ends` differs from :func:`base_read_ends`, for each mode in which it does."""

    def __init__(self, device: DeviceModule, requests: ReqToTokenPool, kv: KVStore) -> None:
        self.device = device
        self.requests = requests
        self.kv = kv

    def init_forward_metadata(self, batch: ForwardBatch) -> None:
        """Prepare metadata for an eager forward: both parts, in order."""
        self.init_forward_metadata_out_graph(batch)
        self.init_forward_metadata_in_graph(batch)

    @abstractmethod
    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Prepare what is prepared per step, outside the graph; ``in_capture``: make the static tensors first."""

    @abstractmethod
    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Launch what is captured and replayed with the graph: static shapes, no host reads."""

    def init_forward_metadata_segment(self, batch: ForwardBatch, segment: int) -> None:  # noqa: B027 - most need nothing
        """Launch what a later segment of a breakable graph needs anew; by default nothing. Captured with the segment.

        A shared read here comes after the marker: the backend must then declare POST_REPLAY for the mode.
        """

    def lanes(self, batch: ForwardBatch) -> Sequence[tuple[AttentionBackend, ForwardBatch]]:
        """Which backend attends to which part of the batch; asked once the metadata outside the graph is prepared.

        Layers run part by part. By default the batch is served whole.
        """
        return ((self, batch),)

    @property
    def side_buffers(self) -> tuple[SharedBuffer, ...]:
        """What is kept of each request beside the KV store; backends that take turns at a request must share it."""
        return ()

    @property
    def captures_extend(self) -> bool:
        """Whether an extend can run in a graph of fixed token counts."""
        return True

    @property
    def verifies_in_one_graph(self) -> bool:
        """Whether target-verify must be one full graph, also where graphs are breakable."""
        return False

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """Where reads of the shared buffers end; overridden for an audited deviation only.

        PRE_REPLAY is an optimisation that one backend earns by audit, never a default.
        """
        return base_read_ends(mode)

    def deviation(self, mode: ForwardMode) -> str | None:
        """Why the declaration for ``mode`` differs from the base's; None where it doesn't."""
        return self.deviations.get(mode) if self.shared_read_ends(mode) is not base_read_ends(mode) else None

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:  # noqa: ARG002 - the contract's signature
        """Whether this very batch's extend reads nothing shared from here on (R8); asked of the batch, never stored."""
        return False

    @abstractmethod
    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """Write ``key`` and ``value`` of the new tokens and return the attention output, ``[tokens, heads, head_dim]``.

        Runs inside the layer's kernel.
        """

    def layer_accesses(
        self,
        batch: ForwardBatch,
        layer: int,
    ) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """Shared reads and writes of a layer's kernel, for the device to check."""
        swa = self.kv.swa
        if swa is None or self.kv.layout.windows[layer] is None:
            return ((self.kv.buffer, batch.read_pages),), ((self.kv.buffer, batch.written_pages),)
        # What is mapped at the launch is what the forward gathers: its mapping's writes are ordered around it.
        reads: Access = (swa.buffer, lambda: swa.swa_pages(batch.read_pages()))
        return (reads,), ((swa.buffer, lambda: swa.swa_pages(batch.written_pages())),)

    def table_reads(self, batch: ForwardBatch) -> tuple[Access, ...]:
        """The reads of one gather from ``req_to_token``, and from the sliding-window mapping where there is one."""
        reads: tuple[Access, ...] = ((self.requests.req_to_token, batch.read_rows),)
        if self.kv.swa is not None:
            reads += ((self.kv.swa.full_to_swa, batch.read_pages),)
        return reads
