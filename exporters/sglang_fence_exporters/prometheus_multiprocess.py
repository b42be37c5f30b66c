"""``MultiprocessExporter``: the ledger's differences, about once a second, for the multiprocess mode of Prometheus.

Where ``PROMETHEUS_MULTIPROC_DIR`` is set, processes write their numbers into files of that folder, and one process
serves the sum of all. Custom collectors aren't asked there, and exemplars are dropped.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError
from sglang_fence.observe.observer import ERRORS_ALLOWED, Observer
from sglang_fence_exporters.prometheus_children import make_series
from sglang_fence_exporters.prometheus_labels import constant_labels
from sglang_fence_exporters.prometheus_reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import CollectorRegistry

    from sglang_fence.observe.ledger import Ledger

logger = logging.getLogger(__name__)

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

_PAUSE_S = 0.0005
"""Between two pieces: long enough for a serving thread that waits for the interpreter to get it."""


class MultiprocessExporter(Observer):
    """Feeds children of ``prometheus_client`` from a daemon thread of its own.

    Make it after ``PROMETHEUS_MULTIPROC_DIR`` is set, in the process that serves.

    Args:
        ledger: what is exported.
        labels: constant labels that each series carries beside the catalogue's. Two processes of one folder need
            labels that differ, or the newer hides the older's gauges.
        registry: where the metrics are registered; None: the default one of ``prometheus_client``.
        interval_s: seconds between two flushes.

    Raises:
        ConfigError: the variable isn't set, or was set too late; its folder isn't there; a label can't be used.
    """

    def __init__(
        self,
        ledger: Ledger,
        labels: Mapping[str, object] | None = None,
        *,
        registry: CollectorRegistry | None = None,
        interval_s: float = 1.0,
    ) -> None:
        constant = constant_labels(labels)
        _check_mode()
        self._ledger = ledger
        self._series = make_series(constant, registry)
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sglang-fence-prometheus", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def flush(self) -> None:
        """Write what was added since the last time, at once. From any thread."""
        with self._lock:
            for _ in self._pieces():
                pass

    def run_ended(self) -> None:
        """Write the last steps."""
        self.flush()

    def close(self) -> None:
        """End the thread and write what is left. A second time does nothing."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        atexit.unregister(self.close)
        self.flush()

    def _run(self) -> None:
        failed = 0
        while not self._ended.wait(self._interval_s):
            try:
                with self._lock:
                    for _ in self._pieces():
                        self._ended.wait(_PAUSE_S)
            except Exception:
                failed += 1
                if failed == 1:
                    logger.exception("metrics can't be written; serving goes on")
                if failed == ERRORS_ALLOWED:
                    logger.error("metrics could not be written %d times and are given up", failed)  # noqa: TRY400 - the traceback was logged at first
                    return

    def _pieces(self) -> Iterator[None]:
        """Work off one reading, and yield after each piece of it."""
        for reading in read(self._ledger):
            yield from self._series[reading.metric.name].bring_to(reading)


def _check_mode() -> None:
    folder = os.environ.get(VARIABLE)
    if folder is None:
        msg = f"{VARIABLE} is not set: set it to an empty folder, or export in-process"
        raise ConfigError(msg)
    if not folder or not Path(folder).is_dir():
        msg = f"{VARIABLE} names {folder!r}, which is no folder: make it, empty, before the start"
        raise ConfigError(msg)
    from prometheus_client import values  # noqa: PLC0415 - its import decides on the mode, for the whole process

    if values.ValueClass is values.MutexValue:
        msg = f"prometheus_client was imported before {VARIABLE} was set, and stays in-process: set it earlier"
        raise ConfigError(msg)
