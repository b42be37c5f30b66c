"""The simulated device: virtual time, real computations, and a checker of hazards. Read :mod:`.timeline` first."""
