"""``Parameters``: everything that the rules depend on. Times are written as Prometheus writes them: ``5m``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_LONGEST_S = 100 * 365 * 86_400.0
_SECONDS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)


def seconds_of(duration: str) -> float:
    """Return how long ``duration`` is.

    Raises:
        ConfigError: it isn't written as Prometheus writes durations, is 0, or longer than Prometheus can count.
    """
    found = _DURATION.fullmatch(duration)
    seconds = sum(int(part) * unit for part, unit in zip(found.groups("0"), _SECONDS, strict=True)) if found else 0.0
    if not 0.0 < seconds <= _LONGEST_S:
        msg = f"{duration!r} is no duration: write 5m, 1h30m, 10s or 500ms"
        raise ConfigError(msg)
    return seconds


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Numbers that alerts compare with. Shares are 0 to 1."""

    decode_warning: float = 0.2
    """UNKNOWN's share of the fenced steps of a server, by mode. There is none for extend and mixed: stock backends
    leave them UNKNOWN, which pages nobody."""
    decode_critical: float = 0.5
    target_verify_warning: float = 0.2
    target_verify_critical: float = 0.5
    draft_extend_warning: float = 0.2
    draft_extend_critical: float = 0.5
    min_steps: float = 100.0
    """Fewer fenced steps in a window are low traffic, of which nothing is said."""
    min_timed_steps: float = 20.0
    """The same, of steps whose device times were taken."""
    rank_coarse: float = 0.5
    """A rank is odd whose fine share is below this …"""
    rank_fine: float = 0.9
    """… while the fine share of a peer is above this."""
    slack_seconds: float = 0.000_004
    """A median below it is about zero …"""
    slack_forward_seconds: float = 0.000_064
    """… where the median forward is above this: a shorter one leaves no room for slack."""
    risen: float = 0.2
    """How much greater a share of fallbacks is than the day before."""
    lost: float = 0.03
    """Lost time as a share of forward time."""
    unexplained: float = 0.01
    """Share of fenced steps."""
    wait_factor: float = 3.0
    """Wait p99 over the forward's median. Buckets double: of waits as long as their forwards, where some lie in the
    bucket above the median's, the one reads as up to 2.7 times the other."""
    observer_lost: float = 0.5
    """Share of timed steps that came to nothing."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the rules are built with.

    Raises:
        ConfigError: a duration or a threshold that can't be one.
    """

    window: str = "5m"
    """Of rates. At least four scrapes long."""
    hold: str = "10m"
    """How long a warning's condition holds before it fires (``for``)."""
    hold_critical: str = "5m"
    day: str = "1d"
    """How far back fallbacks are compared."""
    interval: str = "30s"
    """Between two evaluations."""
    grafana_url: str = "http://localhost:3000"
    runbooks_url: str = "https://sglang-fence.dev/runbooks"
    """A runbook is its alert's name under this address, with ``.md``."""
    thresholds: Thresholds = field(default_factory=Thresholds)

    def __post_init__(self) -> None:
        for duration in (self.window, self.hold, self.hold_critical, self.day, self.interval):
            seconds_of(duration)
        for url in (self.grafana_url, self.runbooks_url):
            if not re.fullmatch(r"https?://[^\s\"{}]+", url):
                msg = f"{url!r} is no address: write http://… or https://…"
                raise ConfigError(msg)

    @property
    def window_s(self) -> float:
        """The window in seconds."""
        return seconds_of(self.window)

    def with_thresholds(self, settings: Iterable[str]) -> Parameters:
        """Return them with thresholds set as in ``decode_warning=0.1``.

        Raises:
            ConfigError: there is no such threshold, or the value is no number of 0 or more.
        """
        known = [one.name for one in fields(Thresholds)]
        values: dict[str, float] = {}
        for setting in settings:
            name, _, text = setting.partition("=")
            if name not in known:
                msg = f"--set {setting}: no such threshold; known are {', '.join(known)}"
                raise ConfigError(msg)
            if not re.fullmatch(r"\d+(\.\d+)?([eE][+-]?\d+)?", text):
                msg = f"--set {setting}: write {name}=NUMBER, 0 or more"
                raise ConfigError(msg)
            values[name] = float(text)
        return replace(self, thresholds=replace(self.thresholds, **values))
