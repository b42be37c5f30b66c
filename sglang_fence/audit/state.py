"""What a step leaves behind: kept before it runs, put back afterwards, compared between runs.

Row 0 of every shared buffer, and the first page of every KV pool, belong to padding: all may write them, none looks at
them, so they are put back and not compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sglang_fence.audit.bits import same
from sglang_fence.audit.phases import runners_of

if TYPE_CHECKING:
    import torch

    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.engine.engine import Engine
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.runners.step_result import StepResult

Outputs = dict[str, "torch.Tensor"]
"""By a name that says what it is, in the order in which it is computed."""


class DeviceState:
    """Every tensor that a step may change, as it was when this was made. The device must be idle.

    Args:
        engine: whose.
        lasting: its shared buffers, without those that belong to a step.
    """

    def __init__(self, engine: Engine, lasting: list[SharedBuffer]) -> None:
        self._tensors: Outputs = {}
        self._padding: dict[str, int] = {}
        for buffer in lasting:
            self._add(f"{buffer.name} in the end", buffer.tensor, 1)
        stores: dict[int, tuple[str, KVStore]] = {}
        for number, runner in enumerate(runners_of(engine)):
            store = runner.attn_backend.kv
            stores.setdefault(id(store), (f"{runner.role} {number}", store))
        for name, store in stores.values():
            for layer in range(len(store.layout.windows)):
                for kind, tensor in zip(("keys", "values"), store.layer(layer), strict=True):
                    self._add(f"{name}: layer {layer} {kind} in the end", tensor, store.page_size)
        self._saved = {name: tensor.clone() for name, tensor in self._tensors.items()}
        # What a worker's host side remembers from step to step is rebound, never changed in place.
        self._host: list[tuple[dict[str, Any], dict[str, Any]]] = [(vars(engine.worker), dict(vars(engine.worker)))]

    def restore(self) -> None:
        """Put everything back, on the current stream. The device must be idle."""
        for name, tensor in self._tensors.items():
            tensor.copy_(self._saved[name])
        for live, saved in self._host:
            live.update(saved)

    def now(self) -> Outputs:
        """Return copies of what is there now, without padding."""
        return {name: tensor[self._padding[name] :].clone() for name, tensor in self._tensors.items()}

    def _add(self, name: str, tensor: torch.Tensor, padding: int) -> None:
        while name in self._tensors:  # runners have buffers of the same name
            name += "'"
        if tensor.numel():
            self._tensors[name] = tensor
            self._padding[name] = padding


def results(result: StepResult) -> Outputs:
    """Return a step's tokens; it must have completed."""
    found = {"tokens of the step": result.tokens}
    return found if result.counts is None else found | {"counts of the step": result.counts}


def first_difference(one: Outputs, other: Outputs) -> str | None:
    """Return the name of the first output that isn't the same bit for bit; None where all are.

    A difference in a layer's keys is caused before it is written there: by what wrote them, or by the layer before.
    """
    for name, tensor in one.items():
        if name not in other or not same(tensor, other[name]):
            return name
    return next((name for name in other if name not in one), None)
