"""Attention backends: what each reads of the shared buffers, where, and what it declares about that.

:mod:`base` holds the contract; each backend is a file; :mod:`registry` finds them by name.
"""
