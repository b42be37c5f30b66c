"""R11: whether the barrier is on, and who said so; where it is off nothing waits, and mailboxes are emptied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.contract import FenceKind, ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.device.simulated.streams import SimulatedStream
from sglang_fence.environ import Switches
from sglang_fence.fence.barrier import FencePolicy, WarBarrier
from sglang_fence.fence.events import EventPool
from sglang_fence.fence.publication import Mailbox, Publisher
from sglang_fence.observe.observer import Observers
from sglang_fence.observe.probe import StepProbe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.fence.conftest import Serve


class SynchronousDevice(SimulatedDevice):
    """Has no streams apart from the host, as far as anybody asks."""

    @property
    def asynchronous(self) -> bool:
        return False


ASYNC, SYNC = SimulatedDevice(), SynchronousDevice()
NONE, ENABLE, FORCE = Switches(), Switches(enable_war_barrier=True), Switches(force_coarse_war_barrier=True)
BOTH = Switches(enable_war_barrier=True, force_coarse_war_barrier=True)
STREAMS = "simulated has asynchronous streams"
NO_STREAMS = "simulated has no asynchronous streams"
SWITCH = "SGLANG_ENABLE_WAR_BARRIER"
CAUSES = {STREAMS: "asynchronous_device", NO_STREAMS: "synchronous_device", SWITCH: "switch"}

TABLE = [
    (ASYNC, NONE, None, True, False, STREAMS),
    (ASYNC, ENABLE, None, True, False, STREAMS),
    (ASYNC, FORCE, None, True, True, STREAMS),
    (SYNC, NONE, None, False, False, NO_STREAMS),
    (SYNC, FORCE, None, False, False, NO_STREAMS),
    (SYNC, ENABLE, None, True, False, SWITCH),
    (SYNC, BOTH, None, True, True, SWITCH),
    *[
        (device, switches, fence, fence != "off", fence == "coarse", f"--fence {fence}")
        for device in (ASYNC, SYNC)
        for switches in (NONE, BOTH)
        for fence in ("fine", "coarse", "off")
    ],
]


@pytest.mark.parametrize(("device", "switches", "fence", "enabled", "forced", "why"), TABLE)
def test_the_table_of_policies(
    device: SimulatedDevice,
    switches: Switches,
    fence: str | None,
    *,
    enabled: bool,
    forced: bool,
    why: str,
) -> None:
    assert FencePolicy.decide(device, switches, fence) == FencePolicy(enabled, forced, why, CAUSES.get(why, "flag"))


class Reader:
    """One runner that publishes, and one whose mailbox was left full."""

    def __init__(self, pool: EventPool) -> None:
        self.last_shared_read_mailbox = Mailbox(pool)
        self.other = Mailbox(pool)
        for mailbox in self.mailboxes:
            Publisher(mailbox, pool).post_replay(0, ForwardMode.DECODE)

    @property
    def mailboxes(self) -> Iterable[Mailbox]:
        return self.last_shared_read_mailbox, self.other

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        return mode is ForwardMode.DECODE


def refuse(*_: object) -> None:
    pytest.fail("the schedule stream was told to wait")


def test_a_disabled_barrier_empties_every_mailbox_and_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDevice()
    pool = EventPool(device)
    off = FencePolicy.decide(device, NONE, "off")
    barrier = WarBarrier(device, device.Stream("schedule"), off, pool, StepProbe(Observers()))
    reader = Reader(pool)
    monkeypatch.setattr(SimulatedStream, "wait_event", refuse)
    monkeypatch.setattr(SimulatedStream, "wait_stream", refuse)
    verdict = barrier.apply(0, reader, device.Stream("forward"))
    assert (verdict.kind, verdict.reason) == (FenceKind.DISABLED, None)
    assert [mailbox.peek() for mailbox in reader.mailboxes] == [None, None]
    assert pool.lent == 0


@pytest.mark.parametrize(
    ("device", "changes"),
    [(SimulatedDevice(), {"fence": "off"}), (SynchronousDevice(), {})],
    ids=["--fence", "device"],
)
def test_a_run_without_a_barrier_says_disabled_and_no_reason(
    device: SimulatedDevice,
    changes: dict[str, str],
    serve: Serve,
) -> None:
    run = serve(device, **changes)
    assert run.total.fence == {"disabled": run.steps}
    assert not run.total.reasons
    assert run.hazards
    assert_nothing_left(run.engine.barrier, run.engine.worker.mailboxes)


def test_the_switch_puts_a_barrier_where_the_device_asks_for_none(serve: Serve) -> None:
    run = serve(SynchronousDevice(), switches=ENABLE)
    assert run.total.fence["fine"]
    assert run.hazards == []


def test_the_command_line_outranks_the_environment(serve: Serve) -> None:
    fine = serve(fence="fine", switches=FORCE).decodes
    assert fine.fence == {"fine": fine.steps}
    coarse = serve(fence="coarse").total
    assert (coarse.fence, coarse.reasons) == ({"coarse": coarse.steps}, {"forced": coarse.steps})


def test_a_loop_without_a_barrier_is_absent_and_its_mailboxes_are_emptied(serve: Serve) -> None:
    run = serve(overlap=False)
    assert run.total.fence == {"absent": run.steps}
    assert not run.total.reasons
    assert run.hazards == []
    assert_nothing_left(run.engine.barrier, run.engine.worker.mailboxes)


def assert_nothing_left(barrier: WarBarrier, mailboxes: Iterable[Mailbox]) -> None:
    assert [mailbox.peek() for mailbox in mailboxes] == [None]
    assert barrier._pool.lent == 0
