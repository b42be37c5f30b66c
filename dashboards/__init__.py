"""The monitoring mixin: see README.md."""
