"""A server as Prometheus sees it, minute by minute: what it would show when healthy, and what a case changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

P = "sglang_fence_"

# A decode takes 1.5 ms and a wait 12 µs; each fine step gives 0.8 ms of slack. Extends are UNKNOWN, as stock ones are.
# Every step is timed, and of one decode in 500 the forward as well.
COUNTERS: dict[str, float] = {
    f'{P}steps_total{{mode="decode",backend="native",ends="in_replay",fence="fine"}}': 600,
    f'{P}steps_total{{mode="decode",backend="native",ends="unknown",fence="coarse"}}': 0,
    f'{P}steps_total{{mode="extend",backend="native",ends="unknown",fence="coarse"}}': 60,
    f'{P}coarse_fallbacks_total{{mode="decode",backend="native",reason="backend_unknown"}}': 0,
    f'{P}coarse_fallbacks_total{{mode="decode",backend="native",reason="owner_silent"}}': 0,
    f'{P}coarse_fallbacks_total{{mode="decode",backend="native",reason="forced"}}': 0,
    f'{P}coarse_fallbacks_total{{mode="extend",backend="native",reason="backend_unknown"}}': 60,
    f'{P}lost_seconds_total{{mode="decode",reason="backend_unknown"}}': 0,
    f'{P}forward_seconds_bucket{{mode="decode",fence="fine",le="0.001024"}}': 0,
    f'{P}forward_seconds_bucket{{mode="decode",fence="fine",le="0.002048"}}': 1.2,
    f'{P}forward_seconds_bucket{{mode="decode",fence="fine",le="+Inf"}}': 1.2,
    f'{P}forward_seconds_count{{mode="decode",fence="fine"}}': 1.2,
    f'{P}forward_seconds_sum{{mode="decode",fence="fine"}}': 0.0018,
    f'{P}slack_seconds_bucket{{mode="decode",ends="in_replay",le="0.000001"}}': 0,
    f'{P}slack_seconds_bucket{{mode="decode",ends="in_replay",le="0.001024"}}': 600,
    f'{P}slack_seconds_bucket{{mode="decode",ends="in_replay",le="+Inf"}}': 600,
    f'{P}wait_seconds_bucket{{mode="decode",fence="fine",le="0.000016"}}': 600,
    f'{P}wait_seconds_bucket{{mode="decode",fence="fine",le="0.016384"}}': 600,
    f'{P}wait_seconds_bucket{{mode="decode",fence="fine",le="+Inf"}}': 600,
    f'{P}wait_seconds_count{{mode="decode",fence="fine"}}': 600,
    f'{P}unsound_resolutions_total{{backend="native",mode="decode"}}': 0,
    f'{P}observer_errors_total{{hook="step_finished"}}': 0,
    f'{P}observer_unresolved_total{{cause="in_flight"}}': 0,
}
"""Series → increase a minute."""
GAUGES: dict[str, float] = {
    f'{P}barrier_enabled{{why="asynchronous_device"}}': 1,
    f'{P}loop_info{{loop="overlap"}}': 1,
    f'{P}device_timing_enabled{{why="timing_events"}}': 1,
    f"{P}observer_timing_every{{}}": 1,
    f'{P}audit_result{{backend="native",mode="decode",declared="in_replay",verdict="sound"}}': 1,
    f'{P}audit_result{{backend="native",mode="decode",declared="in_replay",verdict="unsound"}}': 0,
    f'{P}plugin_hook{{target="Scheduler.run_batch",state="installed"}}': 1,
}
STEPS = f"{P}steps_total"


@dataclass(frozen=True, slots=True)
class Server:
    """One rank of one server. Values of counters are increases a minute; None takes a series away."""

    instance: str = "a:30000"
    rank: int = 0
    minutes: int = 40
    changes: dict[str, float | None] = field(default_factory=dict[str, "float | None"])

    def but(self, changes: dict[str, float | None]) -> Server:
        """Return it with series changed, or added."""
        return replace(self, changes={**self.changes, **changes})

    def scaled(self, factor: float) -> Server:
        """Return it with so much less traffic."""
        numbers = self.numbers()
        return self.but({name: value * factor for name, value in numbers.items() if not is_gauge(name)})

    def numbers(self) -> dict[str, float]:
        """Return series → increase a minute, or value."""
        merged: dict[str, float | None] = {**COUNTERS, **GAUGES, **self.changes}
        return {name: value for name, value in merged.items() if value is not None}

    def steady(self) -> dict[str, str]:
        """As it is, from the start to the end."""
        return self._written({name: self._run(name, value, self.minutes) for name, value in self.numbers().items()})

    def restarted(self, burdens: dict[str, float | None]) -> dict[str, str]:
        """Counters begin again half-way; those of ``burdens`` had come to much before, and don't move any more."""
        half, frozen = self.minutes // 2, self._frozen(burdens)
        return self._written(
            {
                name: f"{100_000}x{half} {0}x{half}"
                if name in frozen
                else f"{self._run(name, value, half)} {self._run(name, value, half)}"
                for name, value in self.numbers().items()
            }
        )

    def gapped(self, bad: dict[str, float | None]) -> dict[str, str]:
        """Three bad minutes, six without a scrape, and all is well."""
        worse = self.but(bad).numbers()
        written: dict[str, str] = {}
        for name, value in (worse | self.numbers()).items():
            before = worse.get(name)
            reached = 0 if before is None else 3 * before
            known = name in self.numbers()
            first = "_x3" if before is None else self._run(name, before, 3)
            then = self._run(name, value, self.minutes, 0 if is_gauge(name) else reached) if known else "_x1"
            written[name] = f"{first} _x6 {then}"
        return self._written(written)

    def newcomer(self, burdens: dict[str, float | None]) -> dict[str, str]:
        """Not there at first; when it is, counters of ``burdens`` have come to much already, and stand still."""
        late, frozen = self.minutes // 2, self._frozen(burdens)
        return self._written(
            {
                name: f"_x{late} "
                + (f"100000x{late}" if name in frozen else self._run(name, value, late, 0 if is_gauge(name) else 5_000))
                for name, value in self.numbers().items()
            }
        )

    def _frozen(self, burdens: dict[str, float | None]) -> set[str]:
        """Counters that ``burdens`` moves and health doesn't, steps apart: those go on, as steps of another kind."""
        healthy = self.numbers()
        return {
            name
            for name in burdens
            if not is_gauge(name) and not name.startswith(STEPS) and (burdens[name] or 0) > healthy.get(name, 0)
        }

    def _run(self, name: str, value: float, minutes: int, start: float = 0) -> str:
        return f"{value:g}x{minutes}" if is_gauge(name) else f"{start:g}+{value:g}x{minutes}"

    def _written(self, values: dict[str, str]) -> dict[str, str]:
        where = f'job="sglang",instance="{self.instance}"'
        ranks = f'{where},model_name="m",tp_rank="{self.rank}"'
        written = {name.replace("{", f"{{{ranks},", 1).replace(",}", "}"): line for name, line in values.items()}
        return {f"up{{{where}}}": f"1x{3 * self.minutes}", **written}


def is_gauge(name: str) -> bool:
    """Whether a series isn't a counter's."""
    family = name.partition("{")[0]
    return not family.endswith(("_total", "_bucket", "_count", "_sum"))
