"""The page of metrics of several ranks, as SGLang serves its schedulers': one port, told apart by labels."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from sglang_fence.errors import ConfigError
from sglang_fence.observe.exporting import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.registry import Collector

    from sglang_fence.demo.rank import Rank


class RanksCollector:
    """Collectors of several ledgers as one: each metric once, with the series of all."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def describe(self) -> Iterable[Family]:
        """Name nothing: there is no other collector to mix it up with."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Yield each metric."""
        families: dict[str, Family] = {}
        for collector in self._collectors:
            for family in collector.collect():
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        yield from families.values()


class Page:
    """Serves ``/metrics`` from daemon threads.

    Raises:
        ConfigError: the port can't be had, or the exporter isn't installed.
    """

    def __init__(self, ranks: Sequence[Rank], host: str, port: int) -> None:
        entry = next((entry for entry in entry_points(group=GROUP) if entry.name == "prometheus"), None)
        if entry is None:
            msg = "the exporter 'prometheus' isn't installed: install sglang-fence whole"
            raise ConfigError(msg)
        exporter: Any = import_module(entry.module)
        from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - decides on the mode

        registry = CollectorRegistry()
        registry.register(RanksCollector([exporter.FenceCollector(rank.ledger, rank.labels) for rank in ranks]))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            msg = (
                f"metrics can't be served on {host} port {port} ({error}): name another one, or 0 for any that is free"
            )
            raise ConfigError(msg) from error
        self.port: int = self._server.server_port
        """The bound port."""

    def close(self) -> None:
        """End the server, and free its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
