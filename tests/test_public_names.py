"""The public names are exactly those listed, and the import is light."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import sglang_fence

PUBLIC = ["FallbackReason", "FenceError", "FenceKind", "ForwardMode", "SharedReadEnds", "__version__"]

HEAVY = ("torch", "transformers", "numpy", "prometheus_client", "opentelemetry", "nvtx", "typer", "rich", "sglang")


def _modules_after(statements: str) -> set[str]:
    """Run ``statements`` in a fresh interpreter; return the names of all modules that are loaded then."""
    program = f"import sys, json; {statements}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    return set(json.loads(done.stdout))


def test_the_public_names_are_exactly_the_listed_ones() -> None:
    assert sorted(sglang_fence.__all__) == PUBLIC
    assert set(sglang_fence._HOMES) | {"__version__"} == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_resolves_to_the_object_of_its_module(name: str) -> None:
    value = getattr(sglang_fence, name)
    if name == "__version__":
        assert isinstance(value, str)
    else:
        assert value is getattr(importlib.import_module(value.__module__), name)
    assert name in dir(sglang_fence)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'sglang_fence' has no attribute 'Fence'"):
        _ = sglang_fence.Fence  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "statements",
    [
        "import sglang_fence",
        "from sglang_fence import *",
        "import sglang_fence.catalogue, sglang_fence.contract, sglang_fence.environ, sglang_fence.errors",
    ],
)
def test_the_import_is_light(statements: str) -> None:
    loaded = _modules_after(statements)
    assert "sglang_fence" in loaded
    assert not {name for name in loaded if name.split(".")[0] in {*HEAVY, "sglang_fence_exporters"}}


def test_importing_the_package_alone_loads_no_module_of_it() -> None:
    assert not {name for name in _modules_after("import sglang_fence") if name.startswith("sglang_fence.")}


def test_the_light_import_test_sees_what_is_loaded() -> None:
    assert "json.decoder" in _modules_after("import json.decoder")
