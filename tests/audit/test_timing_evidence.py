"""What ``tests/gpu/audit_matrix.py --timing`` tells, where the truth is known: in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.audit.auditing import AuditOptions, poison
from sglang_fence.audit.cases import Case
from sglang_fence.audit.delays import WIDE_US, simulated_costs
from sglang_fence.audit.poison import Poisoner
from sglang_fence.contract import SharedReadEnds
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.gpu.audit_matrix import cases_of
from tests.gpu.audit_timing import Timings, timed

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Event


def _timings(case: Case) -> Timings:
    device = SimulatedDevice(simulated_costs(), check_hazards=False)
    with timed() as timings:
        poison(case, device, AuditOptions(repeats=1, candidates=(SharedReadEnds.IN_REPLAY,)))
    return timings


def test_the_margin_is_the_delay_behind_the_marker_less_the_poisons_time() -> None:
    timings = _timings(Case("native", "none", "breakable"))
    assert {one.buffer for one in timings.all} == {"req_to_token", "full_to_swa"}
    assert {one.graph for one in timings.all} == {"decode_bs1.0", "decode_bs2.0", "decode_bs4.0"}
    for one in timings.all:
        assert one.in_time
        assert one.margin == pytest.approx(WIDE_US - 1.0)
        assert one.poison[0] == pytest.approx(one.marker)
        assert 0 <= one.struck <= one.replayed
    assert len(timings.lines()) == 3


def test_a_poison_that_is_late_has_a_negative_margin_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    strike = Poisoner.strike

    def late(self: Poisoner, event: Event) -> None:
        """Keep the adversary's stream busy beyond the delay."""
        with self._device.stream(self._adversary):
            for _ in range(30):
                self._device.launch("audit_delay", lambda: None)
        strike(self, event)

    monkeypatch.setattr(Poisoner, "strike", late)
    timings = _timings(Case("native", "none", "breakable"))
    assert timings.all
    assert all(one.in_time is False and one.margin < 0 for one in timings.all)
    assert sum(line.startswith("missed: decode_bs") for line in timings.lines()) == len(timings.all)


def test_cases_are_found_by_patterns() -> None:
    every = cases_of("all", "1/1")
    named = cases_of("tbo:*breakable; native none *", "1/1")
    assert {case.graph for case in named if case.attention.startswith("tbo:")} == {"breakable"}
    assert [case for case in named if case.attention == "native"] == [
        Case("native", "none", graph) for graph in ("full", "breakable", "off")
    ]
    assert {*cases_of("all", "1/2"), *cases_of("all", "2/2")} == set(every)
    assert cases_of("no such", "1/1") == []
