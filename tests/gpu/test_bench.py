"""The benches on a GPU: every variant runs, with the fence that it names, and tokens are those of ``generate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.bench import fencing, runtime
from sglang_fence.bench.overlap import OverlapLoop, StepShape
from sglang_fence.bench.random_model import ModelSize
from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.cuda_spinning import cuda_spinner
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from tests.gpu.conftest import Opened

pytestmark = pytest.mark.gpu

SHAPE = StepShape(reads_us=10, compute_us=230, schedule_us=40, after_us=10, prepare_us=20)
STEPS = 50


@pytest.mark.parametrize("ends", list(SharedReadEnds)[:3])
def test_each_end_is_published_and_waited_for(gpu: Opened, ends: SharedReadEnds) -> None:
    summary = Summary()
    OverlapLoop(gpu.device, cuda_spinner(gpu.device), SHAPE, "fine", [summary], ends=ends).run(STEPS)
    decodes = summary.by_mode()["decode"]
    assert decodes.resolved == {ends.name: STEPS}
    assert decodes.fence == {"fine": STEPS}


def test_a_sweep_has_every_figure(gpu: Opened) -> None:
    sweep = fencing.Sweep([250], [0], closer_decode_us=250, closer_schedule_us=[40], rounds=1, block_us=10_000)
    result = fencing.measure(gpu.device, sweep)
    (cell,) = result.cells
    assert set(cell.variants) == set(fencing.VARIANTS)
    assert all(value > 0 for one in cell.variants.values() for value in one.values)
    # Spinning kernels take what they were asked to, or they are another benchmark's.
    assert 200 < cell.parts.forward_us < 300
    assert 30 < cell.parts.schedule_us < 60
    assert set(result.machine) >= {"gpu", "driver", "cuda"}


def test_tokens_are_generates_in_both_data_types(gpu: Opened) -> None:
    plan = runtime.RuntimePlan(ModelSize(256, 2, 1000), batches=(1, 4), new_tokens=24, rounds=1)
    result = runtime.measure(gpu.device, plan)
    exact, coarse = result.checks
    assert (exact.dtype, coarse.dtype) == ("float32", "bfloat16")
    assert exact.passed
    assert coarse.passed
