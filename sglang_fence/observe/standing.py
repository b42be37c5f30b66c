"""What an exporter says beside the steps: ``Facts``, decided at start, and ``Health``, the observer about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sglang_fence.observe.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sglang_fence.contract import ForwardMode, SharedReadEnds


@dataclass(slots=True)
class Facts:
    """What was decided at start. What is empty wasn't told, and isn't exported."""

    config: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values of the labels of ``sglang_fence_config_info``."""
    barrier_enabled: bool = False
    barrier_why: str = ""
    """A value of the catalogue's label ``why``."""
    declarations: tuple[tuple[str, ForwardMode, SharedReadEnds], ...] = ()
    """Backend, mode, declared end. They say which series are there at 0 from the start."""
    audits: tuple[tuple[str, ForwardMode, SharedReadEnds, str], ...] = ()
    """Backend, mode, declared end, and a value of the label ``verdict`` of ``sglang_fence_audit_result``."""
    timing_enabled: bool = False
    timing_why: str = ""
    """A value of the label ``why`` of ``sglang_fence_device_timing_enabled``."""
    timing_every: int = 1
    loop: str = ""
    """A value of the label ``loop``."""


@dataclass(slots=True)
class Health:
    """The observer, about itself. Whoever finds something out adds it here.

    Whoever will count under a cause or a hook sets it to 0 at start, so that its first increase can be seen.
    """

    cost_ns: Counter[str] = field(default_factory=Counter[str])
    """Host time on the serving thread, by hook."""
    dropped_steps: Counter[str] = field(default_factory=Counter[str])
    """By cause."""
    unresolved: Counter[str] = field(default_factory=Counter[str])
    """By cause."""
    errors: Counter[str] = field(default_factory=Counter[str])
    """Errors of observers, by hook."""
    calibration_us: dict[str, float] = field(default_factory=dict[str, float])
    """Offsets, by values of the label ``offset``."""
    clock_error_ns: int = 0
    hooks: dict[str, str] = field(default_factory=dict[str, str])
    """What became of each function that a plugin hooks: target → state."""
    owner_changes: Counter[str] = field(default_factory=Counter[str])
    """By the new owner: a value of the label ``runner``."""
    stale_publications: Counter[str] = field(default_factory=Counter[str])
    """By the owner of the mailbox: a value of the label ``runner``."""
    unoverlapped_launches: Counter[str] = field(default_factory=Counter[str])
    """Launches of an overlap loop that waited for the results of the one before: a value of the label ``mode``."""
    exporters: dict[str, Observer] = field(default_factory=dict[str, Observer])
    """Installed exporters by name, for their ``dropped_steps``."""
