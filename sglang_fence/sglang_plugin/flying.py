"""The flight recorder of one scheduler: as the switches say, named by the scheduler's ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.observe.flight.options import FlightOptions
from sglang_fence.observe.flight.recorder import FlightRecorder
from sglang_fence.sglang_plugin.labels import server_labels

if TYPE_CHECKING:
    from sglang_fence.observe.flight.recording import Recording
    from sglang_fence.sglang_plugin.switches import Switches


def started_recorder(probe: Recording, switches: Switches) -> FlightRecorder:
    """Return a recorder that listens, on behalf of the calling thread, which serves.

    Raises:
        ConfigError: its folder can't be made or written.
    """
    options = FlightOptions(
        steps=switches.flight_recorder,
        folder=switches.flight_dir,
        watchdog_s=switches.watchdog,
        rank=rank_name(server_labels()),
    )
    recorder = FlightRecorder(probe, options, virtual=False)
    recorder.start()
    return recorder


def rank_name(labels: dict[str, str]) -> str:
    """Return what the scheduler is called among its peers: its ranks, the outermost first."""
    ranks = [f"{name}{labels[f'{name}_rank']}" for name in ("dp", "pp", "tp") if f"{name}_rank" in labels]
    return "-".join(ranks)
