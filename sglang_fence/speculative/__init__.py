"""Speculative decoding: draft, verify, extend, with greedy acceptance.

:mod:`algorithm` holds what an algorithm answers for the fence; :mod:`worker` the round that all share; each family is a
file. The tokens are the target's own in every case: drafts only decide how many come out of one verification.
"""
