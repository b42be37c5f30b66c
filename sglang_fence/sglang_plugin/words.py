"""SGLang's words in ours: forward modes and read ends, by name. Looked up once a member: an enum's name is slow."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Protocol

from sglang_fence.contract import ForwardMode, SharedReadEnds


class Named(Hashable, Protocol):
    """A member of an enum of SGLang."""

    @property
    def name(self) -> str:
        """Its name."""


_MODES = {
    "EXTEND": ForwardMode.EXTEND,
    "DECODE": ForwardMode.DECODE,
    "MIXED": ForwardMode.MIXED,
    "IDLE": ForwardMode.IDLE,
    "TARGET_VERIFY": ForwardMode.TARGET_VERIFY,
    "DRAFT_EXTEND": ForwardMode.DRAFT_EXTEND,
    "DRAFT_EXTEND_V2": ForwardMode.DRAFT_EXTEND,
    "PREBUILT": ForwardMode.IDLE,  # keys and values came from a prefill server: nothing is computed
    "SPLIT_PREFILL": ForwardMode.EXTEND,
    "DLLM_EXTEND": ForwardMode.EXTEND,
}


@cache
def forward_mode(mode: Named) -> ForwardMode:
    """Return our word for a forward mode of SGLang.

    Raises:
        KeyError: it is new to us.
    """
    return _MODES[mode.name]


_ENDS = {ends.name: ends for ends in SharedReadEnds}


@cache
def read_ends(ends: Named) -> SharedReadEnds:
    """Return our word for a read end of SGLang.

    Raises:
        KeyError: it is new to us.
    """
    return _ENDS[ends.name]
