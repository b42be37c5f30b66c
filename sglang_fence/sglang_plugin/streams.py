"""SGLang's streams and events, dressed as the core takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sglang_fence.device.cuda import CudaDevice, CudaEvent, CudaStream


class CudaStreams:
    """Dresses each stream once, and an event when another one is asked for: a marker is the same for ever."""

    def __init__(self) -> None:
        from sglang_fence.device import cuda  # noqa: PLC0415 - where there is CUDA alone

        self._stream, self._event = cuda.CudaStream, cuda.CudaEvent
        self._dressed: dict[int, CudaStream] = {}
        self._newest: CudaEvent = cuda.CudaEvent(None)
        self.device: CudaDevice = cuda.CudaDevice()

    def dressed(self, raw: Any, name: str = "forward") -> CudaStream:  # noqa: ANN401 - torch's stream
        """Return the core's stream for SGLang's, which is kept: another one can't take its identity."""
        stream = self._dressed.get(id(raw))
        if stream is None:
            stream = self._dressed[id(raw)] = self._stream(name, raw)
        return stream

    def event(self, raw: Any) -> CudaEvent:  # noqa: ANN401 - torch's event
        """Return the core's event for SGLang's."""
        if self._newest.raw is not raw:
            self._newest = self._event(raw)
        return self._newest
