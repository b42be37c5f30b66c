"""A CUDA driver for tests, built from C: it logs the calls, and what it answers is said beforehand."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).with_name("fake_libcuda.c")
ENTRIES = {"r": "record", "w": "wait", "e": "elapsed"}


class Call(NamedTuple):
    """A call of the driver: what it was, and its first two handles."""

    name: str
    first: int
    second: int


class FakeDriver:
    """One library, loaded by its path. Handles are numbers below 4096."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path))
        self._library.fake_reach.argtypes = [ctypes.c_ulong, ctypes.c_float]
        self._library.fake_fail.argtypes = [ctypes.c_char, ctypes.c_int, ctypes.c_int]
        self._library.fake_call.restype = ctypes.c_char
        self.reset()

    def reset(self) -> None:
        """Forget calls, moments and failures."""
        self._library.fake_reset()

    def reach(self, event: int, us: float) -> None:
        """Let an event be reached at a moment."""
        self._library.fake_reach(event, us / 1e3)

    def fail(self, entry: str, status: int, *, after: int = 0) -> None:
        """Let calls of ``record``, ``wait`` or ``elapsed`` fail from the one after ``after`` good ones on."""
        letter = next(letter for letter, name in ENTRIES.items() if name == entry)
        self._library.fake_fail(letter.encode(), status, after)

    def capture(self, stream: int) -> None:
        """Let a stream capture; 0: none."""
        self._library.fake_capture(ctypes.c_void_p(stream))

    @property
    def calls(self) -> list[Call]:
        """All calls so far."""
        found: list[Call] = []
        first, second = ctypes.c_ulong(), ctypes.c_ulong()
        for place in range(self._library.fake_count()):
            letter: bytes = self._library.fake_call(place, ctypes.byref(first), ctypes.byref(second))
            found.append(Call(ENTRIES[letter.decode()], first.value, second.value))
        return found


def build_fake_driver(folder: Path) -> FakeDriver:
    """Compile it into ``folder``; skip the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the driver of these tests")
    library = folder / "libfakecuda.so"
    subprocess.run([compiler, "-std=c11", "-Wall", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return FakeDriver(library)
