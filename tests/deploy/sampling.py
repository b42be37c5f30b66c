"""The collector's policies as this repository uses them, over spans as they come over the wire.

No package has the collector, so this stands in for it: as its documentation says, a trace is kept where any policy
keeps it, and a policy of attributes does where any of the trace's spans has one of the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.deploy.layout import DEPLOY, load
from tests.exporters.otel.receivers import values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

COLLECTOR = DEPLOY / "otel-collector" / "collector.yml"


def policies() -> list[dict[str, Any]]:
    """Return the policies of the tail sampler."""
    found: list[dict[str, Any]] = load(COLLECTOR)["processors"]["tail_sampling"]["policies"]
    return found


def traces(spans: Iterable[Span]) -> list[list[Span]]:
    """Return spans by trace."""
    found: dict[bytes, list[Span]] = {}
    for span in spans:
        found.setdefault(span.trace_id, []).append(span)
    return list(found.values())


def keeping(trace: list[Span]) -> set[str]:
    """Return the policies that keep a trace of ours, without those that draw lots."""
    kept: set[str] = set()
    for policy in policies():
        if policy["type"] == "string_attribute":
            wanted = policy["string_attribute"]
            if any(values(span.attributes).get(wanted["key"]) in wanted["values"] for span in trace):
                kept.add(policy["name"])
    return kept
