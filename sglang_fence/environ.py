"""The switches: every environment variable that the runtime reads, typed, in one table.

Those that SGLang has keep SGLang's names, so that one environment serves both.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRUE = frozenset({"1", "true", "yes", "y", "on"})
_FALSE = frozenset({"0", "false", "no", "n", "off", ""})


@dataclass(frozen=True, slots=True)
class Switch:
    """One boolean environment variable."""

    name: str
    default: bool
    about: str

    def read(self, environ: Mapping[str, str]) -> bool:
        """Return the switch's value in ``environ``, or its default where it isn't set.

        Raises:
            ConfigError: the value isn't a boolean.
        """
        raw = environ.get(self.name)
        if raw is None:
            return self.default
        value = raw.strip().lower()
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        msg = f"{self.name}={raw!r} isn't a boolean: write one of 1, true, yes, on, 0, false, no, off, or unset it"
        raise ConfigError(msg)


ENABLE_WAR_BARRIER = Switch(
    "SGLANG_ENABLE_WAR_BARRIER",
    default=False,
    about="Turns the barrier on where the device has no asynchronous streams; elsewhere it is on anyway (R11).",
)
FORCE_COARSE_WAR_BARRIER = Switch(
    "SGLANG_FORCE_COARSE_WAR_BARRIER",
    default=False,
    about="Every step waits for the whole forward, whatever was published.",
)
ENABLE_PREFILL_WAR_READ_DONE = Switch(
    "SGLANG_ENABLE_PREFILL_WAR_READ_DONE",
    default=True,
    about="Lets prefill publish its read end where its backend snapshots all it reads (R8).",
)
FENCE_NATIVE = Switch(
    "SGLANG_FENCE_NATIVE",
    default=True,
    about="Off: the parts compiled from C are left alone, and Python code does what they do.",
)

SWITCHES = (ENABLE_WAR_BARRIER, FORCE_COARSE_WAR_BARRIER, ENABLE_PREFILL_WAR_READ_DONE, FENCE_NATIVE)


@dataclass(frozen=True, slots=True)
class Switches:
    """All switches, read once at start."""

    enable_war_barrier: bool = ENABLE_WAR_BARRIER.default
    force_coarse_war_barrier: bool = FORCE_COARSE_WAR_BARRIER.default
    enable_prefill_war_read_done: bool = ENABLE_PREFILL_WAR_READ_DONE.default
    fence_native: bool = FENCE_NATIVE.default

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Switches:
        """Read every switch from ``environ`` (the process's by default).

        Raises:
            ConfigError: a value isn't a boolean.
        """
        source = os.environ if environ is None else environ
        return cls(
            enable_war_barrier=ENABLE_WAR_BARRIER.read(source),
            force_coarse_war_barrier=FORCE_COARSE_WAR_BARRIER.read(source),
            enable_prefill_war_read_done=ENABLE_PREFILL_WAR_READ_DONE.read(source),
            fence_native=FENCE_NATIVE.read(source),
        )
