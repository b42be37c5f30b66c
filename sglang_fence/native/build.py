"""Compiles the C sources of this folder, each into one extension module.

    python -m sglang_fence.native.build

builds them in place, in a source tree; the build of a wheel calls :func:`build`. They keep to the limited API of Python
3.11, so that one build serves every later version, and need a C compiler and Python's headers, no more.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from sglang_fence.native.sources import HERE, digest, sources

if TYPE_CHECKING:
    from collections.abc import Iterable

SUFFIX = ".abi3.so"
TAG = "cp311-abi3"
"""Of a wheel that contains them, less the platform."""

_FLAGS = (
    "-std=c11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-DPy_LIMITED_API=0x030B0000",
)
_COMPILE_SECONDS = 120


class NotCompiledError(Exception):
    """A part can't be compiled here; the text says why, in a line. All works without it."""


_GLIBC = re.compile(rb"\bGLIBC_2\.(\d+)\b")
_OLDEST_GLIBC = 17
"""Of those that have a tag: 2.17."""


def platform_tag(modules: Iterable[Path]) -> str:
    """Return the platform of a wheel with these modules, as its tag has it.

    They need the C library and nothing else, and name the version of each of its functions that they call. So the
    newest of these is the oldest C library that they run with, as PEP 600 has it: manylinux_2_34_x86_64, say.
    """
    linux = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    versions = [int(found) for module in modules for found in _GLIBC.findall(module.read_bytes())]
    if not versions:  # another C library
        return linux
    return f"manylinux_2_{max(_OLDEST_GLIBC, *versions)}_{linux.removeprefix('linux_')}"


def compiler() -> list[str]:
    """Return the command of the C compiler that Python itself was compiled with, or else of another one.

    Raises:
        NotCompiledError: there is none, or there are no headers, or Python has another ABI.
    """
    if sys.platform != "linux":
        msg = "the compiled parts are for Linux"
        raise NotCompiledError(msg)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        msg = "this Python has no GIL, and no stable ABI"
        raise NotCompiledError(msg)
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        msg = f"no Python.h in {headers} (Debian has it in the package python3-dev)"
        raise NotCompiledError(msg)
    own = shlex.split(sysconfig.get_config_var("CC") or "")[:1]
    for name in (*own, "cc", "gcc", "clang"):
        if (path := shutil.which(name)) is not None:
            return [path, f"-I{headers}"]
    msg = "no C compiler (cc, gcc or clang)"
    raise NotCompiledError(msg)


def build(target: Path) -> list[Path]:
    """Compile every source into the folder ``target``; return the modules.

    Raises:
        NotCompiledError: one of them can't be compiled.
    """
    command = compiler()
    return [_compile(command, source, target / (source.stem + SUFFIX)) for source in sources()]


def _compile(command: list[str], source: Path, module: Path) -> Path:
    # To another name first: a module that a running process has loaded is replaced, never written over.
    fresh = module.with_name(f".{module.name}.new")
    arguments = [*command, *_FLAGS, f'-DSOURCE="{digest(source)}"', "-o", str(fresh), str(source), "-ldl"]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)  # noqa: S603 - Python's own compiler, on our own source
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"{command[0]} didn't run: {error}"
        raise NotCompiledError(msg) from error
    if done.returncode != 0:
        lines = done.stderr.splitlines()
        said = next((line for line in lines if "error" in line), lines[0] if lines else f"status {done.returncode}")
        msg = f"{command[0]} can't compile {source.name}: {said}"
        raise NotCompiledError(msg)
    fresh.replace(module)
    return module


def main() -> int:
    """Build in place. Returns the exit status: 1 where nothing can be compiled."""
    try:
        modules = build(HERE)
    except NotCompiledError as error:
        print(f"not compiled: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    for module in modules:
        print(f"compiled {module.name}")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
