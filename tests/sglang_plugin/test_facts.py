"""What is told at start: which backends are asked, and what they declare."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.sglang_plugin.facts import MODES, backends_in_use, declarations
from tests.sglang_plugin.scheduling import Backend, Member, Scheduler


class Other(Backend):
    """Another class of backends."""


def test_each_backend_that_declares_is_asked_once_the_targets_first() -> None:
    target, draft_extend, many_steps = Backend(), Other(), SimpleNamespace()
    scheduler: Any = Scheduler()
    scheduler.tp_worker = SimpleNamespace(model_runner=SimpleNamespace(attn_backend=target))
    scheduler.owner.attn_backend = draft_extend
    scheduler.spec_v2_attn_backends = (target, many_steps, None, draft_extend)
    assert list(backends_in_use(scheduler)) == [target, draft_extend]


def test_declarations_have_a_row_for_each_mode_and_no_row_twice() -> None:
    modes = [Member(name) for name in MODES]
    rows = list(declarations([Backend(), Backend(), Backend(EXTEND="PRE_REPLAY"), Other()], modes))
    assert len(rows) == len(set(rows)) == len(MODES) + 1 + len(MODES)
    assert ("Backend", ForwardMode.DECODE, SharedReadEnds.IN_REPLAY) in rows
    assert ("Backend", ForwardMode.EXTEND, SharedReadEnds.UNKNOWN) in rows
    assert ("Backend", ForwardMode.EXTEND, SharedReadEnds.PRE_REPLAY) in rows
    assert ("Other", ForwardMode.DRAFT_EXTEND, SharedReadEnds.UNKNOWN) in rows
