"""What the hooks make of what a scheduler does: the fence of each step, its reason, and what is counted beside it."""

from __future__ import annotations

from functools import partial

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, SharedReadEnds
from tests.sglang_plugin.scheduling import Algorithm, Backend, Batch, Border, Runner, Scheduler, SnapshotBackend, member

IN, PRE, POST, UNKNOWN = (
    SharedReadEnds.IN_REPLAY,
    SharedReadEnds.PRE_REPLAY,
    SharedReadEnds.POST_REPLAY,
    SharedReadEnds.UNKNOWN,
)
FINE, COARSE = FenceKind.FINE, FenceKind.COARSE


@pytest.mark.parametrize("resolved", [IN, PRE, POST])
def test_a_graph_that_publishes_is_fine_at_the_end_that_it_resolved(resolved: SharedReadEnds) -> None:
    scheduler = Scheduler()
    for _ in range(3):
        scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", resolved.name))
    assert scheduler.counted() == {("decode", FINE, None, resolved): 3}
    (kind,) = scheduler.ledger.cells
    assert kind.declared is IN
    assert kind.downgrade == ("no_marker" if resolved is POST else None)
    assert not scheduler.ledger.health.stale_publications


def test_a_graph_whose_backend_says_unknown_is_coarse_for_that() -> None:
    scheduler = Scheduler()
    scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", "UNKNOWN"))
    assert scheduler.counted() == {("decode", COARSE, FallbackReason.BACKEND_UNKNOWN, UNKNOWN): 1}


def test_forced_outranks_what_was_published() -> None:
    scheduler = Scheduler(border=Border(forced_on=True))
    scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", "IN_REPLAY"))
    assert scheduler.counted() == {("decode", COARSE, FallbackReason.FORCED, IN): 1}


def test_a_barrier_that_is_off_gives_no_reason() -> None:
    scheduler = Scheduler()
    scheduler._war_barrier_enabled = False
    scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", "IN_REPLAY"))
    assert scheduler.counted() == {("decode", FenceKind.DISABLED, None, IN): 1}


def test_an_eager_decode_is_coarse_since_no_graph_served_it() -> None:
    scheduler = Scheduler()
    scheduler.step("DECODE", partial(scheduler.eager, scheduler.target, "DECODE"))
    assert scheduler.counted() == {("decode", COARSE, FallbackReason.NO_GRAPH, UNKNOWN): 1}


def test_an_eager_prefill_may_publish() -> None:
    scheduler = Scheduler()
    scheduler.target.attn_backend = Backend(EXTEND="PRE_REPLAY")
    scheduler.step("EXTEND", partial(scheduler.eager, scheduler.target, "EXTEND", publishes=True))
    assert scheduler.counted() == {("extend", FINE, None, PRE): 1}


def test_a_snapshot_is_the_declaration_of_a_backend_that_builds_one() -> None:
    scheduler = Scheduler()
    scheduler.target.attn_backend = SnapshotBackend()
    scheduler.step("EXTEND", partial(scheduler.eager, scheduler.target, "EXTEND", publishes=True))
    (kind,) = scheduler.ledger.cells
    assert (kind.declared, kind.resolved, kind.fence) == (PRE, PRE, FINE)


SPECULATIVE = Algorithm("EAGLE", may_publish=False)


@pytest.mark.parametrize(
    ("backend", "mode", "runs_as", "border", "algorithm", "reason"),
    [
        (Backend(), "EXTEND", "EXTEND", Border(), Algorithm(), FallbackReason.BACKEND_UNKNOWN),
        (Backend(), "EXTEND", "EXTEND", Border(prefill=False), Algorithm(), FallbackReason.BACKEND_UNKNOWN),
        (Backend(), "EXTEND", "EXTEND", Border(forced_on=True), Algorithm(), FallbackReason.FORCED),
        (Backend(EXTEND="IN_REPLAY"), "EXTEND", "EXTEND", Border(), Algorithm(), FallbackReason.MODE_UNSUPPORTED),
        (Backend(MIXED="PRE_REPLAY"), "MIXED", "MIXED", Border(), Algorithm(), FallbackReason.MODE_UNSUPPORTED),
        (Backend(), "MIXED", "EXTEND", Border(), Algorithm(), FallbackReason.BACKEND_UNKNOWN),
        (Backend(EXTEND="PRE_REPLAY"), "EXTEND", "EXTEND", Border(prefill=False), Algorithm(), "prefill_disabled"),
        (Backend(EXTEND="PRE_REPLAY"), "EXTEND", "EXTEND", Border(), SPECULATIVE, "spec_reader_follows"),
        (Backend(EXTEND="PRE_REPLAY"), "EXTEND", "EXTEND", Border(cached=True), Algorithm(), "host_cache"),
        (SnapshotBackend(), "EXTEND", "EXTEND", Border(), Algorithm(), FallbackReason.SNAPSHOT_MISSING),
        (SnapshotBackend(), "EXTEND", "EXTEND", Border(prefill=False), Algorithm(), "prefill_disabled"),
        (Backend(), "TARGET_VERIFY", "TARGET_VERIFY", Border(), SPECULATIVE, FallbackReason.NO_GRAPH),
        (Backend(), "IDLE", "IDLE", Border(), Algorithm(), FallbackReason.IDLE),
    ],
)
def test_a_prefill_that_publishes_nothing_says_which_gate_was_closed(
    backend: Backend, mode: str, runs_as: str, border: Border, algorithm: Algorithm, reason: str
) -> None:
    scheduler = Scheduler(border=border)
    scheduler.target.attn_backend, scheduler.target.spec_algorithm = backend, algorithm
    scheduler.step(mode, partial(scheduler.eager, scheduler.target, mode, publishes=False, runs_as=runs_as))
    ((counted_mode, fence, counted_reason, _),) = scheduler.counted()
    assert (counted_mode, fence, counted_reason) == (mode.lower(), COARSE, reason)


def test_an_eager_prefill_that_doesnt_even_ask_has_no_graph() -> None:
    scheduler = Scheduler()
    scheduler.step("EXTEND", partial(scheduler.eager, scheduler.target, "EXTEND"))
    assert scheduler.counted() == {("extend", COARSE, FallbackReason.NO_GRAPH, UNKNOWN): 1}


def test_a_step_that_nobody_served_is_idle_or_its_owner_was_silent() -> None:
    scheduler = Scheduler()
    scheduler.step("PREBUILT")
    scheduler.step("DECODE")
    assert scheduler.counted() == {
        ("idle", COARSE, FallbackReason.IDLE, UNKNOWN): 1,
        ("decode", COARSE, FallbackReason.OWNER_SILENT, UNKNOWN): 1,
    }


def test_a_publication_that_lay_there_before_the_step_is_stale() -> None:
    scheduler = Scheduler()
    scheduler.target.shared_read_done_event = object()
    scheduler.step("DECODE", partial(scheduler.eager, scheduler.target, "DECODE"))
    assert scheduler.ledger.health.stale_publications == {"target": 1}
    # SGLang waits for it all the same.
    assert [kind.fence for kind in scheduler.ledger.cells] == [FINE]


def test_what_lay_in_the_mailbox_of_an_owner_that_took_over_in_the_step_is_stale() -> None:
    scheduler = Scheduler()
    draft = Runner(is_draft_worker=True, shared_read_done_event=object())
    scheduler.step("DECODE", partial(setattr, scheduler, "owner", draft))
    assert scheduler.ledger.health.stale_publications == {"draft": 1}


def test_a_marker_that_is_published_again_isnt_stale() -> None:
    scheduler = Scheduler()
    marker = object()
    for _ in range(2):
        scheduler.target.shared_read_done_event = marker

        def replay() -> None:
            scheduler.graph(scheduler.target, "DECODE", "IN_REPLAY")
            scheduler.target.shared_read_done_event = marker

        scheduler.step("DECODE", replay)
    assert not scheduler.ledger.health.stale_publications


def test_another_owner_is_counted_when_it_changes_and_not_at_first() -> None:
    scheduler = Scheduler()
    draft = Runner(is_draft_worker=True)
    for owner in (scheduler.target, scheduler.target, draft, scheduler.target):
        scheduler.owner = owner
        scheduler.step("DECODE", partial(scheduler.graph, owner, "DECODE", "IN_REPLAY"))
    assert scheduler.ledger.health.owner_changes == {"draft": 1, "target": 1}
    assert not scheduler.ledger.health.stale_publications


@pytest.mark.parametrize("loop", ["event_loop_normal", "event_loop_pp", "event_loop_pdmux", None])
def test_a_loop_without_a_barrier_closes_each_step_once_as_absent(loop: str | None) -> None:
    scheduler = Scheduler(loop)
    for _ in range(3):
        scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", "IN_REPLAY"), barrier=False)
    scheduler.idle()
    scheduler.idle()
    assert scheduler.counted() == {("decode", FenceKind.ABSENT, None, IN): 3}


def test_a_launch_inside_of_a_launch_is_the_same_step() -> None:
    scheduler = Scheduler()
    inner = partial(scheduler.step, "IDLE", barrier=False)
    scheduler.step("PREBUILT", inner)
    assert scheduler.counted().total() == 1


def test_a_barrier_whose_launch_wasnt_seen_is_still_counted() -> None:
    scheduler = Scheduler()
    scheduler.step("DECODE", seen=False)
    assert scheduler.counted() == {("decode", COARSE, FallbackReason.OWNER_SILENT, UNKNOWN): 1}


def test_warm_up_is_no_step() -> None:
    scheduler = Scheduler()
    scheduler.graph(scheduler.target, "DECODE", "IN_REPLAY")
    scheduler.eager(scheduler.target, "EXTEND", publishes=False)
    scheduler.draft_extend(Runner(is_draft_worker=True), publishes=True)
    assert not scheduler.ledger.cells
    assert not scheduler.phases.serving


def test_steps_and_barriers_are_as_many_whatever_the_mix() -> None:
    scheduler = Scheduler()
    for number in range(200):
        kinds = (
            ("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", "IN_REPLAY")),
            ("EXTEND", partial(scheduler.eager, scheduler.target, "EXTEND", publishes=False)),
            ("IDLE", partial(scheduler.eager, scheduler.target, "IDLE")),
        )
        scheduler.step(*kinds[number % 3])
    assert scheduler.counted().total() == 200
    assert {reason is None for _, fence, reason, _ in scheduler.counted() if fence is COARSE} == {False}


def test_a_launch_that_waited_for_the_last_ones_results_is_told_apart() -> None:
    scheduler = Scheduler()
    scheduler.watch.forward_stream = scheduler.forward_stream
    launch = partial(scheduler.step, "EXTEND", partial(scheduler.eager, scheduler.target, "EXTEND", publishes=False))
    launch()  # nothing ran before
    scheduler.last_batch, scheduler.result_queue = Batch(member("EXTEND")), [object()]
    launch()  # results wait: overlapped
    scheduler.result_queue = []
    launch()
    assert scheduler.ledger.health.unoverlapped_launches == {"extend": 1}


def test_what_appears_in_the_mailbox_during_the_step_isnt_stale_though_nobody_saw_who_published_it() -> None:
    scheduler = Scheduler()

    def publish() -> None:
        scheduler.target.shared_read_done_event = object()

    scheduler.step("DECODE", publish)
    assert [kind.fence for kind in scheduler.ledger.cells] == [FINE]
    assert not scheduler.ledger.health.stale_publications


def test_what_an_owner_served_in_an_earlier_step_says_nothing_of_this_one() -> None:
    scheduler = Scheduler()
    scheduler.step("DECODE", partial(scheduler.eager, scheduler.target, "DECODE"))
    scheduler.step("DECODE")
    assert {reason for _, _, reason, _ in scheduler.counted()} == {
        FallbackReason.NO_GRAPH,
        FallbackReason.OWNER_SILENT,
    }


def test_a_step_that_resolves_otherwise_than_the_one_before_is_told_apart() -> None:
    scheduler = Scheduler()
    for resolved in ("IN_REPLAY", "POST_REPLAY", "POST_REPLAY", "IN_REPLAY"):
        scheduler.step("DECODE", partial(scheduler.graph, scheduler.target, "DECODE", resolved))
    assert scheduler.counted() == {("decode", FINE, None, IN): 2, ("decode", FINE, None, POST): 2}


def test_a_launch_whose_beginning_failed_hides_no_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler, begun = Scheduler(repeating=None), list[int]()

    def launch() -> None:
        begun.append(scheduler.steps.current.number)

    with monkeypatch.context() as failing:
        failing.delattr(type(scheduler.watch), "begin")
        with pytest.raises(AttributeError):  # unguarded here; the guard counts it where SGLang serves
            scheduler.step("DECODE", launch)
    scheduler.step("DECODE", launch)
    assert begun == [0]
