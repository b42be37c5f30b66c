"""What a result was measured on, as far as it bears on the figures. No host name, no path."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sglang_fence import __version__, native

if TYPE_CHECKING:
    from sglang_fence.device.protocol import DeviceModule

_DRIVER = Path("/proc/driver/nvidia/version")
_PATIENCE_S = 20.0


def describe(device: DeviceModule) -> dict[str, str]:
    """Return what figures of ``device`` depend on, by name; only what applies is there."""
    facts = {
        "device": device.name,
        "cpu": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "sglang-fence": __version__,
        "compiled parts": native.summary(),
    }
    if device.torch_device.type == "cuda":
        facts |= {
            "gpu": torch.cuda.get_device_name(device.torch_device),
            "driver": driver(),
            "cuda": torch.version.cuda or "none",
            "CUDA_DEVICE_MAX_CONNECTIONS": os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "unset"),
        }
    return facts


def driver() -> str:
    """Return the NVIDIA driver's release: from nvidia-smi, else from the kernel module, else ``unknown``."""
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        asked = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            said = subprocess.run(asked, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603 - the driver's own tool, with fixed arguments
        except (OSError, subprocess.SubprocessError):
            pass
        else:
            return (said.stdout.split() or ["unknown"])[0]
    try:
        words = _DRIVER.read_text(encoding="utf-8").split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[0].isdigit() and "." in word), "unknown")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
