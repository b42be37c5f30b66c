"""The ranges of a step, as NVTX and traces hear of them: each phase of speculation in its place, all balanced."""

from __future__ import annotations

from functools import partial

import pytest

from sglang_fence.catalogue.ranges import NVTX_RANGES
from sglang_fence.sglang_plugin.targets import ONLY_MARKED, TARGETS
from sglang_fence.testing.recording import RecordingObserver
from tests.sglang_plugin.scheduling import Algorithm, Runner, Scheduler


def _eagle(observer: RecordingObserver | None) -> tuple[Scheduler, Runner]:
    scheduler = Scheduler(observers=[] if observer is None else [observer])
    draft = Runner(is_draft_worker=True, spec_algorithm=Algorithm("EAGLE", may_publish=False))
    scheduler.owner = draft
    return scheduler, draft


def _round(scheduler: Scheduler, draft: Runner) -> None:
    verify = partial(scheduler.graph, scheduler.target, "TARGET_VERIFY", "IN_REPLAY")
    scheduler.step(
        "DECODE",
        partial(scheduler.phase, "draft"),
        partial(scheduler.phase, "verify", partial(scheduler.phase, "decode_execute", verify)),
        partial(scheduler.draft_extend, draft, publishes=False),
    )
    scheduler.phase("process_batch_result")


def _told(observer: RecordingObserver) -> list[str]:
    """Return what began and ended, in order."""
    signs = {"range_started": "+", "range_ended": "-"}
    return [f"{signs[call.hook]}{call.arguments[0]}" for call in observer.calls if call.hook in signs]


def test_draft_verify_and_draft_extend_lie_in_the_launch_and_the_barrier_behind_it() -> None:
    observer = RecordingObserver()
    _round(*_eagle(observer))
    assert _told(observer) == [
        "+launch",
        *("+draft", "-draft"),
        *("+target_verify", "+replay", "-replay", "-target_verify"),
        *("+draft_extend", "-draft_extend"),
        "-launch",
        *("+barrier", "-barrier"),
        *("+process_results", "-process_results"),
    ]


def test_a_phase_that_raises_ends_its_ranges() -> None:
    observer = RecordingObserver()
    scheduler, _ = _eagle(observer)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scheduler.step("DECODE", partial(scheduler.phase, "verify", fail))
    assert _told(observer) == ["+launch", "+target_verify", "-target_verify", "-launch"]


def test_where_nobody_hears_of_ranges_none_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, draft = _eagle(None)
    monkeypatch.setattr(scheduler.steps, "range", None)  # would raise if it were called
    _round(scheduler, draft)
    assert scheduler.counted().total() == 1


def test_what_is_only_marked_has_a_range_of_the_catalogue() -> None:
    assert set(ONLY_MARKED.values()) <= {one.name for one in NVTX_RANGES}
    assert set(ONLY_MARKED) <= {target.key for target in TARGETS}
