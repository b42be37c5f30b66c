"""Benchmarks: compared in one run, in interleaved blocks, as ratios with their spread."""
