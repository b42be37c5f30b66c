"""``Case``, and how it is written for promtool."""

from __future__ import annotations

from dataclasses import dataclass

MUST_NOT = ("low traffic", "a counter reset by a restart", "one rank of eight", "a gap in scraping", "a new server")
"""What each alert has a case of, whether it fires there or not; names of cases begin so."""

_BY = "severity, mode, tp_rank"


@dataclass(frozen=True, slots=True)
class Case:
    """One alert in one situation."""

    alert: str
    name: str
    series: dict[str, str]
    """Series → values a minute, as promtool writes them."""
    fires: tuple[dict[str, str], ...] = ()
    """Labels of each alert that fires, of severity, mode and tp_rank. Nothing: it must not."""
    at: str = "38m"

    @property
    def title(self) -> str:
        """Its name in promtool's report."""
        return f"{self.alert}: {self.name}: {'fires' if self.fires else 'quiet'}"

    def to_json(self) -> dict[str, object]:
        """As promtool reads it."""
        firing = f'count by ({_BY}) (ALERTS{{alertname="{self.alert}",alertstate="firing"}})'
        samples = [{"labels": _labels(one), "value": 1} for one in self.fires]
        return {
            "name": self.title,
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in self.series.items()],
            "promql_expr_test": [{"expr": firing, "eval_time": self.at, "exp_samples": samples}],
        }


def _labels(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"
