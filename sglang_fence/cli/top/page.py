"""One server's metrics at one moment: fetched over HTTP, and cut down to what a table needs."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.client import HTTPException
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import ProxyHandler, build_opener

from sglang_fence.catalogue.metrics import PREFIX
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.samples import Sample

TIMEOUT_S = 3.0
"""For a server that accepts and says nothing."""

LARGEST = 64 * 1024 * 1024
"""Bytes of a page at the most."""

_STEPS = f"{PREFIX}steps_total"
_FALLBACKS = f"{PREFIX}coarse_fallbacks_total"
_LOST = f"{PREFIX}lost_seconds_total"
_SLACK = f"{PREFIX}slack_seconds_bucket"
_WAIT = f"{PREFIX}wait_seconds_bucket"
_BARRIER = f"{PREFIX}barrier_enabled"


_Key = TypeVar("_Key")
Sums: TypeAlias = defaultdict[_Key, float]


class UnreachableError(Exception):
    """A server didn't give its metrics. The message says why, in a few words."""


@dataclass(slots=True)
class Page:
    """Totals since the server's start, over all its ranks: labels that the table doesn't show are summed over."""

    at_s: float
    """When it was fetched, on a clock that only serves for differences."""
    fences: Sums[str] = field(default_factory=lambda: defaultdict(float))
    """Steps by kind of fence."""
    reasons: Sums[str] = field(default_factory=lambda: defaultdict(float))
    lost_s: float = 0.0
    slack: Sums[float] = field(default_factory=lambda: defaultdict(float))
    """Cumulated counts by upper bound in seconds, the last bound infinite."""
    wait: Sums[float] = field(default_factory=lambda: defaultdict(float))
    barrier: set[bool] = field(default_factory=set[bool])
    """On, off, or both where ranks differ; empty where not told."""


def metrics_url(text: str) -> str:
    """Return the URL to fetch: ``text``, with ``/metrics`` where it has no path.

    Raises:
        ConfigError: it isn't one of HTTP.
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is no number, a bracket that isn't closed
        parts, usable = urlsplit(""), False
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        msg = f"{text!r} is no URL of metrics: write it like http://127.0.0.1:9400/metrics"
        raise ConfigError(msg)
    return urlunsplit(parts._replace(path=parts.path if parts.path not in {"", "/"} else "/metrics"))


def fetch(url: str) -> Page:
    """Fetch and read a page. Proxies of the environment aren't asked: servers are near.

    Raises:
        UnreachableError: nobody answers, or what comes isn't ours.
    """
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=TIMEOUT_S) as answer:
            body: bytes = answer.read(LARGEST + 1)
    except HTTPError as error:
        msg = f"answers {error.code} {error.reason}"
        raise UnreachableError(msg) from error
    except URLError as error:
        raise UnreachableError(_in_words(error.reason)) from error
    except (OSError, HTTPException) as error:
        raise UnreachableError(_in_words(error)) from error
    if len(body) > LARGEST:
        msg = f"sends more than {LARGEST >> 20} MiB"
        raise UnreachableError(msg)
    return parse(body.decode("utf-8", "replace"), time.monotonic())


def parse(text: str, at_s: float) -> Page:
    """Read a page in the text format.

    Raises:
        UnreachableError: it isn't in this format, or has none of our metrics.
    """
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - decides on a mode for good

    # A server's page has thousands of lines of its own, and the parser takes its time.
    ours = "\n".join(line for line in text.splitlines() if line.removeprefix("# TYPE ").startswith(PREFIX))
    try:
        samples = [sample for family in text_string_to_metric_families(ours) for sample in family.samples]
        page = _page(samples, at_s)
    except (ValueError, LookupError) as error:
        msg = "sends what isn't Prometheus's text format"
        raise UnreachableError(msg) from error
    if not samples:
        msg = f"has no {PREFIX}* metrics"
        raise UnreachableError(msg)
    return page


def _page(samples: Iterable[Sample], at_s: float) -> Page:
    page = Page(at_s)
    for sample in samples:
        labels, value = sample.labels, sample.value
        if not isfinite(value):
            continue
        if sample.name == _STEPS:
            page.fences[labels.get("fence", "")] += value
        elif sample.name == _FALLBACKS:
            page.reasons[labels.get("reason", "")] += value
        elif sample.name == _LOST:
            page.lost_s += value
        elif sample.name == _SLACK:
            page.slack[float(labels["le"])] += value
        elif sample.name == _WAIT:
            page.wait[float(labels["le"])] += value
        elif sample.name == _BARRIER:
            page.barrier.add(value > 0)
    return page


def _in_words(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror.lower()
    return str(reason) or type(reason).__name__
