"""Options of ``run`` that say who observes: checked, and turned into observers before a model is loaded."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from sglang_fence.device.cuda_profiler import cuda_profiler
from sglang_fence.errors import ConfigError
from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.flight.options import FlightOptions
from sglang_fence.observe.flight.ring import DEFAULT_STEPS
from sglang_fence.observe.profiling import ProfiledSteps, StepRange
from sglang_fence.observe.run_record import RunRecorder
from sglang_fence.observe.sampling import DEFAULT_TIMING_EVERY, Sampling
from sglang_fence.observe.summary import Summary

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.observe.observer import Observer

MAX_PORT = 65_535
MAX_HOLD = 1_000_000_000
"""In seconds: 31 years, and less than a sleep takes at the most."""
BY_ENVIRONMENT = "env"
"""What ``--otlp`` is given to leave the address to the ``OTEL_*`` variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveOptions:
    """As given; None: left out."""

    observe: bool = True
    timing_every: int | None = None
    trace_ratio: float | None = None
    trace_coarse: bool = False
    metrics_port: int | None = None
    hold: float | None = None
    otlp: str | None = None
    nvtx: bool = False
    perfetto: Path | None = None
    record: Path | None = None
    profile_steps: str | None = None
    flight_recorder: int | None = None
    flight_dir: Path | None = None
    watchdog: float | None = None

    def __post_init__(self) -> None:
        given = {
            "--metrics-port": self.metrics_port is not None,
            "--otlp": self.otlp is not None,
            "--nvtx": self.nvtx,
            "--perfetto": self.perfetto is not None,
            "--record": self.record is not None,
            "--profile-steps": self.profile_steps is not None,
            "--timing-every": self.timing_every is not None,
            "--trace-ratio": self.trace_ratio is not None,
            "--trace-coarse": self.trace_coarse,
            "--flight-recorder": bool(self.flight_recorder),
            "--flight-dir": self.flight_dir is not None,
            "--watchdog": bool(self.watchdog),
        }
        if not self.observe and any(given.values()):
            option = next(option for option, there in given.items() if there)
            msg = f"--no-observe {option}: nothing is observed then; leave one of them out"
            raise ConfigError(msg)
        if self.flight_recorder == 0 and self.flight_dir is not None:
            msg = f"--flight-recorder 0 --flight-dir {self.flight_dir}: nothing is dumped then; leave one of them out"
            raise ConfigError(msg)
        if self.metrics_port is not None and not 0 <= self.metrics_port <= MAX_PORT:
            msg = f"--metrics-port {self.metrics_port}: give a port, 1 to {MAX_PORT}, or 0 for any that is free"
            raise ConfigError(msg)
        if self.hold is not None and not 0 <= self.hold <= MAX_HOLD:
            msg = f"--hold {self.hold:g}: give seconds, 0 to {MAX_HOLD}"
            raise ConfigError(msg)
        if self.hold is not None and self.metrics_port is None:
            msg = f"--hold {self.hold:g}: there are no metrics to go on serving; add --metrics-port"
            raise ConfigError(msg)
        traced = self.otlp is not None or self.perfetto is not None or self.record is not None
        if not traced and (self.trace_ratio is not None or self.trace_coarse):
            option = "--trace-coarse" if self.trace_ratio is None else f"--trace-ratio {self.trace_ratio:g}"
            msg = f"{option}: traces have nowhere to go; add --otlp, --perfetto or --record"
            raise ConfigError(msg)

    def flight(self) -> FlightOptions:
        """The flight recorder's options. There is none where nothing is observed.

        Where nobody asked for one and its dumps had nowhere to go, there is none, either.

        Raises:
            ConfigError: a number that can't be served, or a folder that can't be written.
        """
        steps = self.flight_recorder
        if steps is None:
            steps = DEFAULT_STEPS if self.observe else 0
        rank = os.environ.get("RANK", "0")
        options = FlightOptions(steps=steps, folder=self.flight_dir, watchdog_s=self.watchdog or 0.0, rank=rank)
        if steps:
            try:
                options.files()
            except ConfigError as error:
                if self.flight_recorder is not None or self.flight_dir is not None or self.watchdog:
                    raise
                typer.echo(f"no flight recorder: {error}", err=True)
                return FlightOptions(steps=0)
        return options

    def sampling(self, *, virtual: bool) -> Sampling:
        """Which steps are timed and traced.

        Where nothing is said, a Perfetto file holds every step, a record one in ten, a collector gets one in a hundred;
        in virtual time every step is timed, and recorded, since that takes none.
        """
        every = self.timing_every
        if every is None:
            every = 1 if virtual else DEFAULT_TIMING_EVERY
        ratio = self.trace_ratio
        if ratio is None:
            ratio = self._default_ratio(virtual=virtual)
        return Sampling(every, ratio, self.trace_coarse)

    def _default_ratio(self, *, virtual: bool) -> float:
        if self.perfetto is not None:
            return 1.0
        if self.record is not None:
            return 1.0 if virtual else 0.1
        return 0.01 if self.otlp is not None else 0.0

    def profiled(self, *, virtual: bool) -> list[Observer]:
        """Return the observer that ``--profile-steps`` asks for, if it does.

        Raises:
            ConfigError: the steps can't be read, or there is no CUDA device to profile.
        """
        if self.profile_steps is None:
            return []
        try:
            steps = StepRange.parse(self.profile_steps)
        except ValueError as error:
            msg = f"--profile-steps {self.profile_steps}: {error}"
            raise ConfigError(msg) from error
        if virtual:
            msg = f"--profile-steps {self.profile_steps}: the simulated device has no profiler; use --device cuda"
            raise ConfigError(msg)
        return [ProfiledSteps(steps, *cuda_profiler())]


@dataclass(slots=True)
class Observing:
    """The observers of one run."""

    summary: Summary
    observers: list[Observer]
    sampling: Sampling
    port: int | None = None
    """Where metrics are served."""
    recorder: RunRecorder | None = None

    def announce(self) -> None:
        """Say where metrics are, which matters where any free port was asked for."""
        if self.port is not None:
            typer.echo(f"metrics: http://127.0.0.1:{self.port}/metrics", err=True)

    def hold(self, seconds: float | None) -> None:
        """Go on serving metrics; Ctrl-C ends it early."""
        if seconds and self.port is not None:
            typer.echo(f"serving metrics for {seconds:g} s more; Ctrl-C ends it", err=True)
            with suppress(KeyboardInterrupt):
                time.sleep(seconds)

    def close(self) -> None:
        """Give up the port."""
        for observer in self.observers:
            close = getattr(observer, "close", None)
            if close is not None:
                close()


def observing(options: ObserveOptions, *, virtual: bool) -> Observing:
    """Make the observers.

    Raises:
        ConfigError: a share that is none, a port that is taken, an address that can't be one, a path that can't be
            written, or a package that is missing.
    """
    summary = Summary()
    if not options.observe:
        return Observing(summary, [], Sampling(timing_every=0))
    sampling = options.sampling(virtual=virtual)
    recorder = None if options.record is None else RunRecorder()
    own = [summary, *([] if recorder is None else [recorder]), *options.profiled(virtual=virtual)]
    context = ExportContext(
        ledger=summary,
        metrics_port=options.metrics_port,
        otlp=None if options.otlp == BY_ENVIRONMENT else options.otlp,
        perfetto=options.perfetto,
        virtual_time=virtual,
    )
    wanted = {
        "nvtx": options.nvtx,
        "otel": options.otlp is not None,
        "perfetto": options.perfetto is not None,
        "prometheus": options.metrics_port is not None,
    }
    exporters = {name: make_exporter(name, context) for name, is_wanted in wanted.items() if is_wanted}
    summary.health.exporters.update(exporters)
    port = getattr(exporters.get("prometheus"), "port", None)
    return Observing(summary, [*own, *exporters.values()], sampling, port, recorder)
