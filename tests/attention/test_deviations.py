"""A declaration that differs from the base's says why."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING

import pytest

from sglang_fence import attention
from sglang_fence.attention.base import AttentionBackend, base_read_ends
from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.linear import LinearAttnBackend
from sglang_fence.attention.registry import LEAVES, make_backend
from sglang_fence.contract import ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from tests.attention.stores import tiny_store

if TYPE_CHECKING:
    from collections.abc import Iterable


def _leaves() -> Iterable[type[AttentionBackend]]:
    """Return every backend that is made of pools, registered or not."""
    for found in pkgutil.iter_modules(attention.__path__):
        module = importlib.import_module(f"{attention.__name__}.{found.name}")
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__ != module.__name__ or not issubclass(cls, AttentionBackend) or inspect.isabstract(cls):
                continue
            if {"requests", "kv"} <= set(inspect.signature(cls).parameters):
                yield cls


def _made(cls: type[AttentionBackend]) -> AttentionBackend:
    store = tiny_store(SimulatedDevice())
    return LinearAttnBackend(*store, layers=(0,)) if cls is LinearAttnBackend else cls(*store)


def test_every_leaf_is_looked_at() -> None:
    assert set(LEAVES.values()) < set(_leaves())


@pytest.mark.parametrize("cls", list(_leaves()))
@pytest.mark.parametrize("mode", list(ForwardMode))
def test_a_leaf_says_why_it_deviates_and_only_then(cls: type[AttentionBackend], mode: ForwardMode) -> None:
    backend = _made(cls)
    deviates = backend.shared_read_ends(mode) is not base_read_ends(mode)
    assert bool(cls.deviations.get(mode)) is deviates
    assert bool(backend.deviation(mode)) is deviates


@pytest.mark.parametrize("spec", WRAPPED)
@pytest.mark.parametrize("mode", list(ForwardMode))
def test_a_wrapper_says_so_in_the_name_of_a_child(spec: str, mode: ForwardMode) -> None:
    backend = make_backend(spec, *tiny_store(SimulatedDevice()))
    deviation = backend.deviation(mode)
    if backend.shared_read_ends(mode) is base_read_ends(mode):
        assert deviation is None
    else:
        assert deviation is not None
        named = [name for name in (*LEAVES, "linear") if f"{name}: " in deviation]
        assert named
        assert "None" not in deviation
