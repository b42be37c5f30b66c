"""``FenceResult``: what ``bench fence`` found, into JSON and back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.bench.blocks import Measured
from sglang_fence.bench.bounds import PartTimes
from sglang_fence.bench.overlap import StepShape

if TYPE_CHECKING:
    from collections.abc import Mapping

BASELINE = "off"
"""The variant that ratios are against."""
AGAIN = "off again"
"""The same loop once more: what the two differ by is noise."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One shape of a step behind each fence."""

    shape: StepShape
    steps: int
    """Of a block."""
    parts: PartTimes
    host_us: float
    """What the host needs a step with the fence off, blocking left out; median over rounds."""
    variants: Mapping[str, Measured]
    """Steps a second; ratios against the fence off in the same round."""

    @property
    def ideal_steps_per_s(self) -> float:
        """The upper bound: see :meth:`~sglang_fence.bench.bounds.PartTimes.ideal_us`."""
        return 1e6 / self.parts.ideal_us(self.shape, self.host_us)

    def against(self, name: str, base: str) -> Measured:
        """Return ``name`` with its ratios to ``base``, round by round."""
        return self.variants[name].against(self.variants[base])

    def to_json(self) -> dict[str, Any]:
        """Return the figures. What follows from others is there for readers."""
        return {
            "shape": asdict(self.shape),
            "steps": self.steps,
            "parts": asdict(self.parts),
            "host_us": self.host_us,
            "ideal_steps_per_s": self.ideal_steps_per_s,
            "fine_over_coarse": self.against("fine IN", "coarse").ratio,
            "steps_per_s": {name: one.to_json() for name, one in self.variants.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Cell:
        """Read what :meth:`to_json` wrote.

        Raises:
            KeyError: something is missing; likewise TypeError and ValueError, where it isn't what it should be.
        """
        values = {name: tuple(map(float, one["values"])) for name, one in content["steps_per_s"].items()}
        base = Measured.of(values[BASELINE], values[BASELINE])
        return cls(
            StepShape(**content["shape"]),
            int(content["steps"]),
            PartTimes(**content["parts"]),
            float(content["host_us"]),
            {name: Measured.of(one, base.values) for name, one in values.items()},
        )


@dataclass(frozen=True, slots=True)
class FenceResult:
    """One run of ``bench fence``."""

    machine: Mapping[str, str]
    settings: Mapping[str, float]
    cells: tuple[Cell, ...]

    def grid(self, schedule_us: float) -> dict[float, dict[float, Cell]]:
        """Return the cells with so much work on the schedule stream: host preparation → decode length → cell."""
        found: dict[float, dict[float, Cell]] = {}
        for cell in self.cells:
            if cell.shape.schedule_us == schedule_us:
                found.setdefault(cell.shape.prepare_us, {})[cell.shape.forward_us] = cell
        return {prepare: dict(sorted(row.items())) for prepare, row in sorted(found.items())}

    @property
    def schedule_us(self) -> float:
        """The schedule stream's work of most cells: what the grid was measured with."""
        works = [cell.shape.schedule_us for cell in self.cells]
        return max(works, key=works.count)

    @property
    def noise(self) -> tuple[float, float]:
        """The smallest and the largest ratio, over all cells, of a loop to its like: medians over rounds."""
        ratios = [cell.variants[AGAIN].ratio for cell in self.cells]
        return min(ratios), max(ratios)

    def closer(self) -> list[Cell]:
        """Return the cells that were measured most often, by their work on the schedule stream."""
        most = max(len(cell.variants[BASELINE].values) for cell in self.cells)
        found = [cell for cell in self.cells if len(cell.variants[BASELINE].values) == most]
        return sorted(found, key=lambda cell: cell.shape.schedule_us)

    def to_json(self) -> dict[str, Any]:
        """Return all."""
        return {
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "cells": [cell.to_json() for cell in self.cells],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> FenceResult:
        """Read what :meth:`to_json` wrote; raises as :meth:`Cell.from_json` does."""
        cells = tuple(Cell.from_json(one) for one in content["cells"])
        if not cells:
            msg = "no cells"
            raise ValueError(msg)
        return cls(dict(content["machine"]), dict(content["settings"]), cells)
