"""What a stream program is, once it has been read and found right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Operation = Literal["launch", "replay", "record", "wait", "wait_stream", "synchronize", "synchronize_stream", "host"]

Touches = tuple[tuple[str, tuple[int, ...]], ...]
"""Buffers by name, with rows of each."""


@dataclass(frozen=True, slots=True)
class KernelNode:
    """A kernel of a graph; times in ps."""

    kernel: str
    cost: int
    reads: Touches
    writes: Touches


@dataclass(frozen=True, slots=True)
class RecordNode:
    """The record of an external event in a graph: it binds at each replay."""

    event: str


@dataclass(frozen=True, slots=True)
class HostOp:
    """One call of the host, in the order of calls; times in ps."""

    kind: Operation
    subject: str
    """The kernel, graph, event, stream or host call that the operation names."""

    on: str
    """The stream; empty for what the host does alone."""

    host_cost: int
    """What passes on the host before."""

    cost: int
    reads: Touches
    writes: Touches


@dataclass(frozen=True, slots=True)
class Program:
    """What a host enqueues on which stream."""

    name: str
    about: str
    buffers: Mapping[str, int]
    """Buffer → rows."""

    graphs: Mapping[str, tuple[KernelNode | RecordNode, ...]]
    host: tuple[HostOp, ...]
    expect: Mapping[str, object] | None
    """The verdict that the file says is right, as in :meth:`Verdict.to_json`; only its outer shape was checked."""
