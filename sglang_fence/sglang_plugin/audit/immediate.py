"""``ImmediateDevice``: a device without streams, on which everything happens when it is launched.

SGLang on a CPU is one: a graph there is a closure that is run again, and an event does nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from time import perf_counter_ns
from typing import TYPE_CHECKING, NoReturn

import torch

from sglang_fence.observe.device_times import Offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from sglang_fence.device import protocol
    from sglang_fence.device.buffers import SharedBuffer


class ImmediateEvent:
    """Always done."""

    def record(self, stream: protocol.Stream | None = None) -> None:
        """Nothing is left to bind to."""

    def query(self) -> bool:
        """Yes."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end_event: protocol.Event, /) -> float:  # noqa: ARG002 - the protocol's
        """No time."""
        return 0.0


class ImmediateStream:
    """In order with everything."""

    def __init__(self, name: str) -> None:
        self.name = name

    def wait_event(self, event: protocol.Event) -> None:
        """It is done."""

    def wait_stream(self, stream: protocol.Stream) -> None:
        """It is empty."""

    def synchronize(self) -> None:
        """It is empty."""


class ImmediateDevice:
    """See the module."""

    name = "cpu"
    torch_device = torch.device("cpu")
    asynchronous = False

    def __init__(self) -> None:
        self._ids = count()
        self._stream = ImmediateStream("only")

    def Event(self, *, enable_timing: bool = False, external: bool = False) -> ImmediateEvent:  # noqa: ARG002, N802 - the protocol's
        """See the protocol."""
        return ImmediateEvent()

    def Stream(self, name: str, *, priority: int = 0) -> ImmediateStream:  # noqa: ARG002, N802 - the protocol's
        """See the protocol."""
        return ImmediateStream(name)

    def observer_stream(self, name: str) -> ImmediateStream:
        """See the protocol."""
        return ImmediateStream(name)

    def timed_event(self) -> NoReturn:
        """There are no device times.

        Raises:
            NotImplementedError: always.
        """
        msg = "a device without streams has no times"
        raise NotImplementedError(msg)

    def fence_moments(self, end: object, released: object, wait: object, /) -> NoReturn:  # noqa: ARG002 - the protocol's
        """Nor moments; as :meth:`timed_event`.

        Raises:
            NotImplementedError: always.
        """
        self.timed_event()

    @property
    def driver_library(self) -> None:
        """No driver is called past this device."""

    def as_event(self, timed: object) -> None:
        """See the protocol."""

    def host_ns(self) -> int:
        """See the protocol."""
        return perf_counter_ns()

    def is_capturing(self) -> bool:
        """Never."""
        return False

    def calibrate(self, forward: object, schedule: object, observer: object) -> Offsets:  # noqa: ARG002 - the protocol's
        """Nothing is late."""
        return Offsets()

    def current_stream(self) -> ImmediateStream:
        """The only one."""
        return self._stream

    @contextmanager
    def stream(self, stream: protocol.Stream) -> Generator[None]:  # noqa: ARG002 - the protocol's
        """No other stream to be had."""
        yield

    def capture(self, graph: protocol.Graph) -> NoReturn:
        """There are no graphs.

        Raises:
            NotImplementedError: always.
        """
        del graph
        msg = "a device without streams captures no graphs"
        raise NotImplementedError(msg)

    def Graph(self, name: str) -> NoReturn:  # noqa: N802 - the protocol's
        """There are none.

        Raises:
            NotImplementedError: always.
        """
        msg = f"a device without streams has no graph for {name}"
        raise NotImplementedError(msg)

    def is_current_stream_capturing(self) -> bool:
        """Never."""
        return False

    def launch(
        self,
        name: str,  # noqa: ARG002 - for devices that report it
        body: Callable[[], object],
        *,
        reads: Sequence[protocol.Access] = (),  # noqa: ARG002 - for devices that check it
        writes: Sequence[protocol.Access] = (),  # noqa: ARG002 - as above
    ) -> None:
        """Run it."""
        body()

    def host(self, name: str) -> None:
        """Real time passes by itself."""

    def set_step(self, step: int) -> None:
        """Not needed here."""

    def freed(self, buffer_id: int, stream: protocol.Stream) -> None:
        """Not needed here."""

    def check_access(self, buffer: SharedBuffer) -> None:
        """Not checked here."""

    def register_buffer(self, buffer: SharedBuffer) -> int:  # noqa: ARG002 - the protocol's
        """See the protocol."""
        return next(self._ids)

    def virtual_seconds(self) -> None:
        """Time is real."""

    def synchronize(self) -> None:
        """Nothing is pending."""
