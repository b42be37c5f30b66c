"""``RuntimeResult``: what ``bench runtime`` found, into JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.bench.blocks import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNTIME, AGAIN, COARSE, PLAIN = "runtime", "runtime again", "coarse fence", "plain loop"
GENERATE = "generate"
"""The variant that ratios are against: Transformers'."""


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """How the runtime's tokens compare with those of ``generate``, on the largest batch, in one data type."""

    dtype: str
    tokens: int
    equal: int
    """Tokens before a request's first that differs."""
    shortfall: float
    """Of the runtime's worst token behind the reference's best, in standard deviations of the logits."""
    own_shortfall: float
    """The same of ``generate``'s own tokens: what the arithmetic's order alone comes to."""
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether every token is the reference's best, or as good within the tolerance."""
        return self.shortfall <= max(self.tolerance, self.own_shortfall)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """One batch size."""

    batch: int
    step_us: Mapping[str, Measured]
    """A decode step, prefill left out: a whole run less a run of one token, by the steps between. Below 0 where the
    machine's noise is larger than what is measured."""
    tokens_per_s: Mapping[str, Measured]
    """Of a whole run, prefill included."""

    def to_json(self) -> dict[str, Any]:
        """Return the figures."""
        return {
            "batch": self.batch,
            "step_us": {name: one.to_json() for name, one in self.step_us.items()},
            "tokens_per_s": {name: one.to_json() for name, one in self.tokens_per_s.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> BatchResult:
        """Read what :meth:`to_json` wrote.

        Raises:
            KeyError: something is missing; likewise TypeError and ValueError, where it isn't what it should be.
        """
        return cls(int(content["batch"]), _measured(content["step_us"]), _measured(content["tokens_per_s"]))


@dataclass(frozen=True, slots=True)
class RuntimeResult:
    """One run of ``bench runtime``."""

    machine: Mapping[str, str]
    settings: Mapping[str, Any]
    checks: tuple[TokenCheck, ...]
    batches: tuple[BatchResult, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all."""
        return {
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "checks": [{**asdict(check), "passed": check.passed} for check in self.checks],
            "batches": [one.to_json() for one in self.batches],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RuntimeResult:
        """Read what :meth:`to_json` wrote; raises as :meth:`BatchResult.from_json` does."""
        checks = [{name: value for name, value in one.items() if name != "passed"} for one in content["checks"]]
        return cls(
            dict(content["machine"]),
            dict(content["settings"]),
            tuple(TokenCheck(**one) for one in checks),
            tuple(BatchResult.from_json(one) for one in content["batches"]),
        )


def _measured(content: Mapping[str, Any]) -> dict[str, Measured]:
    values = {name: tuple(map(float, one["values"])) for name, one in content.items()}
    return {name: Measured.of(one, values[GENERATE]) for name, one in values.items()}
