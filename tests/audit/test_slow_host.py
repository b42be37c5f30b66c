"""A host that takes longer over a forward than a window is held open still overwrites in time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from sglang_fence.attention.base import base_read_ends
from sglang_fence.attention.deepseek_v4 import DeepSeekV4AttnBackend
from sglang_fence.audit.cases import Case
from sglang_fence.audit.delays import HOLD_US, WIDE_US
from sglang_fence.device.kernels import HOST_CALLS, Cost
from sglang_fence.graphs.breakable import BreakableGraph
from tests.audit.running import IN, audited, check_sound, check_torn, claim_of, name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.contract import ForwardMode, SharedReadEnds
    from sglang_fence.device.protocol import DeviceModule
    from sglang_fence.fence.events import Marker
    from sglang_fence.graphs.parts import Part

BREAK = "launch_eagerly"
BOTH = ("full_to_swa", "req_to_token")


class TakesLongOverBreaks(BreakableGraph):
    """The host launches what stands between two segments kernel by kernel, and takes its time."""

    def __init__(
        self, device: DeviceModule, name: str, parts: Sequence[Part], planted: Callable[[], Marker | None]
    ) -> None:
        def launch(part: Part) -> None:
            device.host(BREAK)
            part.launch()

        slow = [replace(part, launch=partial(launch, part)) if part.breaks else part for part in parts]
        super().__init__(device, name, slow, planted)


@pytest.fixture(autouse=True)
def _slow_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each break takes the host longer than the audit holds the device back, behind the marker included."""
    monkeypatch.setitem(HOST_CALLS, BREAK, Cost(2 * (HOLD_US + WIDE_US), "kernels of an eager part, one by one"))
    monkeypatch.setattr("sglang_fence.runners.graph_runner.BreakableGraph", TakesLongOverBreaks)


@pytest.mark.parametrize(
    "case",
    [
        Case("native", "none", "breakable"),
        Case("tbo:trtllm_mha", "ngram", "breakable"),
    ],
    ids=name,
)
def test_every_plant_is_caught_in_every_run(case: Case) -> None:
    report = audited(case, repeats=1)
    check_sound(report)
    results = [one for claim in report.poisoned.claims for end in claim.ends.values() for one in end.buffers]
    assert results
    assert {one.missed for one in results} == {0}


def test_what_is_read_again_behind_a_break_is_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(_: AttentionBackend, mode: ForwardMode) -> SharedReadEnds:
        return base_read_ends(mode)

    monkeypatch.setattr(DeepSeekV4AttnBackend, "shared_read_ends", early)
    report = audited(Case("deepseek_v4", "ngram", "breakable"), repeats=1)
    assert report.missed == []
    assert report.disagreements == []
    verify = claim_of(report.poisoned, "target_verify")
    assert verify.resolved is IN
    check_torn(verify, *BOTH)
