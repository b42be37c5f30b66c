"""What is audited: a backend, an algorithm and a kind of graph make a case; its phases make claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.registry import LEAVES, parse_spec
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.runners.graph_runner import GRAPH_KINDS
from sglang_fence.speculative.algorithm import built_in_algorithms

if TYPE_CHECKING:
    from collections.abc import Sequence

CANDIDATES = (SharedReadEnds.PRE_REPLAY, SharedReadEnds.IN_REPLAY, SharedReadEnds.POST_REPLAY)
"""Ends that can be put to the test, the earliest first."""


@dataclass(frozen=True, slots=True)
class Case:
    """One engine to audit."""

    attention: str = "native"
    speculative: str = "none"
    graph: str = "full"

    def __str__(self) -> str:
        """As options of the command line name it."""
        return f"{self.attention} × {self.speculative} × {self.graph}"

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {"attention": self.attention, "speculative": self.speculative, "graph": self.graph}


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """What a declaration is about.

    ``phase``: the forwards of one mode, by one backend: *where* their own reads end. ``step``: a whole step behind the
    fence that the barrier would take for it: *who* reads last (R3), and where.
    """

    scope: str
    """``phase`` or ``step``."""
    role: str
    """``target`` or ``draft``; for a step the role of the runner whose publication is taken, empty if none was."""
    backend: str
    mode: ForwardMode

    def __str__(self) -> str:
        """For tables."""
        return f"{self.mode} step" if self.scope == "step" else f"{self.role} {self.mode} ({self.backend})"

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` has it."""
        return {"scope": self.scope, "role": self.role, "backend": self.backend, "mode": self.mode.value}


def select(attention: Sequence[str], speculative: Sequence[str], graph: Sequence[str]) -> list[Case]:
    """Combine options into cases; ``all`` stands for every one. What can't be served together is left out of ``all``.

    Raises:
        ConfigError: a backend, an algorithm or a kind of graph that there isn't.
    """
    attentions = _spelled(attention, (*LEAVES, *WRAPPED))
    algorithms = _spelled(speculative, built_in_algorithms().names)
    graphs = _spelled(graph, GRAPH_KINDS)
    for one in attentions:
        parse_spec(one)
    for one in algorithms:
        built_in_algorithms().get(one)
    whole = "all" in attention or "all" in speculative
    cases = [Case(one, other, kind) for one in attentions for other in algorithms for kind in graphs]
    # A recurrent state takes no token back: see the registry. Asked for by name, it is the engine's to refuse.
    return [
        case for case in cases if not (whole and case.speculative != "none" and parse_spec(case.attention).keeps_state)
    ]


def _spelled(asked: Sequence[str], known: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(one for name in asked for one in (known if name == "all" else (name,))))
