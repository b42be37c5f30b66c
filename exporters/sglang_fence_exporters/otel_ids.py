"""Identifiers that aren't the SDK's: in virtual time from the step's number; a trace's as the serving process says."""

from __future__ import annotations

from hashlib import blake2b

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator

_TRACE_BYTES = 16
_SPAN_BYTES = 8


def _digest(text: str, size: int) -> int:
    # Zero is no identifier. A digest of zero is as good as impossible, so what takes its place hardly matters.
    return int.from_bytes(blake2b(text.encode(), digest_size=size).digest(), "big") or 1


class StepIds(IdGenerator):
    """Makes identifiers from the number of the step and the place of the span in it. For one thread."""

    def __init__(self) -> None:
        self._step = 0
        self._spans = 0

    def begin(self, step: int) -> None:
        """All that follows belongs to ``step``."""
        self._step = step
        self._spans = 0

    def generate_trace_id(self) -> int:
        """Return the trace's 128 bits: the same for each call between two of :meth:`begin`."""
        return _digest(f"sglang_fence step {self._step}", _TRACE_BYTES)

    def generate_span_id(self) -> int:
        """Return the 64 bits of the step's next span."""
        self._spans += 1
        return _digest(f"sglang_fence step {self._step} span {self._spans}", _SPAN_BYTES)


class GivenTraceId(RandomIdGenerator):
    """Spans' identifiers are random, the trace's is what it was told. For one thread."""

    def __init__(self) -> None:
        self.trace_id = 0
        """128 bits, of the trace that comes next."""

    def generate_trace_id(self) -> int:
        """Return what was given."""
        return self.trace_id
