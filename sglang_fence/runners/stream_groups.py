"""``StreamGroups``: the streams that decode under PD multiplexing, each with its own attention backend.

| group | its decode runs |
|---|---|
| ``ALONE`` | by itself |
| ``BESIDE_PREFILL`` | beside a running prefill, which has a stream of its own |

A device may give each group's stream a share of its processors; here they differ in nothing but who runs beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.device.protocol import DeviceModule, Stream

ALONE = 0
BESIDE_PREFILL = 1

_NAMES = ("decode_alone", "decode_beside_prefill")


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """One decode stream, and the member of the backend group that replays on it."""

    stream: Stream
    member: AttentionBackend


class StreamGroups:
    """All groups, and which of them decodes now.

    Args:
        groups: at :data:`ALONE` and :data:`BESIDE_PREFILL`.
    """

    def __init__(self, groups: Sequence[StreamGroup]) -> None:
        self._groups = tuple(groups)
        self.index = ALONE
        """The group that decodes now. Whoever launches a decode sets it first."""

    @property
    def current(self) -> StreamGroup:
        """The group that decodes now."""
        return self._groups[self.index]

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Every decode stream."""
        return tuple(group.stream for group in self._groups)

    @property
    def members(self) -> tuple[AttentionBackend, ...]:
        """Every group's backend."""
        return tuple(group.member for group in self._groups)

    def __len__(self) -> int:
        return len(self._groups)


def make_stream_groups(device: DeviceModule, make_member: Callable[[], AttentionBackend]) -> StreamGroups:
    """Make the groups, each with a stream and a backend of its own."""
    return StreamGroups([StreamGroup(device.Stream(name), make_member()) for name in _NAMES])
