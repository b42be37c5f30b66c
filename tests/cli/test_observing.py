"""Options that say who observes. A mistake is one line and exit status 2, before a model or a file is touched."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from sglang_fence.cli.observing import MAX_HOLD, ObserveOptions, Observing, observing
from sglang_fence.observe.sampling import DEFAULT_TIMING_EVERY, Sampling
from sglang_fence.observe.summary import Summary
from tests.runtime.commandline import CommandLine, read_jsonl, subprocess_run

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

RUN = ("run", "--device", "simulated", "--model", "./no-model")
"""With a model that isn't there: if that is complained about, loading had begun."""

SMALL = ("run", "--device", "simulated", "--requests", 2, "--max-new-tokens", 4)

MISTAKES: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "ratio_high": (("--perfetto", "t", "--trace-ratio", 1.01), ("--trace-ratio 1.01", "a share of steps, 0 to 1")),
    "ratio_low": (("--perfetto", "t", "--trace-ratio", -0.01), ("--trace-ratio -0.01", "a share of steps, 0 to 1")),
    "ratio_nan": (("--perfetto", "t", "--trace-ratio", "nan"), ("--trace-ratio nan", "a share of steps, 0 to 1")),
    "timing_every": (("--timing-every", -1), ("--timing-every -1", "give 1 for each step")),
    "port_high": (("--metrics-port", 65_536), ("--metrics-port 65536", "give a port, 1 to 65535, or 0")),
    "port_low": (("--metrics-port", -1), ("--metrics-port -1", "give a port, 1 to 65535, or 0")),
    "hold_low": (("--metrics-port", 0, "--hold", -1), ("--hold -1", "give seconds, 0 to")),
    "hold_nan": (("--metrics-port", 0, "--hold", "nan"), ("--hold nan", "give seconds, 0 to")),
    "hold_endless": (("--metrics-port", 0, "--hold", "inf"), ("--hold inf", "give seconds, 0 to")),
    "hold_too_long": (("--metrics-port", 0, "--hold", 2 * MAX_HOLD), ("--hold 2e+09", "give seconds, 0 to")),
    "hold_what": (("--hold", 3), ("--hold 3", "add --metrics-port")),
    "otlp_empty": (("--otlp", ""), ("--otlp ''", "is no OTLP address")),
    "otlp_word": (("--otlp", "collector"), ("--otlp 'collector'", "is no OTLP address")),
    "otlp_scheme": (("--otlp", "ftp://localhost:4317"), ("--otlp 'ftp://localhost:4317'", "is no OTLP address")),
    "otlp_port": (("--otlp", "grpc://localhost:99999"), ("99999", "a number from 1 to 65535")),
    "perfetto_folder": (("--perfetto", "."), ("the Perfetto trace can't be written to '.'", "name another file")),
    "perfetto_no_folder": (("--perfetto", "no/t"), ("can't be written to 'no/t'", "name another file")),
    "ratio_for_nobody": (("--trace-ratio", 0.5), ("--trace-ratio 0.5", "add --otlp, --perfetto or --record")),
    "coarse_for_nobody": (("--trace-coarse",), ("--trace-coarse", "add --otlp, --perfetto or --record")),
    "same_file": (("--perfetto", "t", "--json", "./t"), ("--json and --perfetto both name t", "a file of its own")),
}
UNOBSERVED: list[tuple[object, ...]] = [
    ("--nvtx",),
    ("--otlp", "env"),
    ("--perfetto", "t"),
    ("--metrics-port", 0),
    ("--timing-every", 4),
    ("--trace-ratio", 0.1),
    ("--trace-coarse",),
]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(tmp_path, monkeypatch, capsys)


@pytest.fixture
def taken_port() -> Generator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_before_the_model_is_loaded(name: str, cli: CommandLine) -> None:
    flags, words = MISTAKES[name]
    line = cli(*RUN, *flags).mistake()
    assert [word for word in words if word not in line] == []
    assert "no-model" not in line
    assert files(cli.folder) == {}


@pytest.mark.parametrize("name", ["ratio_high", "hold_nan", "otlp_word", "perfetto_no_folder"])
def test_a_mistake_is_one_line_of_a_real_process(name: str, cli: CommandLine) -> None:
    flags, words = MISTAKES[name]
    line = subprocess_run(*RUN, *flags).mistake()
    assert [word for word in words if word not in line] == []
    assert files(cli.folder) == {}


def test_the_model_is_what_is_complained_about_next(cli: CommandLine) -> None:
    assert "'./no-model' isn't there" in cli(*RUN, "--metrics-port", 0, "--perfetto", "t").mistake()
    assert "t" not in files(cli.folder)
    assert "'./no-model' isn't there" in subprocess_run(*RUN, "--perfetto", cli.folder / "of-a-process").mistake()
    assert not [name for name in files(cli.folder) if "of-a-process" in name]


@pytest.mark.parametrize("process", [False, True], ids=["here", "process"])
def test_a_port_that_is_taken_is_named_and_an_older_trace_left_alone(
    cli: CommandLine, taken_port: int, *, process: bool
) -> None:
    trace = cli.folder / "trace"
    trace.write_bytes(b"of yesterday")
    run = subprocess_run if process else cli
    line = run(*RUN, "--metrics-port", taken_port, "--perfetto", trace).mistake()
    assert f"port {taken_port} is taken" in line
    assert "or 0 for any that is free" in line
    assert trace.read_bytes() == b"of yesterday"


def test_an_exporter_s_port_is_given_up_with_it() -> None:
    watching = observing(ObserveOptions(metrics_port=0), virtual=True)
    assert watching.port is not None
    with urlopen(f"http://127.0.0.1:{watching.port}/metrics", timeout=10) as page:
        assert b"sglang_fence_exporter_dropped_steps_total" in page.read()
    watching.close()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the scrape's own end lingers
        again.bind(("127.0.0.1", watching.port))


@pytest.mark.parametrize("flags", UNOBSERVED, ids=lambda flags: flags[0])
def test_what_is_asked_of_nobody_contradicts_itself(flags: tuple[object, ...], cli: CommandLine) -> None:
    line = cli(*RUN, "--no-observe", *flags).mistake()
    assert line == f"sglang-fence: --no-observe {flags[0]}: nothing is observed then; leave one of them out"


def test_unobserved_the_same_is_served_and_nothing_counted(cli: CommandLine) -> None:
    observed, unobserved = cli.folder / "observed.jsonl", cli.folder / "unobserved.jsonl"
    assert cli(*SMALL, "--output", observed).code == 0
    assert cli(*SMALL, "--output", unobserved, "--no-observe").code == 0
    assert read_jsonl(observed) == read_jsonl(unobserved)
    report = cli.run("--requests", 2, "--max-new-tokens", 4, "--no-observe").report
    assert report["modes"] == {}
    assert observing(ObserveOptions(observe=False), virtual=True).observers == []


@pytest.mark.parametrize(
    ("options", "virtual", "expected"),
    [
        (ObserveOptions(), True, Sampling(1)),
        (ObserveOptions(), False, Sampling(DEFAULT_TIMING_EVERY)),
        (ObserveOptions(otlp="env"), False, Sampling(DEFAULT_TIMING_EVERY, 0.01)),
        (ObserveOptions(otlp="env", trace_ratio=0.0, trace_coarse=True), True, Sampling(1, 0.0, trace_coarse=True)),
        (ObserveOptions(otlp="env", timing_every=0), True, Sampling(0, 0.01)),
        (ObserveOptions(timing_every=16), True, Sampling(16)),
    ],
)
def test_what_is_left_out_is_chosen_by_what_is_wanted(
    options: ObserveOptions, expected: Sampling, *, virtual: bool
) -> None:
    assert options.sampling(virtual=virtual) == expected


def test_a_trace_file_holds_every_step_unless_a_share_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    assert ObserveOptions(perfetto=path).sampling(virtual=False) == Sampling(DEFAULT_TIMING_EVERY, 1.0)
    assert ObserveOptions(perfetto=path, otlp="env").sampling(virtual=True) == Sampling(1, 1.0)
    assert ObserveOptions(perfetto=path, trace_ratio=0.5).sampling(virtual=True) == Sampling(1, 0.5)


def test_holding_without_a_port_or_for_no_time_returns_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Observing(Summary(), [], Sampling()).hold(1e9)
    Observing(Summary(), [], Sampling(), port=1).hold(0)
    Observing(Summary(), [], Sampling(), port=1).hold(None)
    assert capsys.readouterr().err == ""
