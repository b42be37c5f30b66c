"""Which repeated steps have their cost measured; the compiled class has the same."""

from __future__ import annotations

COST_SAMPLE = 7
"""The cost of these hooks is measured on one step in so many, and multiplied."""

_RANGE = 1 << 32
_MIXING = (0x85EB_CA6B, 0xC2B2_AE35)  # odd, and their bits have no order


def is_metered(step: int) -> bool:
    """Whether a step's cost is measured: as if drawn, so that no rhythm, that of timed steps say, shows in it."""
    mixed = (step ^ step >> 16) % _RANGE
    mixed = mixed * _MIXING[0] % _RANGE
    mixed = (mixed ^ mixed >> 13) * _MIXING[1] % _RANGE
    return mixed ^ mixed >> 16 < _RANGE // COST_SAMPLE
