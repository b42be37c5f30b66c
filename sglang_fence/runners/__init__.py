"""Runners: load a batch, prepare metadata, run the forward, and publish where its shared reads end."""
