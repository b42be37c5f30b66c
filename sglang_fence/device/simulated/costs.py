"""What kernels and host calls cost in virtual time: the built-in table, or the user's."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sglang_fence.device.kernels import HOST_CALLS, KERNELS
from sglang_fence.device.simulated.strictjson import closest, read_object, show, time_problem
from sglang_fence.device.simulated.timeline import to_ps
from sglang_fence.errors import CostTableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_US = 1.0
"""What a kernel or host call that no table names costs."""


class CostTable:
    """Costs by name, in picoseconds; a name that the table lacks costs its default."""

    def __init__(
        self,
        *,
        default_us: float | None = None,
        kernels: Mapping[str, float] | None = None,
        host: Mapping[str, float] | None = None,
    ) -> None:
        """Start from the built-in costs.

        Args:
            default_us: replaces every built-in cost, and is what unknown names cost.
            kernels: kernel name → µs, over the built-in costs. Any name will do.
            host: host call → µs, over the built-in costs. Any name will do.

        Raises:
            CostTableError: a time that isn't a finite number, or is negative.
        """
        for entry, us in _entries(default_us, kernels or {}, host or {}):
            problem = time_problem(us)
            if problem:
                msg = f"cost table: {entry} {problem}"
                raise CostTableError(msg)
        self._default = to_ps(DEFAULT_US if default_us is None else default_us)
        self._kernels: dict[str, int] = {}
        self._host: dict[str, int] = {}
        if default_us is None:
            self._kernels = {name: to_ps(cost.us) for name, cost in KERNELS.items()}
            self._host = {name: to_ps(cost.us) for name, cost in HOST_CALLS.items()}
        self._kernels.update({name: to_ps(us) for name, us in (kernels or {}).items()})
        self._host.update({name: to_ps(us) for name, us in (host or {}).items()})

    @classmethod
    def load(cls, path: Path) -> CostTable:
        """Read ``{"default_us": 0, "kernels": {"layer": 40}, "host": {"schedule": 30}}``; every key may be left out.

        Raises:
            CostTableError: the file is missing or broken, a key or name is unknown, a time is no time.
        """
        table = read_object(path, CostTableError)
        for key in table:
            if key not in {"default_us", "kernels", "host"}:
                msg = f'{path}: unknown key {key!r}; a cost table has "default_us", "kernels" and "host"'
                raise CostTableError(msg)
        kernels = _section(path, table, "kernels", KERNELS)
        host = _section(path, table, "host", HOST_CALLS)
        default_us = table.get("default_us")
        if "default_us" in table:
            default_us = _time(path, "default_us", default_us)
            return cls(default_us=default_us, kernels=kernels, host=host)
        return cls(kernels=kernels, host=host)

    @classmethod
    def random(cls, seed: int) -> CostTable:
        """Make a table of random whole microseconds from 0 to 60, the same for the same seed: for tests."""
        source = random.Random(seed)  # noqa: S311 - a reproducible table, no secret
        return cls(
            kernels={name: source.randint(0, 60) for name in KERNELS},
            host={name: source.randint(0, 60) for name in HOST_CALLS},
        )

    def kernel(self, name: str) -> int:
        """Return what the kernel costs, in ps."""
        return self._kernels.get(name, self._default)

    def host(self, name: str) -> int:
        """Return what the host call costs, in ps."""
        return self._host.get(name, self._default)


def _entries(
    default_us: float | None,
    kernels: Mapping[str, float],
    host: Mapping[str, float],
) -> list[tuple[str, float]]:
    entries = [(f"kernels.{name}", us) for name, us in kernels.items()]
    entries += [(f"host.{name}", us) for name, us in host.items()]
    return entries if default_us is None else [("default_us", default_us), *entries]


def _section(path: Path, table: Mapping[str, object], key: str, known: Mapping[str, object]) -> dict[str, float]:
    section = table.get(key, {})
    if not isinstance(section, dict):
        msg = f"{path}: {key} is {show(section)}; write an object of names and microseconds"
        raise CostTableError(msg)
    for name in section:
        if name not in known:
            what = "kernel" if key == "kernels" else "host call"
            msg = f"{path}: {key}.{name}: no {what} of that name; {closest(name, known)}"
            raise CostTableError(msg)
    return {name: _time(path, f"{key}.{name}", us) for name, us in section.items()}


def _time(path: Path, entry: str, value: object) -> float:
    problem = time_problem(value)
    if problem or not isinstance(value, int | float):
        msg = f"{path}: {entry} {problem}"
        raise CostTableError(msg)
    return value
