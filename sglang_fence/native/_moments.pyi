# The compiled part that takes and reads a step's moments through the CUDA driver: see _moments.c. Whatever the driver
# refuses is a RuntimeError.

from typing import Self, final

SOURCE: str  # the digest of the source that this was compiled from

# The driver's functions. OSError: there is no such library, or it lacks one of them.
@final
class Driver:
    def __new__(cls, library: str = "libcuda.so.1") -> Self: ...

# A timing event that somebody else made and keeps; `handle` is the driver's.
class Event:
    def __new__(cls, driver: Driver, handle: int) -> Self: ...
    @property
    def handle(self) -> int: ...

    # Bind to the work enqueued so far on a stream, which has a `handle`.
    def record(self, stream: object, /) -> None: ...

    # The µs to another event; None while one of the two isn't reached.
    def elapsed_us(self, end_event: Event, /) -> float | None: ...

# F, R and A of a step, as observe/moments.py has them. All three events are of one driver.
@final
class Moments:
    def __new__(cls, end: Event, released: Event, wait: Event) -> Self: ...

    # Streams have a `handle`; the event has a `raw` with a `cuda_event`. A is recorded as well.
    def take(self, forward: object, observer: object, event: object, schedule: object, /) -> int: ...
    def read(self) -> tuple[float, float] | None: ...
