"""``bench fence`` on the simulated device: exact numbers, which are worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.bench.fence_result import AGAIN, BASELINE, Cell
from sglang_fence.bench.fencing import VARIANTS, Sweep, decode_step, measure
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.bench.arithmetic import period_us

BY_HAND = {  # decode, prepare, schedule → µs a step: ideal and off, coarse, POST, IN and PRE
    # D = 250: coarse adds S; the POST event comes 10 µs, the sampling, before the end.
    (250, 0, 40): (250, 290, 280, 250),
    (250, 0, 80): (250, 330, 320, 250),
    (250, 0, 10): (250, 260, 250, 250),
    (1000, 500, 40): (1000, 1040, 1030, 1000),
    # Preparation doesn't fit: two steps take 250 + 40 + 250.
    (250, 250, 40): (270, 290, 280, 270),
    # The host alone: 300 and a barrier of 2, whatever the fence.
    (250, 300, 40): (302, 302, 302, 302),
    # Reads of 10 and preparation of 80 are longer than the forward, for a fence that is safe.
    (70, 0, 80): (90, 150, 140, 90),
}


def measured(decode: float, prepare: float, schedule: float, rounds: int = 1) -> Cell:
    sweep = Sweep([decode], [prepare], schedule, rounds=rounds, block_us=1_000.0)
    (cell,) = measure(SimulatedDevice(), sweep).cells
    return cell


def periods(cell: Cell) -> dict[str, float]:
    return {name: 1e6 / one.median for name, one in cell.variants.items()}


@pytest.mark.parametrize("shape", BY_HAND)
def test_a_step_takes_what_it_takes_by_hand(shape: tuple[int, int, int]) -> None:
    ideal, coarse, post, fine = BY_HAND[shape]
    cell = measured(*shape)
    found = periods(cell)
    assert found["fine IN"] == pytest.approx(fine, abs=1e-6)
    assert found["fine PRE"] == pytest.approx(fine, abs=1e-6)
    assert found["fine POST"] == pytest.approx(post, abs=1e-6)
    assert found["coarse"] == pytest.approx(coarse, abs=1e-6)
    assert 1e6 / cell.ideal_steps_per_s == pytest.approx(ideal, abs=1e-6)
    assert (cell.parts.forward_us, cell.parts.schedule_us) == (shape[0], shape[2])
    assert cell.host_us == shape[1] + 2


def test_only_an_unsafe_loop_beats_the_ideal_fence() -> None:
    cell = measured(70, 0, 80)
    assert periods(cell)[BASELINE] == pytest.approx(80)
    assert 1e6 / cell.ideal_steps_per_s == pytest.approx(90)


SHAPES = st.tuples(st.integers(21, 400), st.integers(0, 400), st.integers(0, 200))


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_each_fence_costs_what_the_moments_say(shape: tuple[int, int, int]) -> None:
    cell = measured(*shape)
    found = periods(cell)
    for name, (fence, ends) in VARIANTS.items():
        kind = ends.name.removesuffix("_REPLAY") if fence == "fine" else fence
        expected = period_us(cell.shape, kind, lead=4, steps=cell.steps)
        assert found[name] == pytest.approx(expected, abs=1e-3), name  # the host's clock has nanoseconds


@settings(max_examples=40, deadline=None)
@given(SHAPES)
def test_later_ends_are_slower_and_no_fence_is_faster_than_ideal(shape: tuple[int, int, int]) -> None:
    cell = measured(*shape)
    found = periods(cell)
    tolerance = 1e-3
    assert found[BASELINE] == found[AGAIN]
    assert found[BASELINE] <= found["fine IN"] + tolerance
    assert found["fine PRE"] == pytest.approx(found["fine IN"], abs=tolerance)
    assert found["fine IN"] <= found["fine POST"] + tolerance
    assert found["fine POST"] <= found["coarse"] + tolerance
    # Two steps in flight may take turns of unequal length: over a block, that is less than half a step.
    assert found["fine IN"] >= 1e6 / cell.ideal_steps_per_s * (1 - 0.5 / cell.steps) - tolerance


def test_ratios_are_to_the_fence_off_and_to_whatever_is_asked() -> None:
    cell = measured(250, 0, 40, rounds=3)
    assert cell.variants["coarse"].ratios == pytest.approx([250 / 290] * 3)
    assert cell.against("fine IN", "coarse").ratio == pytest.approx(1.16)
    assert list(cell.variants[AGAIN].spread) == [1, 1]


def test_a_sweep_measures_each_shape_once_and_the_closer_look_more_often() -> None:
    sweep = Sweep([100, 250], [0, 100], 40, closer_decode_us=250, closer_schedule_us=[20, 40], rounds=1, block_us=1_000)
    told: list[str] = []
    result = measure(SimulatedDevice(), sweep, told.append)
    shapes = [cell.shape for cell in result.cells]
    assert shapes == [
        decode_step(250, 0, 20),
        decode_step(250, 0, 40),
        decode_step(100, 0, 40),
        decode_step(100, 100, 40),
        decode_step(250, 100, 40),
    ]
    assert [len(cell.variants[BASELINE].values) for cell in result.cells] == [2, 2, 1, 1, 1]
    assert [cell.shape.schedule_us for cell in result.closer()] == [20, 40]
    assert {prepare: list(row) for prepare, row in result.grid(40).items()} == {0: [100, 250], 100: [100, 250]}
    assert result.schedule_us == 40
    assert list(result.noise) == [1, 1]
    assert told[0] == "1 of 5: decode 0.25 ms, host 0 ms"
    assert told[-1] == "5 of 5: decode 0.25 ms, host 0.1 ms"
