"""``pre-replay-reads``: a mode is declared PRE_REPLAY, and what is captured in its graph reads a shared buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.static.answers import answers
from sglang_fence.audit.static.finding import Confidence, Finding, Severity
from sglang_fence.audit.static.modes import MODES
from sglang_fence.audit.static.reads import reads
from sglang_fence.audit.static.vocabulary import DECLARATION, IN_GRAPH
from sglang_fence.contract import SharedReadEnds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.audit.static.classes import ClassInfo
    from sglang_fence.audit.static.world import World


class PreReplayReads:
    """Branches that the mode rules out are left out; a branch whose condition isn't known counts as taken."""

    name = "pre-replay-reads"

    def check(self, world: World, cls: ClassInfo) -> Iterator[Finding]:
        """See the module. A base without an override here or there is reported in its own place."""
        relevant = {DECLARATION, *IN_GRAPH}
        if cls is world.root(cls) or not relevant & set(cls.methods):
            return
        for mode in MODES:
            declared = answers(cls, mode)
            if SharedReadEnds.PRE_REPLAY not in declared:
                continue
            for hook in IN_GRAPH:
                found = reads(cls, hook, mode)
                if not found:
                    continue
                owner, method = cls.find(DECLARATION) or (cls, cls.node)
                yield Finding(
                    rule=self.name,
                    severity=Severity.ERROR,
                    confidence=Confidence.HIGH if len(declared) == 1 else Confidence.MEDIUM,
                    path=cls.module.path,
                    line=method.lineno if owner is cls else cls.node.lineno,
                    class_name=cls.name,
                    sentence=f"{cls.name} declares PRE_REPLAY for {mode.name}, but {hook}, which is replayed with the "
                    f"graph, reads {'; '.join(read.place for read in found)}: after the event, so the schedule stream "
                    "may have rewritten it.",
                    mend=f"Read it in init_forward_metadata_out_graph, or declare IN_REPLAY for {mode.name}.",
                )
