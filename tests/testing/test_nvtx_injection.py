"""The NVTX tool for tests: what it builds from, what it hears, and what its reader makes of it."""

from __future__ import annotations

import json
import math
import os
import stat
import subprocess
import sys
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.errors import ConfigError
from sglang_fence.testing import (
    NvtxEvent,
    NvtxKind,
    build_nvtx_injection,
    nvtx_environment,
    nvtx_ranges,
    read_nvtx_log,
)

if TYPE_CHECKING:
    from pathlib import Path

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-cast-function-type")

EVERYTHING = """
import threading
import nvtx
domain = nvtx.get_domain("mine")
made = domain.get_event_attributes("häng \\"on\\"\\t\\\\", 0x80112233, "waits")
made.payload = -(2 ** 63)
domain.push_range(made)
domain.pop_range()
made.payload = 0.1
domain.mark(made)
made.payload = float("nan")
domain.mark(made)
made.payload = float("-inf")
domain.mark(made)
domain.mark(message="m" * 5000)
domain.end_range(domain.start_range(message="process"))
domain.get_counter("whole", int).sample(-3)
real = domain.get_counter("real", float, semantics=nvtx.CounterSemantics(unit="us"))
real.sample(2.5)
real.batch_submit([1.0, 2.0], [10, 20])
thread = threading.Thread(target=domain.push_range, kwargs={"message": "elsewhere"})
thread.start()
thread.join()
nvtx.mark("default")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_nvtx_injection(tmp_path_factory.mktemp("injection"), *WARNINGS)
    except ConfigError as error:
        if "no C compiler" in str(error):
            pytest.skip(str(error))
        raise


def run(program: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if "NVTX" not in name}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def everything(library: Path, tmp_path_factory: pytest.TempPathFactory) -> list[NvtxEvent]:
    log = tmp_path_factory.mktemp("log") / "nvtx.jsonl"
    done = run(EVERYTHING, nvtx_environment(library, log))
    assert (done.returncode, done.stderr) == (0, "")
    return read_nvtx_log(log)


def test_it_hears_ranges_and_marks_with_all_that_they_say(everything: list[NvtxEvent]) -> None:
    push, pop, mark = everything[:3]
    thread = push.thread
    name = 'häng "on" \\'  # the tabulator became a blank
    assert push == NvtxEvent(NvtxKind.PUSH, "mine", thread, name, 1, "waits", 0x80112233, "int64", -(2**63))
    assert pop == NvtxEvent(NvtxKind.POP, "mine", thread)
    assert mark == NvtxEvent(NvtxKind.MARK, "mine", thread, name, 1, "waits", 0x80112233, "double", 0.1)
    assert [event.domain for event in everything if event.message == "default"] == [None]


def test_numbers_that_json_has_no_words_for_come_through(everything: list[NvtxEvent]) -> None:
    nan, infinite = everything[3:5]
    assert isinstance(nan.payload, float)
    assert math.isnan(nan.payload)
    assert infinite.payload == -math.inf


def test_a_long_name_is_cut(everything: list[NvtxEvent]) -> None:
    assert everything[5].message == "m" * 512
    assert [event.kind for event in everything[6:8]] == [NvtxKind.START, NvtxKind.END]


def test_it_hears_counters(everything: list[NvtxEvent]) -> None:
    samples = [event for event in everything if event.kind is NvtxKind.SAMPLE]
    assert [(one.message, one.unit, one.payload_type, one.payload, one.timestamp) for one in samples] == [
        ("whole", None, "int64", -3, None),
        ("real", "us", "double", 2.5, None),
        ("real", "us", "double", 1.0, 10),
        ("real", "us", "double", 2.0, 20),
    ]
    assert [type(one.payload) for one in samples] == [int, float, float, float]


def test_threads_are_told_apart_and_so_are_their_ranges(everything: list[NvtxEvent]) -> None:
    (elsewhere,) = [event for event in everything if event.message == "elsewhere"]
    assert elsewhere.thread not in {event.thread for event in everything if event is not elsewhere}
    with pytest.raises(AssertionError, match="pushed and never popped: elsewhere"):
        nvtx_ranges(everything)


def test_without_a_log_it_listens_and_writes_nothing(library: Path, tmp_path: Path) -> None:
    program = "import nvtx; print(type(nvtx.get_domain('mine')).__name__)"
    done = run(program, nvtx_environment(library))
    assert (done.stdout, done.stderr, list(tmp_path.iterdir())) == ("Domain\n", "", [])


def test_a_domain_that_it_does_not_want_gets_no_listener(library: Path) -> None:
    program = "import nvtx; print([type(nvtx.get_domain(name)).__name__ for name in ('mine', 'other')])"
    done = run(program, nvtx_environment(library, exclude="mine"))
    assert done.stdout == "['DummyDomain', 'Domain']\n"


def test_a_log_that_cannot_be_written_is_told_and_the_process_goes_on(library: Path, tmp_path: Path) -> None:
    log = tmp_path / "missing" / "log"
    done = run("import nvtx; nvtx.mark('m')", nvtx_environment(library, log))
    assert done.returncode == 0
    assert done.stderr == f"nvtx_injection: can't write SGLANG_FENCE_NVTX_LOG {log}\n"


def test_a_later_process_appends(library: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for name in ("first", "second"):
        run(f"import nvtx; nvtx.mark('{name}')", nvtx_environment(library, log))
    assert [event.message for event in read_nvtx_log(log)] == ["first", "second"]


def test_the_source_comes_with_the_package() -> None:
    assert "InitializeInjectionNvtx2" in (files("sglang_fence.testing") / "nvtx_injection.c").read_text("utf-8")


def test_without_a_compiler_the_mend_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ConfigError, match=r"no C compiler .*: install one of cc, gcc, clang, or set CC"):
        build_nvtx_injection(tmp_path)


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/no/such/cc -m64")
    with pytest.raises(ConfigError, match=r"/no/such/cc didn't run .*: set CC to one that does"):
        build_nvtx_injection(tmp_path)


def test_a_compiler_that_fails_says_why_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho note >&2\necho 'x.c:1: error: too old' >&2\nexit 1\n", encoding="utf-8")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(ConfigError) as caught:
        build_nvtx_injection(tmp_path)
    assert str(caught.value).endswith("can't build the NVTX injection library: x.c:1: error: too old")


@pytest.mark.parametrize(
    "line",
    ["", "[]", "{}", "not json", '{"event": "jump", "thread": 1, "domain": null}', '{"event": "pop"}'],
)
def test_a_line_of_somebody_else_is_named(tmp_path: Path, line: str) -> None:
    log = tmp_path / "log"
    log.write_text('{"event": "pop", "thread": 1, "domain": null}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"log, line 2: not a line of the NVTX injection library"):
        read_nvtx_log(log)


def test_one_domain_can_be_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rows = [{"event": "mark", "thread": 1, "domain": domain, "message": "m"} for domain in ("mine", "other", None)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [event.domain for event in read_nvtx_log(log)] == ["mine", "other", None]
    assert [event.domain for event in read_nvtx_log(log, "mine")] == ["mine"]


def event(kind: NvtxKind, thread: int, message: str | None = None) -> NvtxEvent:
    return NvtxEvent(kind, "mine", thread, message)


def test_a_pop_without_a_push_is_told() -> None:
    with pytest.raises(AssertionError, match="event 0 pops in the domain 'mine', where nothing is pushed"):
        nvtx_ranges([event(NvtxKind.POP, 1)])


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=60))
def test_pushes_are_paired_with_pops_thread_by_thread(steps: list[tuple[int, bool]]) -> None:
    """Whatever the interleaving of threads."""
    events: list[NvtxEvent] = []
    stacks: dict[int, list[int]] = {1: [], 2: [], 3: []}
    expected: list[tuple[int, int, int]] = []

    def pop(thread: int) -> None:
        first = stacks[thread].pop()
        expected.append((first, len(events), len(stacks[thread])))
        events.append(event(NvtxKind.POP, thread))

    for thread, deeper in steps:
        if deeper or not stacks[thread]:
            stacks[thread].append(len(events))
            events.append(event(NvtxKind.PUSH, thread, str(len(events))))
        else:
            pop(thread)
    for thread, stack in stacks.items():
        while stack:
            pop(thread)
    found = nvtx_ranges(events)
    assert [(one.first, one.last, one.depth) for one in found] == sorted(expected)
    assert [one.push for one in found] == [events[one.first] for one in found]
