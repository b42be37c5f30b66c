"""The command line of the benchmarks: what it writes, and what it refuses before it measures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from sglang_fence.bench.fence_result import FenceResult
from sglang_fence.bench.plot import svg
from sglang_fence.bench.result_files import load
from sglang_fence.cli.app import app
from sglang_fence.cli.bench_options import make_plan, make_sweep, numbers
from sglang_fence.errors import ConfigError, DeviceUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ["--device", "simulated", "--decode-ms", "0.25,1", "--prepare-ms", "0,0.1", "--rounds", "1", "--block-ms", "1"]


def test_fence_writes_its_figures_and_its_plot(tmp_path: Path) -> None:
    figures, plot = tmp_path / "fence.json", tmp_path / "fence.svg"
    arguments = ["bench", "fence", *QUICK, "--json", str(figures), "--plot", str(plot)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    result = load(figures, "fence", FenceResult.from_json)
    assert len(result.cells) == 4 + 3
    assert plot.read_text(encoding="utf-8") == svg(result)
    assert "noise: off again over off 1.000 … 1.000" in done.output


def test_observe_writes_what_the_host_pays_where_time_is_virtual(tmp_path: Path) -> None:
    path = tmp_path / "observe.json"
    done = CliRunner().invoke(app, ["bench", "observe", "--rounds", "1", "--device", "simulated", "--json", str(path)])
    assert done.exit_code == 0, done.output
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["bench"] == "observe"
    assert "no observer" in content["host_ns"]
    assert not content["decode_loop"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decode-ms", "0.25,x"], "'x' is no number"),
        (["--decode-ms", "-1"], "'-1' is no number"),
        (["--decode-ms", "nan"], "'nan' is no number"),
        (["--decode-ms", ""], "'' is no number"),
        (["--decode-ms", "0.02"], "--decode-ms 0.02: metadata preparation and sampling alone take 0.02 ms"),
        (["--closer-ms", "0.01"], "--closer-ms 0.01: metadata"),
        (["--prepare-ms", "2000"], "--prepare-ms: 2000 ms is no part of a decode step"),
        (["--schedule-us", "2000000"], "--schedule-us: 2000 ms is no part"),
        (["--plot", "fence.png"], "name the file something.svg"),
        (["--json", "no/such/folder/fence.json"], "can't be written"),
    ],
)
def test_fence_refuses_in_a_line(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["bench", "fence", "--device", "simulated", *arguments])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)


def test_cuda_is_refused_where_there_is_none() -> None:
    import torch  # noqa: PLC0415 - slow, and for this test alone

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    done = CliRunner().invoke(app, ["bench", "fence", "--device", "cuda"])
    assert isinstance(done.exception, DeviceUnavailableError)


def test_numbers_may_have_spaces() -> None:
    assert numbers("--x", "0.1, 1,2.50") == [0.1, 1, 2.5]


def test_times_become_microseconds_without_a_remainder() -> None:
    sweep = make_sweep(
        decode_ms=[0.1, 0.3],
        prepare_ms=[0.07],
        schedule_us=40,
        closer_ms=0,
        closer_schedule_us=[1],
        rounds=1,
        block_ms=50,
    )
    assert (sweep.decode_us, sweep.prepare_us) == ([100, 300], [70])
    assert [shape.forward_us for shape, _ in sweep.shapes()] == [100, 300]


def test_sizes_follow_the_device_where_nothing_is_said() -> None:
    def plan(*, cuda: bool, layers: int | None = None) -> tuple[object, ...]:
        made = make_plan(
            cuda=cuda, hidden_size=None, layers=layers, attention="native", batches=None, new_tokens=None, rounds=1
        )
        return made.size.hidden_size, made.size.layers, made.dtype, tuple(made.batches), made.new_tokens

    assert plan(cuda=True) == (1024, 8, "bfloat16", (1, 8, 32), 128)
    assert plan(cuda=False, layers=3) == (128, 3, "float32", (1, 2), 12)
