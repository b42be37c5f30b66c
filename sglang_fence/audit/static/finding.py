"""What a rule has found, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class Severity(StrEnum):
    """Whether a finding can tear data, or costs throughput alone."""

    ERROR = "error"
    """A forward may read what the schedule stream has already rewritten."""
    WARNING = "warning"
    """Sound as far as the rule can see, but late, never called, or not argued mode by mode."""


class Confidence(StrEnum):
    """How much of the finding the rule has seen rather than assumed."""

    HIGH = "high"
    """All of it is in the source that was read."""
    MEDIUM = "medium"
    """It holds on a path whose condition could not be evaluated, or for children whose kind is known by use alone."""
    LOW = "low"
    """A base or a caller lies outside what was read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding, at the line where the mend goes."""

    rule: str
    severity: Severity
    confidence: Confidence
    path: Path
    line: int
    class_name: str
    sentence: str
    """What is wrong, in a full sentence that names the class and the place."""
    mend: str
    """What to write instead."""
    also: tuple[str, ...] = ()
    """Subclasses that inherit the fault and are mended with it."""

    def to_json(self) -> dict[str, object]:
        """Return the finding as JSON values."""
        return {
            "rule": self.rule,
            "severity": self.severity.value,
            "confidence": self.confidence.value,
            "file": str(self.path),
            "line": self.line,
            "class": self.class_name,
            "also": list(self.also),
            "sentence": self.sentence,
            "mend": self.mend,
        }
