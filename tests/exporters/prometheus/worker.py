"""A process that serves: adds steps to a ledger and exports them in multiprocess mode. Run as a module by the tests."""

from __future__ import annotations

import sys

from sglang_fence_exporters.prometheus import MultiprocessExporter
from tests.exporters.prometheus.steps import COARSE, FINE, add, declared_ledger, full_ledger


def main(kind: str, rank: str, fine: int, coarse: int) -> None:
    """Add steps in three parts, with a flush after the first; the last part goes out at exit."""
    ledger = full_ledger() if kind == "full" else declared_ledger()
    labels = {"tp_rank": rank} if rank else {}
    exporter = MultiprocessExporter(ledger, labels=labels, interval_s=3600)
    add(ledger, [FINE] * fine)
    exporter.flush()
    exporter.flush()
    add(ledger, [COARSE] * coarse)
    exporter.run_ended()
    ledger.facts.loop = "disaggregated"
    add(ledger, [FINE])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
