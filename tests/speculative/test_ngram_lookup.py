"""NGRAM's look-up, against the plain thing in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglang_fence.speculative.ngram import _NOTHING, look_up

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH = 24
# Few tokens, so that pairs recur; what lies behind the newest token is left over from a row's former owner.
line = st.lists(st.integers(0, 3), min_size=LENGTH, max_size=LENGTH)
lines = st.lists(st.tuples(line, st.integers(0, LENGTH - 1)), min_size=1, max_size=4)


def naive(history: Sequence[int], newest: int, drafts: int) -> list[int]:
    """Look for the newest two tokens, from behind; what followed them, as far as it is known, is drafted."""
    known = history[: newest + 1]
    for at in range(newest - 1, 0, -1):
        if known[at - 1 : at + 1] == known[newest - 1 :]:
            follow = list(known[at + 1 : at + 1 + drafts])
            return follow + [_NOTHING] * (drafts - len(follow))
    return [_NOTHING] * drafts


@settings(deadline=None)
@given(lines, st.integers(1, 6))
@example([([1, 2, 3, 1, 2, *[0] * 19], 4)], 3)
@example([([2, 2, 2, *[1] * 21], 2)], 2)
@example([([1, *[2] * 23], 0)], 4)
@example([([3, 3, *[3] * 22], 1)], 4)
def test_it_drafts_what_followed_the_newest_two_tokens_last_time(
    histories: list[tuple[list[int], int]],
    drafts: int,
) -> None:
    history = torch.tensor([tokens for tokens, _ in histories])
    newest = torch.tensor([at for _, at in histories])
    assert look_up(history, newest, drafts).tolist() == [naive(tokens, at, drafts) for tokens, at in histories]


def test_some_are_found() -> None:
    assert look_up(torch.tensor([[5, 6, 7, 8, 5, 6]]), torch.tensor([5]), 3).tolist() == [[7, 8, 5]]
