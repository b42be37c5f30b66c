"""``FrozenStepRecord``: what a step record said at one moment. The probe reuses the record itself."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NoReturn, Self

from sglang_fence.observe.record import StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUES = (bool, int, float, str, tuple, Enum)
"""What can be kept as it is."""


def _fields() -> Iterator[str]:
    """Yield every slot of a record, so that a new one is copied as well."""
    for base in reversed(StepRecord.__mro__):
        yield from getattr(base, "__slots__", ())


FIELDS: tuple[str, ...] = tuple(_fields())


class FrozenStepRecord(StepRecord):
    """A copy of a :class:`~sglang_fence.observe.record.StepRecord` that can't be changed.

    It has the record's values, and a list of phases of its own. What is the probe's and goes on changing, such as
    ``timers``, is None. Two are equal if all their fields are.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment] # equal by value, and a list is among the values

    def __init__(self, *_: object) -> None:
        """Refuse: a record that was never filled has nothing to freeze.

        Raises:
            TypeError: always. Use :meth:`of`.
        """
        msg = "a FrozenStepRecord is made by FrozenStepRecord.of(record)"
        raise TypeError(msg)

    @classmethod
    def of(cls, record: StepRecord) -> Self:
        """Copy ``record`` as it is now."""
        frozen = cls.__new__(cls)
        for name in FIELDS:
            object.__setattr__(frozen, name, _value(getattr(record, name)))
        return frozen

    def __setattr__(self, name: str, value: object) -> NoReturn:
        msg = f"{name} of a FrozenStepRecord can't be set: it says what a step record said when it was copied"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        msg = f"{name} of a FrozenStepRecord can't be deleted: it says what a step record said when it was copied"
        raise AttributeError(msg)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenStepRecord):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in FIELDS)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in FIELDS)})"


def _value(value: object) -> object:
    if isinstance(value, list):
        return [one for one in value if isinstance(one, _VALUES)]
    return value if isinstance(value, _VALUES) else None
