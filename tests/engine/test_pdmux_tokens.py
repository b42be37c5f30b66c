"""Under PD multiplexing greedy tokens equal Transformers' ``generate``, and no access is left unordered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.engine.pdmux_serving import handing_over, serve, varied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.engine.pdmux_serving import Prompt

    Expected = Callable[[Sequence[Prompt]], list[list[int]]]
    Generate = Callable[[Sequence[int], int], list[int]]

VARIANTS: dict[str, dict[str, Any]] = {
    "roomy": {},
    "no_cache": {"prefix_cache": False},
    "small_pool": {"kv_tokens": 288},
    "chunks": {"chunk": 16},
}


@pytest.mark.parametrize("fence", ["fine", "coarse"])
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
@pytest.mark.parametrize("graph", ["full", "breakable", "off"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_tokens_equal_generate(variant: str, graph: str, attention: str, fence: str, expected: Expected) -> None:
    run = serve(varied(), graph=graph, attention=attention, fence=fence, **VARIANTS[variant])
    assert run.outputs == expected(varied())
    assert run.hazards == []
    # What the variant is there for did happen.
    assert (run.scheduler.retractions > 0) == (variant == "small_pool")
    assert (run.engine.memory.cached_tokens > 0) == (variant != "no_cache")
    assert {launch.stream for launch in run.launches} == {"prefill", "decode_alone", "decode_beside_prefill"}


@pytest.mark.parametrize("options", [{}, {"kv_tokens": 288}, {"prefix_cache": False}], ids=str)
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_windows_slide_while_other_streams_read(attention: str, options: dict[str, Any]) -> None:
    """The window's tokens are checked against those of a single stream."""
    run = serve(varied(), attention=attention, window=32, **options)
    assert run.outputs == serve(varied(), attention=attention, window=32, pdmux=False, **options).outputs
    assert run.hazards == []


@pytest.mark.parametrize("options", [{"max_running": 2}, {"max_running": 3, "kv_tokens": 400}], ids=str)
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_dead_lanes_disturb_nobody(
    attention: str, options: dict[str, Any], expected: Expected, generate: Generate
) -> None:
    prompts = handing_over(generate)
    run = serve(prompts, attention=attention, **options)
    assert run.outputs == expected(prompts)
    assert run.hazards == []


@pytest.mark.parametrize("seed", range(4))
def test_tokens_do_not_depend_on_timing(seed: int, expected: Expected) -> None:
    run = serve(varied(), costs=CostTable.random(seed), attention="trtllm_mha", kv_tokens=640)
    assert run.outputs == expected(varied())
    assert run.hazards == []


def test_devices_without_external_events_are_served(expected: Expected) -> None:
    run = serve(varied(), device=SimulatedDevice(external_events=False))
    assert run.outputs == expected(varied())
    assert run.hazards == []
    assert dict(run.summary.by_mode()["decode"].resolved).keys() == {"POST_REPLAY"}


@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
def test_without_a_fence_there_are_hazards(attention: str) -> None:
    hazards = serve(varied(), attention=attention, fence="off").hazards
    assert {hazard.kind for hazard in hazards} == {"WAR"}
    assert "req_to_token" in {hazard.buffer for hazard in hazards}
