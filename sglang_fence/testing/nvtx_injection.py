"""Builds the NVTX tool for tests from its C source, which comes with the package.

::

    library = build_nvtx_injection(tmp_path)
    subprocess.run(command, env=os.environ | nvtx_environment(library, tmp_path / "nvtx.jsonl"), check=True)
    events = read_nvtx_log(tmp_path / "nvtx.jsonl")

A tool is loaded at the first NVTX call of a process and stays: attach it to a subprocess, not to the test itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden")
_COMPILE_SECONDS = 120


def build_nvtx_injection(folder: Path, *flags: str) -> Path:
    """Compile the tool into ``folder``.

    Args:
        folder: where to put the library; it must exist.
        flags: more for the compiler, such as ``-Wall``.

    Returns:
        The library: what ``NVTX_INJECTION64_PATH`` has to name.

    Raises:
        ConfigError: there is no C compiler, or it failed.
    """
    library = folder.resolve() / "libnvtx_injection.so"
    compiler = _compiler()
    with as_file(files("sglang_fence.testing") / "nvtx_injection.c") as source:
        command = [*compiler, *_FLAGS, *flags, "-o", str(library), str(source), "-pthread"]
        try:
            done = subprocess.run(  # noqa: S603 - the compiler of whoever runs the tests, on our own source
                command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            msg = f"the C compiler {compiler[0]} didn't run ({error}): set CC to one that does"
            raise ConfigError(msg) from error
    if done.returncode != 0:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip() or "no reason")
        msg = f"the C compiler {compiler[0]} can't build the NVTX injection library: {said}"
        raise ConfigError(msg)
    return library


def nvtx_environment(library: Path, log: Path | None = None, exclude: str | None = None) -> dict[str, str]:
    """Return the environment variables that attach the tool to a process.

    Args:
        library: as :func:`build_nvtx_injection` returned it.
        log: the file that the tool appends to; None: it is attached and writes nothing.
        exclude: a domain that it says it doesn't want.
    """
    variables = {"NVTX_INJECTION64_PATH": str(library)}
    if log is not None:
        variables["SGLANG_FENCE_NVTX_LOG"] = str(log)
    if exclude is not None:
        variables["SGLANG_FENCE_NVTX_EXCLUDE"] = exclude
    return variables


def _compiler() -> list[str]:
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        return chosen
    for name in COMPILERS:
        if (path := shutil.which(name)) is not None:
            return [path]
    msg = f"no C compiler for the NVTX injection library: install one of {', '.join(COMPILERS)}, or set CC"
    raise ConfigError(msg)
