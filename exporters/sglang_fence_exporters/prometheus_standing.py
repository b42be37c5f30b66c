"""Series that don't come from steps: what was decided at start, and the observer about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.catalogue import ends_label, metric
from sglang_fence.catalogue.metrics import DURATION, PREFIX, ROLE, VERDICT
from sglang_fence.observe.observer import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sglang_fence.observe.ledger import Ledger

    Numbers = dict[tuple[str, ...], float]

_CONFIG = metric(f"{PREFIX}config_info").label_names
_NS = 1_000_000_000
_US = 1_000_000


def _by_label(counts: Mapping[str, float], seeds: Iterable[str] = (), *, per: int = 1) -> Numbers:
    """Counts under one label. The copy is one step of the interpreter: the serving thread may add a key meanwhile."""
    numbers: Numbers = {(seed,): 0 for seed in seeds}
    numbers.update({(value,): count / per if per > 1 else count for value, count in dict(counts).items()})
    return numbers


def _barrier_enabled(ledger: Ledger) -> Numbers:
    facts = ledger.facts
    return {(facts.barrier_why,): int(facts.barrier_enabled)} if facts.barrier_why else {}


def _declarations(ledger: Ledger) -> Numbers:
    return {(backend, mode.value, ends_label(ends)): 1 for backend, mode, ends in ledger.facts.declarations}


def _config(ledger: Ledger) -> Numbers:
    config = ledger.facts.config
    return {tuple(config.get(name, "") for name in _CONFIG): 1} if config else {}


def _audits(ledger: Ledger) -> Numbers:
    return {
        (backend, mode.value, ends_label(declared), verdict): int(verdict == found)
        for backend, mode, declared, found in ledger.facts.audits
        for verdict in VERDICT.values or ()
    }


def _timing_enabled(ledger: Ledger) -> Numbers:
    facts = ledger.facts
    return {(facts.timing_why,): int(facts.timing_enabled)} if facts.timing_why else {}


def _timing_every(ledger: Ledger) -> Numbers:
    return {(): ledger.facts.timing_every} if ledger.facts.timing_enabled else {}


def _clock_error(ledger: Ledger) -> Numbers:
    return {(): ledger.health.clock_error_ns / _NS} if ledger.facts.timing_enabled else {}


def _exporters(ledger: Ledger) -> Numbers:
    return {(name,): exporter.dropped_steps for name, exporter in dict(ledger.health.exporters).items()}


def _unoverlapped_launches(ledger: Ledger) -> Numbers:
    modes = (mode.value for _, mode, _ in ledger.facts.declarations)
    return _by_label(ledger.health.unoverlapped_launches, modes)


def _hooks(ledger: Ledger) -> Numbers:
    return dict.fromkeys(dict(ledger.health.hooks).items(), 1)


def _loop(ledger: Ledger) -> Numbers:
    return {(ledger.facts.loop,): 1} if ledger.facts.loop else {}


STANDING: dict[str, Callable[[Ledger], Numbers]] = {
    "owner_changes_total": lambda ledger: _by_label(ledger.health.owner_changes, ROLE.values or ()),
    "stale_publications_total": lambda ledger: _by_label(ledger.health.stale_publications, ROLE.values or ()),
    "unoverlapped_launches_total": _unoverlapped_launches,
    "barrier_enabled": _barrier_enabled,
    "declaration_info": _declarations,
    "config_info": _config,
    "audit_result": _audits,
    "observer_cost_seconds_total": lambda ledger: _by_label(ledger.health.cost_ns, per=_NS),
    "observer_dropped_steps_total": lambda ledger: _by_label(ledger.health.dropped_steps),
    "observer_clamps_total": lambda ledger: _by_label(ledger.clamps, DURATION.values or ()),
    "observer_unresolved_total": lambda ledger: _by_label(ledger.health.unresolved),
    "observer_errors_total": lambda ledger: _by_label(ledger.health.errors, HOOKS),
    "observer_calibration_seconds": lambda ledger: _by_label(ledger.health.calibration_us, per=_US),
    "exporter_dropped_steps_total": _exporters,
    "device_timing_enabled": _timing_enabled,
    "observer_timing_every": _timing_every,
    "observer_clock_error_seconds": _clock_error,
    "plugin_hook": _hooks,
    "loop_info": _loop,
}
"""By the metric's name without its prefix."""
