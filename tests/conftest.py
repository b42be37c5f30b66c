"""Markers: tests that need what a machine lacks skip themselves there."""

from __future__ import annotations

import os

import pytest

SGLANG_ENVIRONMENTS = "SGLANG_FENCE_TEST_ENVS"
"""Environments with SGLang, separated by colons. SGLang and this project's tools have requirements that don't agree, so
that servers run in environments of their own."""


def _has_cuda() -> bool:
    import torch  # noqa: PLC0415 - slow, and only needed where a test asks for a GPU

    return torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``gpu`` without a CUDA device, and those marked ``sglang`` without an environment for it."""
    needs_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needs_gpu and not _has_cuda():
        for item in needs_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    needs_sglang = [item for item in items if item.get_closest_marker("sglang")]
    if needs_sglang and not os.environ.get(SGLANG_ENVIRONMENTS):
        for item in needs_sglang:
            item.add_marker(pytest.mark.skip(reason=f"{SGLANG_ENVIRONMENTS} names no environment with SGLang"))
