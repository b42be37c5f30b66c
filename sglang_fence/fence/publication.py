"""From a declaration to a publication: resolve, publish, mailbox.

A backend *declares* where its shared reads end; the runner *resolves* that against the graph it is about to replay
(R4), *publishes* once per phase (R5), and the mailbox holds it until the barrier takes it (R6).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from sglang_fence.contract import FallbackReason, ForwardMode, SharedReadEnds
from sglang_fence.errors import ContractError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.device.protocol import Event
    from sglang_fence.fence.events import EventPool, Marker

NO_MARKER = "no_marker"
"""Cause of a downgrade: IN_REPLAY was declared, the graph that replays carries no marker."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Where the reads of one forward end, and why that is later than declared (None: it isn't)."""

    ends: SharedReadEnds
    downgrade: str | None = None


def resolve(declared: SharedReadEnds, marker: Marker | None) -> Resolution:
    """Resolve a declaration against the graph about to replay; never earlier than declared (R4).

    Args:
        declared: what the backend that replays says for the mode (R2).
        marker: the marker *of that graph*, not of its runner; None where none was planted, or nothing is replayed.
    """
    if declared is SharedReadEnds.IN_REPLAY and marker is None:
        return Resolution(SharedReadEnds.POST_REPLAY, NO_MARKER)
    return Resolution(declared)


@dataclass(frozen=True, slots=True)
class ReadDone:
    """One phase's publication: where its shared reads end, and the event to wait for.

    Either there is an event, or there is a reason why not; UNKNOWN goes with no event.
    """

    step: int
    mode: ForwardMode
    ends: SharedReadEnds
    event: Event | None
    reason: FallbackReason | None
    order: int = 0
    """Rises with each publication, over all runners: which of a step's phases was launched last."""

    def __post_init__(self) -> None:
        unknown = self.ends is SharedReadEnds.UNKNOWN
        if (self.event is None) != unknown or (self.reason is not None) != unknown:
            msg = (
                f"step {self.step}, {self.mode}: a publication has an event unless it is UNKNOWN, and a reason only"
                f" then; got ends={self.ends.name}, event={self.event!r}, reason={self.reason!r}"
            )
            raise ContractError(msg)


class Mailbox:
    """``shared_read_done``: holds one runner's newest publication (R6)."""

    __slots__ = ("_content", "_pool")

    def __init__(self, pool: EventPool) -> None:
        self._pool = pool
        self._content: ReadDone | None = None

    def put(self, done: ReadDone) -> None:
        """Publish; whatever lay here is replaced, also by an UNKNOWN."""
        replaced = self._content
        if replaced is not None and replaced.event is not done.event:
            self._pool.give_back(replaced.event)
        self._content = done

    def take(self) -> ReadDone | None:
        """Return the publication and empty the mailbox. The taker gives the event back once its wait is issued."""
        done, self._content = self._content, None
        return done

    def peek(self) -> ReadDone | None:
        """Look without taking."""
        return self._content


class Publisher:
    """Publishes one runner's phases, each at its moment (R5).

    ``pre_replay`` is called after the batch is loaded and before the replay is launched, ``in_replay`` and
    ``post_replay`` after it is launched. All record on the current stream, which is the runner's forward stream.

    ``order`` is shared by the publishers of all runners, so that the barrier can tell which phase came last.
    """

    def __init__(self, mailbox: Mailbox, pool: EventPool, order: Iterator[int] | None = None) -> None:
        self._mailbox = mailbox
        self._pool = pool
        self._order = count() if order is None else order

    def pre_replay(self, step: int, mode: ForwardMode) -> ReadDone:
        """Publish a fresh event recorded here: all shared reads are enqueued, the replay isn't."""
        return self._fresh(step, mode, SharedReadEnds.PRE_REPLAY)

    def in_replay(self, step: int, mode: ForwardMode, marker: Marker) -> ReadDone:
        """Publish the marker of the graph just launched. The replay armed it; it is never recorded here.

        A marker that no replay has recorded since it was last published would make the wait a no-op, or bind it to an
        older step: then there is nothing to wait for, and the publication says so.
        """
        if not marker.armed:
            return self.unknown(step, mode, FallbackReason.UNRECORDED)
        marker.armed = False
        return self._put(ReadDone(step, mode, SharedReadEnds.IN_REPLAY, marker.event, None, next(self._order)))

    def post_replay(self, step: int, mode: ForwardMode) -> ReadDone:
        """Publish a fresh event recorded behind the whole replay."""
        return self._fresh(step, mode, SharedReadEnds.POST_REPLAY)

    def unknown(self, step: int, mode: ForwardMode, reason: FallbackReason) -> ReadDone:
        """Publish that there is no event to wait for, and why. Replaces what an earlier phase left."""
        return self._put(ReadDone(step, mode, SharedReadEnds.UNKNOWN, None, reason, next(self._order)))

    def _fresh(self, step: int, mode: ForwardMode, ends: SharedReadEnds) -> ReadDone:
        event = self._pool.take()
        event.record()
        return self._put(ReadDone(step, mode, ends, event, None, next(self._order)))

    def _put(self, done: ReadDone) -> ReadDone:
        self._mailbox.put(done)
        return done
