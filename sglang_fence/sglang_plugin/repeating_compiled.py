"""The compiled :class:`~sglang_fence.sglang_plugin.repeating.Repeating`, where it was built; its rows as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sglang_fence import native
from sglang_fence.observe.quick_rows import RowKeeper
from sglang_fence.sglang_plugin.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from sglang_fence.observe.record import StepRecord


def make_repeating(cost_ns: MutableMapping[str, int], clock_ns: int) -> Repeating:
    """Return the compiled one, or the one in Python where that isn't there: they do the same."""
    compiled = compiled_class()
    return Repeating(cost_ns, clock_ns) if compiled is None else compiled(cost_ns, clock_ns)


def compiled_class() -> type[Repeating] | None:
    """Return the compiled class; None where it wasn't built, or is switched off."""
    if not native.part(native.QUICK).usable:
        return None
    from sglang_fence.native import _quick  # noqa: PLC0415 - it isn't there on every machine

    class Compiled(_quick.Repeating):
        """As :class:`Repeating`."""

        compiled = True

        @property
        def rows(self) -> tuple[StepRecord, ...]:
            """See :class:`Repeating`."""
            return RowKeeper(self).rows

        @property
        def row(self) -> StepRecord | None:
            """See :class:`Repeating`."""
            return RowKeeper(self).row

    return cast("type[Repeating]", Compiled)
