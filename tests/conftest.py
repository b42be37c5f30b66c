"""Markers: tests that need what a machine lacks skip themselves there."""

from __future__ import annotations

import importlib.util

import pytest


def _has_cuda() -> bool:
    import torch  # noqa: PLC0415 - slow, and only needed where a test asks for a GPU

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``gpu`` without a CUDA device, and those marked ``sglang`` without SGLang."""
    needs_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needs_gpu and not _has_cuda():
        for item in needs_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    needs_sglang = [item for item in items if item.get_closest_marker("sglang")]
    if needs_sglang and importlib.util.find_spec("sglang") is None:
        for item in needs_sglang:
            item.add_marker(pytest.mark.skip(reason="needs SGLang"))
