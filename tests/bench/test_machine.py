"""What a result says of its machine: what figures depend on, and nothing that names the machine."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import torch

from sglang_fence.bench import machine
from sglang_fence.device.simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def tool(folder: Path, script: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_versions_are_named_and_the_host_is_not() -> None:
    facts = machine.describe(SimulatedDevice())
    assert facts["device"] == "simulated"
    assert facts["torch"] == torch.__version__
    assert facts["python"] == platform.python_version()
    assert "gpu" not in facts
    assert platform.node() not in " ".join(facts.values())


def test_the_driver_is_what_its_tool_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "echo 580.95.05; echo 580.95.05")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert machine.driver() == "580.95.05"


def test_without_its_tool_it_is_what_the_kernel_module_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "exit 9")
    monkeypatch.setenv("PATH", str(tmp_path))
    said = tmp_path / "version"
    said.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n", "utf-8")
    monkeypatch.setattr(machine, "_DRIVER", said)
    assert machine.driver() == "580.95.05"
    monkeypatch.setattr(machine, "_DRIVER", tmp_path / "nothing")
    assert machine.driver() == "unknown"
