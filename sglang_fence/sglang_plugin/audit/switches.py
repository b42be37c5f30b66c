"""Whether this process is to be audited: decided by variables that ``sglang-fence audit --sglang`` sets."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

VERDICT = "SGLANG_FENCE_AUDIT"
"""The file that the verdict goes to. Nobody but the command sets it: an audit runs each step many times over."""
REPEATS = "SGLANG_FENCE_AUDIT_REPEATS"


@dataclass(frozen=True, slots=True)
class AuditSwitches:
    """What the command asked for."""

    verdict: Path
    repeats: int

    @classmethod
    def from_environ(cls) -> AuditSwitches | None:
        """None: nobody asked for an audit."""
        file = os.environ.get(VERDICT)
        return None if not file else cls(Path(file), int(os.environ.get(REPEATS, "20")))
