"""The moments of a step through the driver: the compiled part and the Python code do the same, call by call."""

# ruff: noqa: ANN401 - what stands in for torch's objects has no type of theirs

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_fence import native
from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.device.cuda_timing import CudaObserverStream, Driver, DriverEvent
from sglang_fence.observe.clock import DeviceClock
from sglang_fence.observe.device_times import DeviceTimes, Offsets
from sglang_fence.observe.moments import END, RELEASED, WAIT, FenceMoments, PlainMoments
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import IN_FLIGHT, StepProbe
from sglang_fence.observe.sampling import Sampling
from sglang_fence.testing.recording import RecordingObserver
from tests.device.driver.fake_driver import Call, FakeDriver, build_fake_driver

if TYPE_CHECKING:
    from sglang_fence.observe.timing import TimedEvent

FORWARD, SCHEDULE, OBSERVER, CLOCK, MARKER = 1001, 1002, 1003, 1004, 2001


class Maker(Protocol):
    """Makes events and moments of one kind."""

    def timed_event(self, raw: Any, /) -> TimedEvent: ...
    def fence_moments(self, end: Any, released: Any, wait: Any, /) -> FenceMoments: ...


class Interpreted:
    """The Python code."""

    def __init__(self, path: Path) -> None:
        self.driver = Driver(ctypes.PyDLL(str(path)))

    def timed_event(self, raw: Any, /) -> DriverEvent:
        return DriverEvent(self.driver, raw)

    def fence_moments(self, end: Any, released: Any, wait: Any, /) -> PlainMoments:
        return PlainMoments(end, released, wait)


def compiled(path: Path) -> Maker:
    """Return the compiled part; skip the test where there is none."""
    part = native.part(native.MOMENTS)
    if not part.usable:
        pytest.skip(f"the compiled part can't be used: {part.why}")
    from sglang_fence.device.cuda_compiled import CompiledDriver  # noqa: PLC0415 - where it is there alone

    return CompiledDriver(str(path))


KINDS = {"interpreted": Interpreted, "compiled": compiled}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    """Build one for these tests."""
    return build_fake_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(params=list(KINDS))
def maker(request: pytest.FixtureRequest, driver: FakeDriver) -> Maker:
    """Return each kind in turn, on a driver that forgot all."""
    driver.reset()
    return KINDS[request.param](driver.path)


class Stream(NamedTuple):
    """What the core's stream has."""

    handle: int
    name: str = "stream"


def marker(handle: int = MARKER) -> Any:
    return SimpleNamespace(raw=SimpleNamespace(cuda_event=handle))


def observer(driver: FakeDriver, handle: int = OBSERVER) -> CudaObserverStream:
    return CudaObserverStream("observer", SimpleNamespace(cuda_stream=handle), Driver(ctypes.PyDLL(str(driver.path))))


def three(maker: Maker, first: int = 11) -> tuple[list[Any], FenceMoments]:
    events = [maker.timed_event(SimpleNamespace(cuda_event=first + place)) for place in range(3)]
    return events, maker.fence_moments(*events)


def test_a_fence_is_taken_in_the_order_of_the_streams(maker: Maker, driver: FakeDriver) -> None:
    _, moments = three(maker)
    recorded = moments.take(Stream(FORWARD), observer(driver), marker(), Stream(SCHEDULE))
    assert recorded & (END | RELEASED) == END | RELEASED
    expected = [Call("record", 11, FORWARD), Call("wait", OBSERVER, MARKER), Call("record", 12, OBSERVER)]
    assert driver.calls == [*expected, Call("record", 13, SCHEDULE)][: 4 if recorded & WAIT else 3]


def test_an_end_that_is_recorded_already_is_left_alone(maker: Maker, driver: FakeDriver) -> None:
    _, moments = three(maker)
    recorded = moments.take(None, observer(driver), marker(), Stream(SCHEDULE))
    assert recorded & (END | RELEASED) == RELEASED
    assert [call for call in driver.calls if call.second != SCHEDULE] == [
        Call("wait", OBSERVER, MARKER),
        Call("record", 12, OBSERVER),
    ]


def test_the_compiled_part_takes_the_wait_as_well(driver: FakeDriver) -> None:
    driver.reset()
    _, moments = three(compiled(driver.path))
    assert moments.take(Stream(FORWARD), observer(driver), marker(), Stream(SCHEDULE)) == END | RELEASED | WAIT
    assert driver.calls[-1] == Call("record", 13, SCHEDULE)


@pytest.mark.parametrize(("entry", "after", "done"), [("record", 0, 1), ("wait", 0, 2), ("record", 1, 3)])
def test_what_the_driver_refuses_is_an_error_that_says_so(
    maker: Maker, driver: FakeDriver, entry: str, after: int, done: int
) -> None:
    _, moments = three(maker)
    driver.fail(entry, 719, after=after)
    name = {"record": "cuEventRecord", "wait": "cuStreamWaitEvent"}[entry]
    with pytest.raises(RuntimeError, match=f"^{name} failed with CUDA error 719$"):
        moments.take(Stream(FORWARD), observer(driver), marker(), Stream(SCHEDULE))
    assert len(driver.calls) == done


def test_one_event_records_and_reads(maker: Maker, driver: FakeDriver) -> None:
    (first, second, _), _ = three(maker)
    first.record(Stream(FORWARD))
    assert driver.calls == [Call("record", 11, FORWARD)]
    assert first.elapsed_us(second) is None
    driver.reach(11, 5.0)
    assert first.elapsed_us(second) is None
    driver.reach(12, 12.5)
    assert first.elapsed_us(second) == pytest.approx(7.5, abs=1e-3)
    assert first.handle == 11
    driver.fail("record", 400)
    with pytest.raises(RuntimeError, match=r"^cuEventRecord failed with CUDA error 400$"):
        first.record(Stream(FORWARD))
    driver.fail("elapsed", 400)
    with pytest.raises(RuntimeError, match=r"^cuEventElapsedTime failed with CUDA error 400$"):
        first.elapsed_us(second)


def test_the_default_stream_is_a_stream_too(maker: Maker, driver: FakeDriver) -> None:
    (first, _, _), _ = three(maker)
    first.record(Stream(0))
    assert driver.calls == [Call("record", 11, 0)]


MOMENTS_US = st.one_of(st.none(), st.floats(0, 1e6, width=32))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moments_us=st.tuples(MOMENTS_US, MOMENTS_US, MOMENTS_US))
def test_both_read_the_same_to_the_bit(driver: FakeDriver, moments_us: tuple[float | None, ...]) -> None:
    readings: list[tuple[float, float] | None] = []
    for kind in KINDS.values():
        driver.reset()
        _, moments = three(kind(driver.path))
        for event, us in zip((11, 12, 13), moments_us, strict=True):
            if us is not None:
                driver.reach(event, us)
        readings.append(moments.read())
    assert readings[0] == readings[1]
    assert (readings[0] is None) == (None in moments_us)


def test_a_reading_that_fails_is_an_error(maker: Maker, driver: FakeDriver) -> None:
    _, moments = three(maker)
    for event in (11, 12, 13):
        driver.reach(event, 1.0)
    driver.fail("elapsed", 719, after=1)
    with pytest.raises(RuntimeError, match="CUDA error 719"):
        moments.read()


def test_wrong_arguments_reach_no_driver(driver: FakeDriver) -> None:
    driver.reset()
    made = compiled(driver.path)
    (first, second, third), moments = three(made)
    stream = Stream(FORWARD)
    for wrong in ((object(), stream, marker(), stream), (stream, stream, object(), stream), (stream, stream, marker())):
        with pytest.raises((AttributeError, TypeError)):
            moments.take(*wrong)
    with pytest.raises(TypeError):
        moments.take(Stream("7"), stream, marker(), stream)  # type: ignore[arg-type] # the point
    with pytest.raises(TypeError, match="takes an Event"):
        first.elapsed_us(object())
    with pytest.raises(TypeError):
        made.fence_moments(second, third, object())
    assert not driver.calls


def test_a_library_that_is_no_driver_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        compiled(tmp_path / "nowhere.so")
    with pytest.raises(OSError, match=r"libm\.so\.6 lacks functions of the CUDA driver"):
        compiled(Path("libm.so.6"))


class Device:
    """The part of a device that a probe times with."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._now = 0
        self._next = 10

    def timed_event(self) -> TimedEvent:
        self._next += 1
        return self._maker.timed_event(SimpleNamespace(cuda_event=self._next))

    driver_library: str | None = None

    def fence_moments(self, end: Any, released: Any, wait: Any, /) -> FenceMoments:
        return self._maker.fence_moments(end, released, wait)

    def as_event(self, timed: Any, /) -> Any:
        return timed

    def host_ns(self) -> int:
        self._now += 1000
        return self._now

    def is_capturing(self) -> bool:
        return False


class Verdict:
    """Of a fine fence."""

    kind = FenceKind.FINE
    reason: FallbackReason | None = None
    published: tuple[SharedReadEnds, int] | None = (SharedReadEnds.IN_REPLAY, 0)


class Serving:
    """A probe that times each step, and what the runtime calls of it."""

    def __init__(self, maker: Maker, driver: FakeDriver) -> None:
        self.driver, self.heard = driver, RecordingObserver()
        device, forward, schedule = Device(maker), Stream(FORWARD), Stream(SCHEDULE)
        self._forward = forward
        clock = DeviceClock(device, observer(driver, CLOCK), virtual=False)
        times = DeviceTimes(device, schedule, observer(driver), clock, Offsets(marker_copy_us=1.5))
        sampling = Sampling(timing_every=1)
        self.probe = StepProbe(Observers([self.heard]), times, sampling=sampling, now=device.host_ns)

    def step(self, step: int, *, lent: bool) -> None:
        probe = self.probe
        probe.step_started(step, ForwardMode.DECODE, "native", 1, 1)
        probe.forward_started(self._forward)
        if lent:
            probe.end_event().record(self._forward)
        if probe.reads_end(Verdict(), marker(), self._forward):
            probe.before_wait()
        probe.after_wait(Verdict())

    def reach_all(self, spacing_us: float) -> None:
        """Let all be reached that was recorded: in the order of the calls, so much apart."""
        for place, call in enumerate(self.driver.calls):
            if call.name == "record":
                self.driver.reach(call.first, place * spacing_us)


def serve(maker: Maker, driver: FakeDriver, steps: int, *, lent: bool) -> Serving:
    driver.reset()
    serving = Serving(maker, driver)
    for step in range(steps):
        serving.step(step, lent=lent)
        serving.reach_all(3.0)
        serving.probe.drain()
    serving.probe.flush()
    return serving


@pytest.mark.parametrize("lent", [False, True], ids=["own end", "lent end"])
def test_a_probe_makes_the_same_calls_with_either_and_reads_the_same(driver: FakeDriver, *, lent: bool) -> None:
    calls: list[list[Call]] = []
    durations: list[list[tuple[int, float | None, float | None, float | None]]] = []
    for kind in KINDS.values():
        served = serve(kind(driver.path), driver, 40, lent=lent)
        calls.append(driver.calls)
        durations.append([(one.step, one.slack_us, one.wait_us, one.gap_us) for one in served.heard.finished])
        assert not served.probe.unresolved
    assert calls[0] == calls[1]
    assert durations[0] == durations[1]
    assert [row[0] for row in durations[0]] == list(range(40))
    assert all(row[1] is not None and row[2] is not None for row in durations[0])


def test_the_record_that_was_used_last_is_taken_again(maker: Maker, driver: FakeDriver) -> None:
    served = serve(maker, driver, 3 * IN_FLIGHT, lent=False)
    recorded = {call.first for call in driver.calls if call.name == "record" and call.second == SCHEDULE}
    assert len(recorded) < 16
    assert len(served.heard.finished) == 3 * IN_FLIGHT


def test_readings_that_fail_are_counted_and_cost_their_steps_alone(
    maker: Maker, driver: FakeDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.reset()
    serving = Serving(maker, driver)
    for step in range(12):
        serving.step(step, lent=False)
    serving.reach_all(3.0)
    driver.fail("elapsed", 719)
    serving.probe.drain(6)
    driver.fail("elapsed", 0)
    serving.probe.flush()
    failed = [one.step for one in serving.heard.finished if one.slack_us is None]
    assert failed
    assert serving.probe.health.errors == {"drain": len(failed)}
    assert serving.probe.health.unresolved == {"failed": len(failed)}
    assert [one.step for one in serving.heard.finished] == list(range(12))
    assert [line.getMessage() for line in caplog.records] == ["device times can't be read; serving goes on"]
