"""An audit leaves an engine as it was: when it is done, when it is interrupted, when it fails."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest
import torch

from sglang_fence.audit.auditing import AuditOptions, engine_options, examine
from sglang_fence.audit.bits import same
from sglang_fence.audit.cases import Case
from sglang_fence.audit.examining import Examiner
from sglang_fence.audit.interruption import Interruption
from sglang_fence.audit.poison import Poisoner
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.models.loading import EMBEDDED
from tests.audit.live import Live, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from sglang_fence.device.protocol import Event

QUICK = AuditOptions(repeats=1)
CASES = [Case("native", "none", "full"), Case("deepseek_v4", "ngram", "breakable"), Case("trtllm_mha", "eagle", "full")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.attention}-{case.speculative}")
def test_tokens_of_fifty_requests_are_those_of_an_engine_that_was_never_audited(case: Case) -> None:
    never = tokens(Engine(SimulatedDevice(check_hazards=False), engine_options(case, EMBEDDED)))
    live = Live(case)
    verdict = examine(live.engine, live.device, QUICK)
    assert verdict.missed == []
    assert verdict.claims
    assert tokens(live.engine) == never


class Stopping:
    """Stops an audit when it asks for the so-many-th time."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> bool:
        """Whether to stop."""
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("after", [0, 1, 5, 17])
def test_an_interruption_says_what_was_not_done_and_puts_everything_back(after: int) -> None:
    never = tokens(Live(CASES[0]).engine)
    live = Live(CASES[0])
    verdict = examine(live.engine, live.device, AuditOptions(repeats=2), stop=Stopping(after))
    assert not verdict.unsound
    if after > 1:
        assert any("req_to_token" in text and "POST_REPLAY" in text for text in verdict.not_done)
    else:
        assert verdict.not_done == ["everything: no step had been examined"]
    assert tokens(live.engine) == never


@pytest.mark.parametrize("failing", [1, 4, 9])
def test_whatever_happens_in_a_run_every_buffer_is_put_back(failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(CASES[0])
    strike, count = Poisoner.strike, [0]
    seen: list[bool] = []

    def fail(self: Poisoner, event: Event) -> None:
        strike(self, event)
        count[0] += 1
        if count[0] == failing:
            raise KeyboardInterrupt

    examined = Examiner.examine

    def compare(self: Examiner, run: Callable[[], object], work: object) -> None:
        before = live.contents()
        try:
            examined(self, run, work)  # type: ignore[arg-type]
        finally:
            after = live.contents()
            seen.append(all(same(before[name], after[name]) for name in before))

    monkeypatch.setattr(Poisoner, "strike", fail)
    monkeypatch.setattr(Examiner, "examine", compare)
    with pytest.raises(KeyboardInterrupt):
        examine(live.engine, live.device, QUICK)
    assert count[0] == failing
    assert seen
    assert all(seen)


def test_the_first_ctrl_c_asks_and_the_second_ends() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    assert threading.current_thread() is threading.main_thread()


def test_state_that_is_put_back_is_compared_without_padding() -> None:
    live = Live(CASES[0])
    table = live.engine.memory.requests.req_to_token.tensor
    assert live.contents()["req_to_token in the end"].shape[0] == table.shape[0] - 1
    assert all(isinstance(one, torch.Tensor) for one in live.contents().values())
