"""A capture survives garbage that holds older graphs."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.gpu


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Collect garbage at nearly every allocation."""
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("eager_collector")
def test_an_older_graph_in_a_cycle_is_not_freed_while_another_is_captured() -> None:
    from sglang_fence.device.cuda import CudaDevice  # noqa: PLC0415 - not everywhere

    device = CudaDevice()
    values = torch.zeros(8, device=device.torch_device)
    stream = device.Stream("forward")
    with device.stream(stream):
        values.add_(0)  # loads the kernel outside of a capture
        device.synchronize()
        for _ in range(5):
            graph = device.Graph("decode")
            with device.capture(graph):
                values.add_(1)
                cycles: list[list[Any]] = [[] for _ in range(2000)]  # allocations that tempt the collector
                for cycle in cycles:
                    cycle.append(cycle)
            graph.replay()
            holder: list[Any] = [graph, device.Graph("unused")]
            holder.append(holder)  # garbage from the next round on, with a graph in it
            del holder, graph
    device.synchronize()
    assert values.tolist() == [5.0] * 8
    assert gc.isenabled()
