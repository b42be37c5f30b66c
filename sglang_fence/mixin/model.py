"""What a rule is, before it is YAML."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """Of an alert: ``critical`` wakes somebody, ``warning`` waits for the morning."""

    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that Prometheus computes ahead."""

    record: str
    expr: str

    def to_json(self) -> dict[str, object]:
        """As Prometheus reads it."""
        return {"record": self.record, "expr": self.expr}


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that somebody is told of."""

    name: str
    """Of its runbook, too."""
    severity: Severity
    expr: str
    hold: str
    """``for``; empty: fires at once."""
    summary: str
    description: str
    dashboard: str
    """Uid of the dashboard that shows it."""

    def to_json(self, *, grafana_url: str, runbooks_url: str) -> dict[str, object]:
        """As Prometheus reads it."""
        rule: dict[str, object] = {"alert": self.name, "expr": self.expr}
        if self.hold:
            rule["for"] = self.hold
        rule["labels"] = {"severity": self.severity.value}
        where = "?var-job={{ $labels.job | urlquery }}&var-instance={{ $labels.instance | urlquery }}"
        rule["annotations"] = {
            "summary": self.summary,
            "description": self.description,
            "dashboard_url": f"{grafana_url.rstrip('/')}/d/{self.dashboard}{where}",
            "runbook_url": f"{runbooks_url.rstrip('/')}/{self.name}.md",
        }
        return rule
