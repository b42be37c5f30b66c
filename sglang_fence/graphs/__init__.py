"""Captured forwards: full graphs, and breakable ones (segments with eager parts between)."""
