"""What ``sglang-fence doctor`` looks at, one function a question. Nothing of SGLang is imported or run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence import native
from sglang_fence.environ import (
    ENABLE_PREFILL_WAR_READ_DONE,
    ENABLE_WAR_BARRIER,
    FORCE_COARSE_WAR_BARRIER,
)
from sglang_fence.observe.exporting import GROUP
from sglang_fence.sglang_plugin.source import PRESENT, check_sources
from sglang_fence.sglang_plugin.start import MULTIPROCESS
from sglang_fence.sglang_plugin.switches import SWITCHES, Switches, problems
from sglang_fence.sglang_plugin.targets import KNOWN_VERSIONS, ONLY_MARKED, TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sglang_fence.environ import Switch

PLUGINS = "sglang.srt.plugins"
OWN_ENTRY = "sglang_fence"

EARLY_VERSIONS = ("0.5.18", "0.5.19", "0.5.20", "0.5.21")
"""They resolve IN_REPLAY without a marker to PRE_REPLAY, and have prefill publication switched off."""


class State(StrEnum):
    """How a finding is."""

    GOOD = "good"
    NOTE = "note"
    """Worth knowing; nothing is lost."""
    PROBLEM = "problem"
    """Something that the user would miss is off."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer."""

    subject: str
    state: State
    text: str
    mend: str = ""


def as_sglang_reads(switch: Switch, environ: Mapping[str, str], *, default: bool) -> bool:
    """Return a switch of SGLang's as SGLang reads it: what isn't a boolean is the default, with a warning there."""
    value = environ.get(switch.name, "").lower()
    if value in {"true", "1", "yes", "y"}:
        return True
    return False if value in {"false", "0", "no", "n"} else default


def sglang_version() -> str | None:
    """Return the installed SGLang's version; None where there is none."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def look(folder: Path, running: str, environ: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Yield every finding.

    Args:
        folder: SGLang's package folder.
        running: its version.
        environ: the environment that the server is going to have; by default this process's.
    """
    source = os.environ if environ is None else environ
    yield _version(running)
    yield from _loading(source)
    yield from _hooks(folder, source)
    yield from _barrier(running, source)
    yield _markers(running)
    yield _connections(source)
    yield _metrics(source)
    yield from _exporters(source)
    yield _compiled(source)
    yield from _switches(source)


def _version(running: str) -> Finding:
    if running in KNOWN_VERSIONS:
        return Finding("version", State.GOOD, f"SGLang {running}")
    known = ", ".join(KNOWN_VERSIONS)
    return Finding("version", State.NOTE, f"SGLang {running} is new to us; known are {known}", "See the hooks below")


def _loading(environ: Mapping[str, str]) -> Iterator[Finding]:
    names = {entry.name for entry in entry_points(group=PLUGINS)}
    wanted = {name.strip() for name in environ.get("SGLANG_PLUGINS", "").split(",") if name.strip()}
    if OWN_ENTRY not in names:
        yield Finding(
            "plugin", State.PROBLEM, f"no entry point in {PLUGINS}", "Install sglang-fence in this environment"
        )
    elif wanted and OWN_ENTRY not in wanted:
        yield Finding(
            "plugin",
            State.PROBLEM,
            f"SGLANG_PLUGINS leaves it out: {', '.join(sorted(wanted))}",
            f"Add {OWN_ENTRY} to it",
        )
    elif not Switches.from_environ(environ).on:
        yield Finding("plugin", State.PROBLEM, "SGLANG_FENCE switches it off", "Unset SGLANG_FENCE")
    else:
        yield Finding("plugin", State.GOOD, "SGLang's loader will find it")


def _hooks(folder: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    states = check_sources(folder, TARGETS)
    switches = Switches.from_environ(environ)
    unwanted = frozenset[str]() if switches.nvtx or switches.traces else ONLY_MARKED.keys()
    for target in TARGETS:
        state = states[target.path]
        if state == PRESENT:
            yield Finding(f"hook {target.key}", State.GOOD, target.path)
        else:
            worst = State.NOTE if target.key in unwanted else State.PROBLEM
            yield Finding(f"hook {target.key}", worst, f"{state}: {target.path}", f"Not seen: {target.unseen}")


def _barrier(running: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    cuda = torch.cuda.is_available() and torch.version.cuda is not None
    name = ENABLE_WAR_BARRIER.name
    if cuda:
        yield Finding("barrier", State.GOOD, "on: the device has asynchronous streams")
    elif as_sglang_reads(ENABLE_WAR_BARRIER, environ, default=False):
        yield Finding("barrier", State.GOOD, f"on: {name}")
    else:
        yield Finding(
            "barrier", State.PROBLEM, "off: this device isn't CUDA", f"As expected there; {name}=1 switches it on"
        )
    if as_sglang_reads(FORCE_COARSE_WAR_BARRIER, environ, default=False):
        name = FORCE_COARSE_WAR_BARRIER.name
        yield Finding("forced coarse", State.PROBLEM, f"{name} makes every fence coarse", f"Unset {name}")
    early = running in EARLY_VERSIONS
    if not as_sglang_reads(ENABLE_PREFILL_WAR_READ_DONE, environ, default=not early):
        why = f"SGLang {running} has it off by default" if early else "it is switched off"
        name = ENABLE_PREFILL_WAR_READ_DONE.name
        yield Finding("prefill", State.NOTE, f"prefill publishes nothing: {why}", f"{name}=1 switches it on")


def _markers(running: str) -> Finding:
    if not torch.cuda.is_available():
        return Finding("markers", State.NOTE, "no CUDA here: graphs have no markers, and there are no device times")
    event: Any = torch.cuda.Event
    try:
        event(external=True)
    except TypeError:
        unsound = running in EARLY_VERSIONS
        text = f"PyTorch {torch.__version__} makes no external events: decode resolves " + (
            "before its reads end, which is unsound" if unsound else "to the end of the replay"
        )
        return Finding("markers", State.PROBLEM, text, "Use PyTorch 2.8 or newer")
    return Finding("markers", State.GOOD, "PyTorch makes external events: graphs can have markers")


def _connections(environ: Mapping[str, str]) -> Finding:
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    value = environ.get(name)
    if value is not None and value.strip() == "1":
        return Finding(
            name, State.PROBLEM, "1: every fine fence is coarse in hardware", f"Unset {name}, or set it to 8"
        )
    return Finding(name, State.GOOD, value or "not set")


def _metrics(environ: Mapping[str, str]) -> Finding:
    folder = environ.get(MULTIPROCESS)
    if folder is None:
        return Finding(
            "metrics", State.GOOD, f"SGLang makes a folder of its own with --enable-metrics ({MULTIPROCESS})"
        )
    path = Path(folder)
    if not path.is_dir() or not os.access(path, os.W_OK):
        return Finding(
            "metrics", State.PROBLEM, f"{MULTIPROCESS}={folder} can't be written", "Make that folder, or unset it"
        )
    return Finding("metrics", State.GOOD, f"{MULTIPROCESS}={folder}")


def _exporters(environ: Mapping[str, str]) -> Iterator[Finding]:
    found: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=GROUP)}
    switches = Switches.from_environ(environ)
    wanted = {
        "prometheus": True,
        "otel": switches.traces,
        "nvtx": switches.nvtx,
    }
    for name, asked in wanted.items():
        subject = f"exporter {name}"
        if name not in found:
            yield Finding(subject, State.PROBLEM, "not installed", "Install sglang-fence again")
            continue
        try:
            found[name].load()
        except ImportError as error:
            state = State.PROBLEM if asked else State.NOTE
            yield Finding(subject, state, f"a package is missing: {error}", f"pip install sglang-fence[{name}]")
        else:
            yield Finding(subject, State.GOOD, "asked for" if asked else "there, if it is asked for")


def _compiled(environ: Mapping[str, str]) -> Finding:
    found = native.parts(environ)
    state = State.GOOD if all(one.usable for one in found) else State.NOTE
    mend = "" if state is State.GOOD else "All works without; a step whose device times are taken costs more"
    return Finding("compiled parts", state, native.summary(environ), mend)


def _switches(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name, problem in problems(environ).items():
        about = next(row.about for row in SWITCHES if row.name == name)
        yield Finding(name, State.PROBLEM, problem, about)
