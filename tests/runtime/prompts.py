"""Sets of prompts, the same each time, that bring the runtime into the situations that tests are about."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from sglang_fence.engine.requests import SamplingParams
from sglang_fence.models.tokenizer import ByteTokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.runtime.reference import Reference

BYTES = 256
LONGEST_PROMPT = 300
LONGEST_OUTPUT = 64


class Prompt(NamedTuple):
    """What is asked for."""

    ids: list[int]
    params: SamplingParams


def source(seed: int) -> random.Random:
    """Variety that is the same each time."""
    return random.Random(seed)  # noqa: S311 - no secret


def tokens(rng: random.Random, count: int) -> list[int]:
    """``count`` random bytes."""
    return [rng.randrange(BYTES) for _ in range(count)]


def greedy(ids: Sequence[int], max_new_tokens: int) -> Prompt:
    """A greedy prompt without stop texts."""
    return Prompt(list(ids), SamplingParams(max_new_tokens=max_new_tokens))


def mixed(seed: int, count: int = 64) -> list[Prompt]:
    """Prompts of 1 to 300 tokens, up to 64 new ones; both extremes occur.

    Every second prompt has an opening in common with others. Every fourth is its predecessor once more, with at least
    a page: both are prefilled before either is cached, so that caching the second rewrites a row that is in use.
    """
    rng = source(seed)
    openings = [tokens(rng, length) for length in (40, 100, 180)]
    prompts: list[Prompt] = []
    for index in range(count):
        length = {0: 1, 1: LONGEST_PROMPT}.get(index, rng.randint(1, LONGEST_PROMPT))
        ids = tokens(rng, length)
        if index % 2:
            ids = (rng.choice(openings) + ids)[:length]
        if index % 4 == 2:
            ids = (ids + tokens(rng, 20))[:LONGEST_PROMPT]
        if index % 4 == 3:
            ids = list(prompts[-1].ids)
        new = LONGEST_OUTPUT if index < 4 else rng.randint(1, LONGEST_OUTPUT)
        prompts.append(greedy(ids, new))
    return prompts


def handing_over(seed: int, reference: Reference, pairs: int = 12) -> list[Prompt]:
    """Short prompts that a stop text ends at once, each followed by a long one with a cached beginning.

    A stop is seen when the next step is in flight already, with a line for the dead request. Its row goes to the long
    prompt, whose cached pages are written into it. A forward that reads the row too late takes them for its own, and
    writes the dead request's keys and values into them.
    """
    rng = source(seed)
    opening = tokens(rng, 224)
    prompts = [greedy([*opening, 7], 2)]
    for _ in range(pairs):
        short = tokens(rng, rng.randint(1, 20))
        text = ByteTokenizer().decode(reference.greedy(short, 30))
        stop = text[rng.randint(2, 8)]
        prompts.append(Prompt(short, SamplingParams(max_new_tokens=30, stop=(stop,))))
        prompts.append(greedy(opening + tokens(rng, rng.randint(1, 30)), 16))
    return prompts


def sliding(seed: int, count: int = 16) -> list[Prompt]:
    """Prompts that generate far beyond a window of 32, so that pages leave it in many of the steps."""
    rng = source(seed)
    return [greedy(tokens(rng, rng.randint(20, 60)), LONGEST_OUTPUT) for _ in range(count)]
