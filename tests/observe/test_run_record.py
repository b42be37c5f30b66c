"""The record of a run: timed steps as they were, traces as a fair sample with the extremes, all of it bounded."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.observe.run_record import RunRecorder
from sglang_fence.observe.sampling import Sampling
from tests.exporters.perfetto.traces import forced_coarse, steady
from tests.observe.watched import watch

if TYPE_CHECKING:
    from sglang_fence.observe.trace import StepTrace


def test_it_holds_what_the_observers_heard_of_each_timed_step() -> None:
    recorder = RunRecorder()
    watched = watch(Sampling(timing_every=3, trace_ratio=0.2), observers=[recorder])
    watched.serve()
    watched.engine.close()
    told = recorder.to_json()
    assert told == json.loads(json.dumps(told))
    assert [row["step"] for row in told["steps"]] == watched.timed
    assert 0 < told["timed_steps"] == told["kept_steps"] < len(watched.finished)
    for row in told["steps"]:
        record = watched.finished[row["step"]]
        assert row == {
            "step": record.step,
            "mode": record.mode,
            "backend": record.backend,
            "batch_size": record.batch_size,
            "fence": record.fence,
            "reason": record.reason,
            "ends": record.resolved.name,
            "slack_us": record.slack_us,
            "wait_us": record.wait_us,
            "forward_us": record.forward_us,
            "gap_us": record.gap_us,
            "lost_slack_us": record.lost_slack_us,
            "lost_us": record.lost_us,
        }
    traces = {trace.step: trace for trace in watched.traces}
    assert [found["step"] for found in told["traces"]] == sorted(traces)
    for found in told["traces"]:
        check_trace(found, traces[found["step"]])


def check_trace(found: dict[str, Any], trace: StepTrace) -> None:
    assert found["slack_us"] == trace.slack_us
    assert found["fence"] == trace.fence
    assert len(found["spans"]) == len(trace.spans) > 0
    for told, span in zip(found["spans"], trace.spans, strict=True):
        assert (told["name"], told["track"], told["segment"]) == (span.name, span.track, span.segment)
        assert told["end_us"] - told["start_us"] == pytest.approx((span.end_ns - span.start_ns) / 1e3, abs=0.002)
        assert told["start_us"] == pytest.approx((span.start_ns - trace.start_ns) / 1e3, abs=0.001)
    if trace.released_ns is not None:
        assert found["released_us"] == pytest.approx((trace.released_ns - trace.start_ns) / 1e3, abs=0.001)


def test_older_steps_make_room_and_are_counted() -> None:
    recorder = RunRecorder(steps=5)
    watched = watch(Sampling(timing_every=1), observers=[recorder])
    watched.serve()
    told = recorder.to_json()
    assert told["timed_steps"] == len(watched.finished) > 5
    assert [row["step"] for row in told["steps"]] == watched.timed[-5:]


def test_the_extremes_are_kept_however_many_come() -> None:
    recorder = RunRecorder(traces=4)
    best = steady(100)._replace(slack_us=1e6)
    longest = forced_coarse(200)._replace(wait_us=1e6)
    dearest = forced_coarse(300)._replace(lost_us=1e6)
    special = {100: best, 200: longest, 300: dearest}
    for step in range(1000):
        recorder.step_traced(special.get(step, steady(step)))
    told = recorder.to_json()
    kept = [found["step"] for found in told["traces"]]
    assert told["traced_steps"] == 1000
    assert set(special) <= set(kept)
    assert len(kept) <= 4 + 3


def test_each_trace_has_the_same_chance() -> None:
    kept: Counter[bool] = Counter()
    for most in range(20, 60):
        recorder = RunRecorder(traces=most)
        for step in range(400):
            recorder.step_traced(steady(step)._replace(slack_us=None, wait_us=None))
        kept.update(found["step"] < 200 for found in recorder.to_json()["traces"])
    assert 0.4 < kept[True] / kept.total() < 0.6
