"""``Fields``: one object of a JSON file, read strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sglang_fence.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class Fields:
    """Gives each value as what it has to be.

    Args:
        where: what to call the object in an error, the file first.
        value: it.

    Raises:
        DumpError: here and in each method: it isn't an object, or a value is missing, or isn't what it has to be.
    """

    def __init__(self, where: str, value: object) -> None:
        self._where = where
        if not isinstance(value, dict):
            msg = f"{where}: not an object but {type(value).__name__}; use a dump as it was written"
            raise DumpError(msg)
        self._values: dict[str, object] = value

    def text(self, key: str) -> str:
        """Return a text."""
        value = self._get(key)
        if not isinstance(value, str):
            raise self._refused(key, value, "a text")
        return value

    def maybe_text(self, key: str) -> str | None:
        """Return a text, or None."""
        return None if self._get(key) is None else self.text(key)

    def number(self, key: str) -> int:
        """Return a whole number."""
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._refused(key, value, "a whole number")
        return value

    def maybe_number(self, key: str) -> int | None:
        """Return a whole number, or None."""
        return None if self._get(key) is None else self.number(key)

    def truth(self, key: str) -> bool:
        """Return true or false."""
        value = self._get(key)
        if not isinstance(value, bool):
            raise self._refused(key, value, "true or false")
        return value

    def one_of(self, key: str, words: Mapping[str, T]) -> T:
        """Return what a text stands for."""
        value = self.text(key)
        if value not in words:
            raise self._refused(key, value, "one of " + ", ".join(words))
        return words[value]

    def maybe_one_of(self, key: str, words: Mapping[str, T]) -> T | None:
        """Return what a text stands for, or None."""
        return None if self._get(key) is None else self.one_of(key, words)

    def nested(self, key: str) -> Fields:
        """Return an object inside of this one."""
        return Fields(f"{self._where}: {key}", self._get(key))

    def objects(self, key: str) -> list[Fields]:
        """Return the objects of an array."""
        return [Fields(f"{self._where}: {key}[{place}]", value) for place, value in enumerate(self._list(key))]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the texts of an array."""
        found = self._list(key)
        if any(not isinstance(value, str) for value in found):
            raise self._refused(key, found, "an array of texts")
        return tuple(str(value) for value in found)

    def _list(self, key: str) -> list[object]:
        value = self._get(key)
        if not isinstance(value, list):
            raise self._refused(key, value, "an array")
        return value

    def _get(self, key: str) -> object:
        if key not in self._values:
            msg = f"{self._where}: {key} is missing; the dump is damaged, use the file as it was written"
            raise DumpError(msg)
        return self._values[key]

    def _refused(self, key: str, value: object, wanted: str) -> DumpError:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        return DumpError(f"{self._where}: {key} is {shown}, not {wanted}; use a dump as it was written")


_SHOWN = 60
