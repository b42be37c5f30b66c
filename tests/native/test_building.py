"""Compiled parts: built in place and into a wheel where there is a compiler, done without where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import pytest

from sglang_fence import native
from sglang_fence.environ import FENCE_NATIVE
from sglang_fence.native import build
from sglang_fence.native.sources import digest, sources

ROOT = Path(__file__).resolve().parents[2]
NAMES = [source.stem for source in sources()]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Compile all; skip where that can't be done."""
    try:
        build.compiler()
    except build.NotCompiledError as error:
        pytest.skip(f"nothing can be compiled here: {error}")
    return build.build(tmp_path_factory.mktemp("native"))


def run(*arguments: str | Path, path: str | None = None, home: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(home), *sys.path])}
    if path is not None:
        environ["PATH"] = path
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environ, cwd=home, timeout=120
    )


def test_each_source_becomes_a_module_that_says_what_it_is_of(modules: list[Path]) -> None:
    assert native.MOMENTS in NAMES
    assert [module.name for module in modules] == [f"{name}{build.SUFFIX}" for name in NAMES]
    assert build.SUFFIX in EXTENSION_SUFFIXES
    for module, source in zip(modules, sources(), strict=True):
        name = source.stem
        program = (
            "import importlib.util; "
            f"s = importlib.util.spec_from_file_location({name!r}, {str(module)!r}); "
            "m = importlib.util.module_from_spec(s); s.loader.exec_module(m); print(m.SOURCE)"
        )
        said = run("-c", program)
        assert said.returncode == 0, said.stderr
        assert said.stdout.strip() == digest(source)


def test_each_source_has_its_stub() -> None:
    assert all(source.with_suffix(".pyi").is_file() for source in sources())


def test_a_source_that_cannot_be_compiled_is_named_in_one_line(
    tmp_path: Path, modules: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert modules
    bad = tmp_path / "_bad.c"
    bad.write_text("int broken(void) { return nothing_known; }\n", encoding="utf-8")
    monkeypatch.setattr(build, "sources", lambda: [bad])
    with pytest.raises(build.NotCompiledError, match=r"can't compile _bad\.c: .*nothing_known"):
        build.build(tmp_path)
    assert not list(tmp_path.glob("*.so"))


def test_without_a_compiler_the_command_says_so_and_fails(tmp_path: Path) -> None:
    done = run("-m", "sglang_fence.native.build", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["not compiled: no C compiler (cc, gcc or clang)"]


def test_the_switch_leaves_them_alone() -> None:
    for word in ("0", "off"):
        assert native.part(native.MOMENTS, {FENCE_NATIVE.name: word}) == native.Part(
            native.MOMENTS, usable=False, why="switched off by SGLANG_FENCE_NATIVE"
        )
    assert native.summary({FENCE_NATIVE.name: "0"}) == "none (switched off by SGLANG_FENCE_NATIVE)"
    assert native.part(native.MOMENTS, {FENCE_NATIVE.name: "perhaps"}) == native.part(native.MOMENTS, {})


def test_what_is_not_there_is_not_compiled() -> None:
    assert native.part("_nothing", {}) == native.Part("_nothing", usable=False, why="not compiled")


def test_one_that_was_compiled_from_another_source_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.part(native.MOMENTS, {}).usable:
        pytest.skip("it isn't compiled here")
    monkeypatch.setattr(native, "digest", lambda _: "another")
    found = native.part(native.MOMENTS, {})
    assert not found.usable
    assert found.why == "compiled from another source: run python -m sglang_fence.native.build"
    assert "compiled from another source" in native.summary({})


@pytest.mark.parametrize(
    ("symbols", "tag"),
    [
        (["GLIBC_2.2.5"], "manylinux_2_17_x86_64"),
        (["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.17"], "manylinux_2_34_x86_64"),
        (["GLIBC_2.4", "GLIBC_2.9"], "manylinux_2_17_x86_64"),
        (["GLIBC_PRIVATE"], "linux_x86_64"),
        ([], "linux_x86_64"),
    ],
)
def test_a_wheel_is_for_the_c_libraries_that_its_modules_run_with(
    tmp_path: Path, symbols: list[str], tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-x86_64")
    modules = [tmp_path / f"{place}.so" for place in range(max(1, len(symbols)))]
    for place, module in enumerate(modules):
        module.write_bytes(b"\x7fELF\0" + b"".join(one.encode() + b"\0" for one in symbols[place : place + 1]))
    assert build.platform_tag(modules) == tag


def test_compiled_parts_need_the_c_library_alone(modules: list[Path]) -> None:
    reader = shutil.which("readelf")
    if reader is None:
        pytest.skip("readelf isn't installed")
    for module in modules:
        said = subprocess.run([reader, "-d", module], capture_output=True, text=True, check=True).stdout
        needed = [line.partition("[")[2].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]
        assert set(needed) <= {"libc.so.6", "libdl.so.2"}, module


def wheel(folder: Path, path: str | None = None) -> tuple[Path, str]:
    """Build the project's wheel; return it, and what was said."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds wheels, isn't installed")
    done = run("-c", f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})", path=path)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built, done.stdout + done.stderr


def test_a_wheel_has_them_and_says_for_which_pythons(tmp_path: Path, modules: list[Path]) -> None:
    built, _ = wheel(tmp_path)
    assert built.stem.endswith(f"-cp311-abi3-{build.platform_tag(modules)}")
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    inside = [name for name in names if name.endswith(".so")]
    assert inside == [f"sglang_fence/native/{module.name}" for module in modules]
    assert not [name for name in names if "hatch_build" in name]
    said = run("-c", "from sglang_fence import native; print(native.summary())", home=tmp_path / "installed")
    assert said.stdout.strip() == ", ".join(name.strip("_") for name in NAMES), said.stderr


def test_without_a_compiler_a_wheel_is_pure_and_says_so_in_one_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    built, said = wheel(tmp_path, path=str(empty))
    assert built.stem.endswith("-py3-none-any")
    with zipfile.ZipFile(built) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
    assert said.splitlines() == ["without compiled parts, and all works without them: no C compiler (cc, gcc or clang)"]


IN_ANOTHER_INTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
    one, run = interpreters.create(isolated=False), interpreters.run_string
else:
    one, run = interpreters.create("legacy"), interpreters.exec
from sglang_fence import native
print(native.part(native.QUICK).why, flush=True)
run(one, f"import sys; sys.path[:] = {sys.path}")
run(one, "from sglang_fence import native; print(native.part(native.QUICK).why, flush=True)")
run(one, "from sglang_fence.observe.numbers import Counted; print(Counted.__name__, flush=True)")
"""


@pytest.mark.skipif(not native.part(native.QUICK).usable, reason=native.part(native.QUICK).why)
def test_what_is_told_by_its_address_is_of_one_interpreter() -> None:
    """A type that two interpreters share would be changed by both."""
    said = run("-c", IN_ANOTHER_INTERPRETER)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == [
        "compiled",
        "can't be loaded: _quick is for the main interpreter",
        "PlainCounted",
    ]
