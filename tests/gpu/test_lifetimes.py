"""R12 on a GPU: a freed block of the schedule stream is handed out again while the forward still reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.engine.lifetimes import StepLifetimes

if TYPE_CHECKING:
    from tests.gpu.conftest import Opened

SIZE = 1 << 18
OLD, NEW = 1.0, 2.0


def play(opened: Opened, *, held: bool) -> tuple[bool, set[float]]:
    """Free a step's inputs under its forward; say whether their block was reused, and what the forward saw."""
    device = opened.device
    schedule, forward, done = device.Stream("schedule"), device.Stream("forward"), device.Event()
    lifetimes = StepLifetimes()
    seen = torch.zeros(SIZE, device=device.torch_device)
    with device.stream(schedule):
        inputs = torch.full((SIZE,), OLD, device=device.torch_device)
    device.synchronize()
    address = inputs.data_ptr()
    with device.stream(forward):
        opened.delay()
        seen.copy_(inputs)
        done.record()
    if held:
        lifetimes.hold(done, inputs)
    del inputs
    lifetimes.reap()
    with device.stream(schedule):
        following = torch.full((SIZE,), NEW, device=device.torch_device)
    assert not done.query(), "the delay was too short to show anything"
    device.synchronize()
    lifetimes.reap()
    assert len(lifetimes) == 0
    return following.data_ptr() == address, set(seen.unique().tolist())


@pytest.mark.gpu
def test_inputs_that_nothing_holds_are_overwritten_under_the_forward(gpu: Opened) -> None:
    play(gpu, held=True)  # loads every kernel
    assert play(gpu, held=False) == (True, {NEW})


@pytest.mark.gpu
def test_inputs_that_the_step_holds_are_not(gpu: Opened) -> None:
    play(gpu, held=True)
    assert play(gpu, held=True) == (False, {OLD})
