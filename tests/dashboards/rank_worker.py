"""One rank as a process of its own, exporting in multiprocess mode. Run as a module by a test."""

from __future__ import annotations

import sys

from sglang_fence.demo.rank import Rank
from sglang_fence_exporters.prometheus import MultiprocessExporter


def main(number: str) -> None:
    """Serve a round in each phase."""
    labels = {"model_name": "demo", "tp_rank": number}
    rank = Rank(labels)
    exporter = MultiprocessExporter(rank.ledger, labels, interval_s=3600)
    for audited, forced in ((True, False), (False, False), (True, True)):
        rank.enter(audited=audited, forced=forced)
        rank.serve()
    exporter.close()


if __name__ == "__main__":
    main(sys.argv[1])
