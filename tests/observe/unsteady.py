"""A device whose clock drifts, whose records take a while, and whose times come as floats of ms: as CUDA's do."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING

from sglang_fence.observe.moments import OneByOne

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(eq=False)
class UnsteadyEvent:
    """Reached ``latency`` after its record, by the host's clock."""

    device: UnsteadyDevice
    reached_ns: int | None = None

    def record(self, _stream: object, /) -> None:
        self.device.check()
        self.reached_ns = self.device.now_ns + next(self.device.latencies)

    def elapsed_us(self, end: UnsteadyEvent, /) -> float | None:
        self.device.check()
        if self.reached_ns is None or end.reached_ns is None:
            msg = "an event that was never recorded has no time"
            raise RuntimeError(msg)
        if max(self.reached_ns, end.reached_ns) > self.device.now_ns:
            return None
        ms = (self.device.ticks(end.reached_ns) - self.device.ticks(self.reached_ns)) / 1e6
        return ctypes.c_float(ms).value * 1e3


@dataclass(eq=False)
class UnsteadyDevice(OneByOne):
    """Its clock runs ``ppm`` millionths fast; ``latencies`` in ns come round and round."""

    ppm: float = 0.0
    latencies_ns: tuple[int, ...] = (0,)
    now_ns: int = 5_000_000_000
    capturing: bool = False
    broken: bool = False
    latencies: Iterator[int] = field(init=False)

    def __post_init__(self) -> None:
        self.latencies = cycle(self.latencies_ns)

    def ticks(self, host_ns: int) -> float:
        """Return ns by the device's clock."""
        return host_ns * (1 + self.ppm / 1e6)

    def check(self) -> None:
        assert not self.capturing, "an event was touched while a stream captures"
        if self.broken:
            msg = "the driver is gone"
            raise RuntimeError(msg)

    def timed_event(self) -> UnsteadyEvent:
        return UnsteadyEvent(self)

    def as_event(self, _timed: object, /) -> None:
        """None serves both."""

    def host_ns(self) -> int:
        return self.now_ns

    def is_capturing(self) -> bool:
        return self.capturing

    def wait_event(self, _event: object, /) -> None:
        """As an observer stream: nothing to wait for."""
