"""Speculative decoding: algorithms, and the workers that run their phases."""
