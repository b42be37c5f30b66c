"""``MultiplexedDecodeRunner``: decodes on the stream of the current group, with that group's graphs and backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.runners.decode import DecodeRunner
from sglang_fence.runners.stream_groups import ALONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.runners.graph_runner import Captured
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.stream_groups import StreamGroups


class MultiplexedDecodeRunner(DecodeRunner):
    """Serves decodes of all groups; see :class:`~sglang_fence.runners.decode.DecodeRunner`.

    Each group's graphs are captured on its stream with its member of the backend group. So each has static tensors and
    a marker of its own, and a replay on one stream never re-arms what another stream's replay published (R9).

    Args:
        runner: the model and its mailbox.
        graph: as for the base.
        capture_bs: likewise.
        groups: say which stream decodes now.
    """

    def __init__(self, runner: ModelRunner, graph: str, capture_bs: Sequence[int], groups: StreamGroups) -> None:
        super().__init__(runner, graph, capture_bs)
        self._groups = groups
        self._graphs_of: list[dict[int, Captured]] = [{} for _ in range(len(groups))]

    def capture(self) -> None:
        """Capture every batch size for every group. The device must be idle."""
        groups = self._groups
        for index in range(len(groups)):
            groups.index = index
            self._graphs_of[index] = self._capture_on(groups.current.stream)
        groups.index = ALONE

    def _replay_attn_backend(self) -> AttentionBackend:
        """The member of the stream that replays now, in preparation and in resolution alike (R2)."""
        return self._groups.current.member

    def _replay_graphs(self) -> Mapping[int, Captured]:
        return self._graphs_of[self._groups.index]

    def _graph_name(self, size: int) -> str:
        return f"{super()._graph_name(size)}@{self._groups.current.stream.name}"
