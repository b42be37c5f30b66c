"""Makes ``docs/metrics.md`` from the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue import METRICS, Label, Metric, MetricKind
from sglang_fence.contract import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEAD = """\
# Metrics

<!-- Made from the catalogue by `sglang-fence docs metrics`. Change sglang_fence/catalogue/metrics.py instead. -->

The runtime and the plugin in SGLang emit the same metrics; the plugin adds labels of SGLang's (the model's name,
ranks). Units are seconds and plain numbers. A step is one launch. Device times are taken on each so-many-th step
(`sglang_fence_observer_timing_every`): histograms cover those steps, and lost time stands for all, each of them counted
so many times. Counters of steps cover all. What the durations mean exactly is said in [observing](observing.md).

## How they get out

**At a port.** `sglang-fence run --metrics-port 9400` serves `/metrics` on the loopback. Nothing is computed between
scrapes. A scraper that asks for OpenMetrics gets exemplars: the trace id of the newest sampled step of each bucket
(Prometheus keeps them with `--enable-feature=exemplar-storage`).

**In multiprocess mode.** Where `PROMETHEUS_MULTIPROC_DIR` is set, as SGLang sets it, numbers are written into files of
that folder about once a second and at the end of a run, and whoever serves the folder serves their sum. Two things
differ there: exemplars are dropped, so a trace is found by its attributes (`sglang_fence.step_id`); and a gauge that is
no longer told stays, at 0. The folder must be there, and empty, before the start.

**In a terminal.** `sglang-fence top URL…` shows one or many of these pages as a live table.

## What is there from the start

`rate()` can't see the increase that a series is born with. So counters begin at 0: fallbacks and lost time for every
mode and backend that is declared, with every reason; steps for every end that a declaration can come to; downgrades and
unsound resolutions likewise. Lost time and histograms are there where device times are taken, and histograms for the
fence that a declaration leads to. Anything else appears as it occurs.

The sum of `sglang_fence_coarse_fallbacks_total` over `reason` is the number of coarse steps, and the sum of
`sglang_fence_steps_total` over all labels is the number of steps: in each scrape of a port, and in multiprocess mode
after each write.
"""

_KINDS = {
    MetricKind.COUNTER: "Counters",
    MetricKind.GAUGE: "Gauges",
    MetricKind.HISTOGRAM: "Histograms",
}
_MANY = 4
"""A label with more values than this is listed below, not in the table."""


def metrics_page() -> str:
    """Return the page, as Markdown."""
    return "\n".join([_HEAD, *_metrics(), *_labels(), *_reasons()])


def _metrics() -> Iterator[str]:
    for kind, title in _KINDS.items():
        yield f"## {title}\n"
        if kind is MetricKind.HISTOGRAM:
            bounds = next(metric.buckets for metric in METRICS if metric.kind is kind)
            low, high = f"{bounds[0] * 1e6:g} µs", f"{bounds[-1]} s"
            yield f"Buckets are powers of two, from {low} to {high}, upper bounds included.\n"
        yield from _table(("metric", "labels", "meaning"), [_row(metric) for metric in METRICS if metric.kind is kind])


def _row(metric: Metric) -> tuple[str, ...]:
    return f"`{metric.name}`", ", ".join(f"`{name}`" for name in metric.label_names) or "–", metric.help


def _labels() -> Iterator[str]:
    users: dict[Label, list[str]] = {}
    for metric in METRICS:
        for label in metric.labels:
            users.setdefault(label, []).append(f"`{metric.name}`")
    yield "## Labels\n"
    yield from _table(
        ("label", "meaning", "values", "on"),
        [
            (
                f"`{label.name}`",
                label.help,
                ", ".join(f"`{value}`" for value in label.values) if label.values else "open",
                ", ".join(names) if len(names) <= _MANY else f"{len(names)} metrics",
            )
            for label, names in users.items()
        ],
    )


def _reasons() -> Iterator[str]:
    yield "## Reasons of coarse steps\n"
    yield "A healthy deployment shows the expected ones; alerts look at the others.\n"
    yield from _table(
        ("reason", "expected", "meaning"),
        [(f"`{reason.value}`", "yes" if info.expected else "no", info.meaning) for reason, info in REASONS.items()],
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (head, ["---"] * len(head), *rows):
        escaped = [cell.replace("|", "\\|") for cell in cells]
        yield f"| {' | '.join(escaped)} |"
    yield ""
