"""An audit proves in each of its runs that it can fail; one that can't says nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.cases import Case
from sglang_fence.audit.device import AuditDevice, Place
from sglang_fence.audit.poison import Poisoner
from sglang_fence.audit.verdicts import Status
from sglang_fence.models.served import ServedModel
from tests.audit.running import PRE, audited, claim_of

if TYPE_CHECKING:
    import pytest

    from sglang_fence.device.protocol import Event
    from sglang_fence.models.served import Activations

NATIVE = Case("native", "none", "full")


def _check_says_nothing_else(case: Case = NATIVE) -> list[str]:
    report = audited(case, repeats=1)
    assert report.missed
    assert report.to_json()["verdicts"][0]["claims"] == []
    said = report.sentences()
    assert said[0] == f"{case}: the audit missed what it planted, so it says nothing."
    assert said[1:] == report.missed
    assert all("a late reader of" in text for text in report.missed)
    return report.missed


def test_an_adversary_that_does_not_overwrite_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(self: Poisoner, event: Event) -> None:
        self._adversary.wait_event(event)
        self.struck = True

    monkeypatch.setattr(Poisoner, "strike", idle)
    missed = _check_says_nothing_else()
    assert {name for name in ("req_to_token", "full_to_swa") if any(name in text for text in missed)} == {
        "req_to_token",
        "full_to_swa",
    }


def test_an_adversary_that_comes_too_late_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    strike = Poisoner.strike

    def late(self: Poisoner, event: Event) -> None:
        """Wait for the whole forward."""
        del event
        for _ in range(40):
            with self._device.stream(self._adversary):
                self._device.launch("audit_delay", lambda: None)
        now = self._device.Event()
        now.record()
        strike(self, now)

    monkeypatch.setattr(Poisoner, "strike", late)
    _check_says_nothing_else()


def test_an_adversary_that_does_not_wait_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """At POST_REPLAY the reader at the end of the forward must still see what is true."""

    def early(self: Poisoner, event: Event) -> None:
        del event
        buffer = self.buffer
        self._device.launch("audit_poison", lambda: buffer.tensor.copy_(self._other), writes=((buffer, (0,)),))
        self.struck = True

    prepare = Poisoner.prepare

    def prepare_and_strike(self: Poisoner) -> None:
        prepare(self)
        early(self, self._device.Event())

    monkeypatch.setattr(Poisoner, "prepare", prepare_and_strike)
    assert any("POST_REPLAY" in text for text in _check_says_nothing_else())


def test_readers_that_were_not_planted_are_missed_by_order_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    read_all = AuditDevice.read_all

    def only_at_markers(self: AuditDevice, place: Place) -> None:
        if place is not Place.END:
            read_all(self, place)

    monkeypatch.setattr(AuditDevice, "read_all", only_at_markers)
    missed = _check_says_nothing_else()
    assert any("was ordered before it" in text for text in missed)


def test_clean_runs_that_differ_are_reported_and_nobody_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    head = ServedModel.head

    def noisy(self: ServedModel, acts: Activations, lines: torch.Tensor | None) -> None:
        """End a decode, which has one token a line, a little differently each time."""
        head(self, acts, lines)
        if lines is None and acts.logits is not None:
            acts.logits = acts.logits + 1e-6 * torch.rand_like(acts.logits)

    monkeypatch.setattr(ServedModel, "head", noisy)
    report = audited(NATIVE, repeats=1)
    assert report.missed == []
    decode, extend = (claim_of(report.poisoned, mode) for mode in ("decode", "extend"))
    assert {one.status for one in decode.ends.values()} == {Status.NOT_DETERMINISTIC}
    assert decode.status is Status.NOT_DETERMINISTIC
    assert decode.tightest is None
    assert not report.unsound
    assert any("not to be told, since clean runs differ" in text for text in report.sentences())
    assert extend.ends[PRE].status is Status.UNSOUND
