"""The CUDA profiler's switch: an error that says what is missing, and two calls that serving doesn't notice."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch

from sglang_fence.device.cuda_profiler import cuda_profiler
from sglang_fence.errors import DeviceUnavailableError
from sglang_fence.observe.profiling import StepRange
from sglang_fence.sglang_plugin.start import _may_profile, attempt
from sglang_fence.sglang_plugin.switches import Switches

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.sglang_plugin.session import Session

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")


@without_gpu
def test_without_a_device_the_error_says_so() -> None:
    with pytest.raises(DeviceUnavailableError, match="no CUDA device here"):
        cuda_profiler()


@without_gpu
def test_in_a_server_without_a_device_it_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    assert attempt("profiling", cuda_profiler) is None
    assert "profiling: left out" in caplog.text


@pytest.mark.parametrize("cuda", [False, True])
def test_a_server_asks_for_it_only_where_it_may_be_needed(cuda: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter
    def asks(switches: Switches) -> bool:
        border = SimpleNamespace(is_cuda=lambda: cuda)
        return _may_profile(cast("Session", SimpleNamespace(switches=switches, border=border)))

    assert not asks(Switches())
    assert asks(Switches(profile_steps=StepRange(1, 2)))
    assert asks(Switches(control=tmp_path / "control.json")) is cuda


@pytest.mark.gpu
def test_it_is_told_from_any_thread_and_work_goes_on() -> None:
    profiler = cuda_profiler()
    values = torch.zeros(8, device="cuda")
    failed: list[BaseException] = []

    def told() -> None:
        try:
            profiler.start()
            profiler.stop()
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)

    thread = threading.Thread(target=told)
    thread.start()
    values.add_(1)
    thread.join()
    told()
    torch.cuda.synchronize()
    assert failed == []
    assert values.sum().item() == 8
