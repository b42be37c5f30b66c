"""What a run came to: its figures, and how they are written as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.contract import FenceKind
from sglang_fence.observe.summary import ModeSummary, Summary, percentiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sglang_fence.engine.engine import Engine
    from sglang_fence.engine.requests import Request
    from sglang_fence.engine.scheduler import Scheduler
    from sglang_fence.observe.record import Phase


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run."""

    device: str
    policy: str
    requests: Sequence[Request]
    steps: int
    retractions: int
    acceptance: float | None
    """Share of drafts that verification accepted; None without speculation."""
    cached_tokens: int
    seconds: float
    """Serving time: virtual on the simulated device, so that fences can be compared; wall time elsewhere."""
    wall_seconds: float
    summary: Summary
    hazards: list[dict[str, Any]]
    hazard_count: int | None
    """None where accesses weren't checked."""
    unresolved: int
    setting: Mapping[str, str | None]
    """What figures of another run have to have in common with these, to be compared."""

    @classmethod
    def of(
        cls,
        engine: Engine,
        scheduler: Scheduler,
        summary: Summary,
        requests: Sequence[Request],
        wall_seconds: float,
        *,
        check_hazards: bool,
    ) -> Outcome:
        """Collect them after the engine has served.

        Args:
            engine: what served.
            scheduler: how it did.
            summary: what was observed.
            requests: what was served.
            wall_seconds: how long it took.
            check_hazards: whether the simulated device was asked to check the order of accesses.
        """
        device = engine.device
        checked = check_hazards and hasattr(device, "hazard_count")
        hazards = [asdict(hazard) | {"rows": list(hazard.rows)} for hazard in getattr(device, "hazards", [])]
        return cls(
            device=device.name,
            policy=engine.policy.why if engine.options.overlap else "none, a loop without overlap needs no barrier",
            requests=requests,
            steps=scheduler.steps,
            retractions=scheduler.retractions,
            acceptance=scheduler.acceptance,
            cached_tokens=engine.memory.cached_tokens,
            seconds=wall_seconds if scheduler.virtual_seconds is None else scheduler.virtual_seconds,
            wall_seconds=wall_seconds,
            summary=summary,
            hazards=hazards,
            hazard_count=getattr(device, "hazard_count", 0) if checked else None,
            unresolved=engine.probe.unresolved,
            setting=_setting(engine),
        )

    @property
    def tokens(self) -> int:
        """Tokens generated."""
        return sum(len(request.output) for request in self.requests)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second of serving time; None where that took no time, in virtual time without costs."""
        return self.tokens / self.seconds if self.seconds else None

    @property
    def observed(self) -> bool:
        """Whether steps were counted at all."""
        return bool(self.summary.cells) or not self.steps

    def to_json(self) -> dict[str, Any]:
        """Return the figures as the ``--json`` file has them."""
        total = self.summary.total()
        return {
            "device": self.device,
            **self.setting,
            "policy": self.policy,
            "requests": len(self.requests),
            "failed": sum(request.error is not None for request in self.requests),
            "steps": self.steps,
            "tokens": self.tokens,
            "tokens_per_s": None if self.tokens_per_s is None else round(self.tokens_per_s, 3),
            "wall_s": round(self.wall_seconds, 3),
            "retractions": self.retractions,
            "acceptance": self.acceptance,
            "cached_tokens": self.cached_tokens,
            "observed": self.observed,
            "timing_every": self.summary.facts.timing_every if self.observed else None,
            "fence": {kind.value: total.fence[kind.value] for kind in FenceKind},
            "reasons": dict(total.reasons),
            "modes": {mode: _mode_json(one) for mode, one in self.summary.by_mode().items()},
            "fallbacks": self.summary.fallbacks(),
            "phases": [
                _phase_json(step, phase, count) for (step, phase), count in self.summary.phases_by_mode().items()
            ],
            "downgrades": dict(total.downgrades),
            "lost_us": _lost(total) if self.observed else None,
            "lost_from": total.lost_from,
            "slack_us": percentiles(total.slack_us),
            "wait_us": percentiles(total.wait_us),
            "unresolved": self.unresolved,
            "hazards": self.hazards,
            "hazard_count": self.hazard_count,
        }


def _setting(engine: Engine) -> dict[str, str | None]:
    """A model that lies in a folder goes by the folder's name: a record may be passed on."""
    place = engine.device.torch_device
    model = engine.options.model.model
    return {
        "gpu": torch.cuda.get_device_name(place) if place.type == "cuda" else None,
        "clock": "wall" if engine.device.virtual_seconds() is None else "virtual",
        "model": Path(model).resolve().name if Path(model).is_dir() else model,
        "dtype": str(engine.model.causal_lm.dtype).removeprefix("torch."),
    }


def _lost(mode: ModeSummary) -> float | None:
    return None if mode.known_lost_us is None else round(mode.known_lost_us, 3)


def _phase_json(step: str, phase: Phase, count: int) -> dict[str, Any]:
    return {
        "step": step,
        "mode": phase.mode.value,
        "runner": phase.role,
        "backend": phase.backend,
        "declared": phase.declared.name,
        "resolved": phase.resolved.name,
        "downgrade": phase.downgrade,
        "count": count,
    }


def _mode_json(mode: ModeSummary) -> dict[str, Any]:
    return {
        "steps": mode.steps,
        "declared": dict(mode.declared),
        "resolved": dict(mode.resolved),
        "fence": dict(mode.fence),
        "reasons": dict(mode.reasons),
        "downgrades": dict(mode.downgrades),
        "lost_us": _lost(mode),
        "lost_from": mode.lost_from,
        "slack_us": percentiles(mode.slack_us),
        "wait_us": percentiles(mode.wait_us),
    }
