"""``constant-answer``: a class declares one read end for every mode, and its reads depend on the mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.static.answers import answers
from sglang_fence.audit.static.finding import Confidence, Finding, Severity
from sglang_fence.audit.static.modes import MODES
from sglang_fence.audit.static.reads import reads
from sglang_fence.audit.static.vocabulary import DECLARATION, EAGER, IN_GRAPH, LAYERS, OUT_GRAPH
from sglang_fence.contract import ForwardMode, SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.audit.static.reads import Read
    from sglang_fence.audit.static.world import World

_ASKED = (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY, ForwardMode.EXTEND)
"""Modes whose reads are compared: those for which a publication is ever made."""


class ConstantAnswer:
    """UNKNOWN for every mode is left alone: it is sound, and says that nobody has audited."""

    name = "constant-answer"

    def check(self, world: World, cls: ClassInfo) -> Iterator[Finding]:
        """See the module."""
        if DECLARATION not in cls.methods or cls is world.root(cls):
            return
        declared = {end for mode in MODES for end in answers(cls, mode)}
        end = next(iter(declared)) if len(declared) == 1 else None
        if end is None or end is SharedReadEnds.UNKNOWN:
            return
        seen = {mode: _seen(cls, mode) for mode in _ASKED}
        late = {mode: ends for mode, ends in seen.items() if any(one > end for one in ends)}
        if not late and len({frozenset(ends.items()) for ends in seen.values()}) == 1:
            return
        said = "; ".join(
            f"{mode.name}: " + (", ".join(_phase(one, found) for one, found in ends.items()) or "none seen")
            for mode, ends in seen.items()
        )
        judged = (
            f"later than that in {', '.join(mode.name for mode in late)}"
            if late
            else "different in each mode, none later"
        )
        yield Finding(
            rule=self.name,
            severity=Severity.ERROR if late else Severity.WARNING,
            confidence=Confidence.MEDIUM,
            path=cls.module.path,
            line=cls.methods[DECLARATION].lineno,
            class_name=cls.name,
            sentence=f"{cls.name} declares {end.name} for every mode, while the shared reads that its source shows are "
            f"{judged} ({said}).",
            mend="Declare each mode that was audited by itself, and call super() for all others.",
        )


def _seen(cls: ClassInfo, mode: ForwardMode) -> dict[SharedReadEnds, tuple[Read, ...]]:
    """Return the reads of a mode by the end that they would need."""
    layers = [hook for hook in LAYERS if hook != ("forward_extend" if mode.is_decode() else "forward_decode")]
    phases = {
        SharedReadEnds.PRE_REPLAY: (OUT_GRAPH, EAGER),
        SharedReadEnds.IN_REPLAY: IN_GRAPH,
        SharedReadEnds.POST_REPLAY: layers,
    }
    found = {
        end: tuple(read for hook in hooks if _is_own(cls, hook) for read in reads(cls, hook, mode))
        for end, hooks in phases.items()
    }
    return {end: some for end, some in found.items() if some}


def _is_own(cls: ClassInfo, hook: str) -> bool:
    """Whether a hook is defined below the contract's base: its eager default calls the others, and says nothing new."""
    found = cls.find(hook)
    return found is not None and found[0] is not cls.mro[-1]


def _phase(end: SharedReadEnds, found: tuple[Read, ...]) -> str:
    when = {
        SharedReadEnds.PRE_REPLAY: "before the replay",
        SharedReadEnds.IN_REPLAY: "in the graph",
        SharedReadEnds.POST_REPLAY: "in each layer",
    }
    return f"{when[end]} {found[0].place}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
