"""R4: what is resolved is never earlier than what was declared."""

from __future__ import annotations

from itertools import product

import pytest

from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.fence.events import Marker
from sglang_fence.fence.publication import NO_MARKER, Resolution, resolve

PRE, IN, POST, UNKNOWN = SharedReadEnds


def marker() -> Marker:
    return Marker(SimulatedDevice().Event(external=True))


@pytest.mark.parametrize(("declared", "marked"), list(product(SharedReadEnds, (True, False))))
def test_a_resolution_is_never_earlier_than_declared(declared: SharedReadEnds, *, marked: bool) -> None:
    assert resolve(declared, marker() if marked else None).ends >= declared


def test_in_replay_without_a_marker_is_post_replay_with_its_cause() -> None:
    assert resolve(IN, None) == Resolution(POST, NO_MARKER)


def test_in_replay_with_a_marker_stays() -> None:
    assert resolve(IN, marker()) == Resolution(IN, None)


@pytest.mark.parametrize("declared", [PRE, POST, UNKNOWN])
@pytest.mark.parametrize("marked", [True, False])
def test_a_marker_makes_no_other_declaration_earlier_or_later(declared: SharedReadEnds, *, marked: bool) -> None:
    assert resolve(declared, marker() if marked else None) == Resolution(declared, None)
