"""Which steps are timed and which are traced, decided before anything of the step is written down."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, log1p
from random import Random

from sglang_fence.errors import ConfigError

DEFAULT_TIMING_EVERY = 101
"""Device times are taken on each so-many-th step: fewer than one in a hundred, so that their cost is beyond the step's
p99; and a prime, so that no rhythm of the steps hides behind it. Measured in ``docs/observing.md``."""

START_EVERY = 64
"""The start of a forward is timed on each so-many-th step at the most: its event stands before the launch, and holds
each forward back by more than 1 µs. The forward's time and the gap before it are taken there, and behind coarse
steps."""

TIMED, STARTED = 1, 2
"""A step is timed, without its forward's start or with it."""

_LOOK_AGAIN = 256
"""Steps until it is looked again whether timing was switched on."""

_LONG = 2.0**62
"""Steps that nobody lives to see."""

_SEED = 20_240_229  # the same steps in every run of one command


@dataclass(slots=True)
class Sampling:
    """May be changed while serving; the next step goes by it."""

    timing_every: int = DEFAULT_TIMING_EVERY
    """Take device times on each so-many-th step; 0: on none."""
    trace_ratio: float = 0.0
    """Share of steps that are traced. A traced step is timed."""
    trace_coarse: bool = False
    """Whether every coarse step is traced beside them."""

    def __post_init__(self) -> None:
        if self.timing_every < 0:
            msg = f"--timing-every {self.timing_every}: give 1 for each step, 16 for each sixteenth, 0 for none"
            raise ConfigError(msg)
        if not 0.0 <= self.trace_ratio <= 1.0:
            msg = f"--trace-ratio {self.trace_ratio}: give a share of steps, 0 to 1"
            raise ConfigError(msg)

    @property
    def traces(self) -> bool:
        """Whether any step may be traced."""
        return self.trace_ratio > 0.0 or self.trace_coarse


class Sampler:
    """Decides, step by step.

    Args:
        sampling: what was asked for.
        start_every: the start of a forward is taken on each so-many-th step at the most.
    """

    __slots__ = ("_passing", "_random", "_ratio", "_start_every", "sampling")

    def __init__(self, sampling: Sampling, start_every: int = 1) -> None:
        self.sampling = sampling
        self._start_every = start_every
        self._random = Random(_SEED).random  # noqa: S311 - no secret
        self._ratio = 0.0
        self._passing = 0
        """Steps until the next one that is traced, at that ratio."""

    def traces(self) -> bool:
        """Whether the next step is traced. Ask once a step."""
        if self.sampling.trace_ratio != self._ratio:
            self._ratio = self.sampling.trace_ratio
            self._passing = self._pass_over()
        if self._passing:
            self._passing -= 1
            return False
        if self._ratio <= 0.0:
            return False
        self._passing = self._pass_over()
        return True

    @property
    def passing(self) -> int:
        """Steps that aren't traced, before the next that is; if the ratio stays as it is."""
        return self._passing

    def pass_by(self, steps: int) -> None:
        """So many steps went by without anybody having asked."""
        self._passing = max(0, self._passing - steps)

    def _pass_over(self) -> int:
        """Draw how many steps aren't traced before the next that is: as many as with one draw for each of them."""
        ratio = self._ratio
        if ratio >= 1.0 or ratio <= 0.0:
            return 0
        return int(min(log(1.0 - self._random()) / log1p(-ratio), _LONG))

    def next_due(self, step: int) -> int:
        """The next step after ``step`` that is timed, or whose end is where the gap of a timed one begins."""
        every = self.sampling.timing_every
        if every == 0:
            return step + _LOOK_AGAIN
        following = step + 1
        return following if following % every == 0 else following + every - 1 - following % every

    def asks(self, step: int) -> int:
        """What is taken of ``step``, traced or not: nothing (0), :data:`TIMED` or :data:`STARTED`."""
        every = self.sampling.timing_every
        if every == 0 or step % every:
            return 0
        starting = self._start_every  # as _start_period, in place: each timed step asks
        return STARTED if step % (-(-starting // every) * every) == 0 else TIMED

    def next_start(self, step: int) -> int:
        """The next step after ``step`` whose forward's start is taken in turn, or the one before that.

        There the gap before it begins. Device times are taken.
        """
        period = self._start_period
        following = step + 1
        return following if following % period in {0, period - 1} else following + period - 1 - following % period

    @property
    def _start_period(self) -> int:
        """The start is taken on each so-many-th step: a multiple of those that are timed."""
        every = self.sampling.timing_every or 1  # 0, where it was changed since whoever asks looked
        return -(-self._start_every // every) * every
