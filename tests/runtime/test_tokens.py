"""Greedy tokens equal Transformers' ``generate``, whichever way they are served, and no access is left unordered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.device.simulated.costs import CostTable
from tests.runtime.combinations import ALL, PAIRWISE, Combination
from tests.runtime.prompts import LONGEST_OUTPUT, LONGEST_PROMPT, mixed
from tests.runtime.reference import WINDOW, Reference, References
from tests.runtime.serving import Served, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.runtime.prompts import Prompt

SEED = 3
MOST_TIES = 0.01


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings that change how much has to happen, never which tokens come out."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def windowed(self) -> bool:
        return "sliding_window" in self.options

    def __str__(self) -> str:
        return self.name


# 400 tokens: the longest request, 300 + 63, just fits, and everybody else has to make room for it.
PLAIN = Variant("roomy")
WINDOWED = Variant("window", {"sliding_window": WINDOW})
VARIANTS = [
    PLAIN,
    Variant("small_pool", {"kv_tokens": 400}),
    Variant("chunked", {"chunk": 16}),
    WINDOWED,
]
EVERYTHING = Variant("all_at_once", {"kv_tokens": 400, "chunk": 16, "sliding_window": WINDOW})


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return mixed(SEED)


def reference_of(variant: Variant, references: References) -> Reference:
    return references.window if variant.windowed else references.full


def count_ties(served: Served, prompts: Sequence[Prompt], reference: Reference) -> int:
    """Return in how many requests the reference could as well have said what we said; any other difference fails."""
    ties = 0
    for request, prompt in zip(served.requests, prompts, strict=True):
        theirs = reference.answer(prompt)
        if request.output != theirs:
            assert reference.is_tie(prompt.ids, request.output, theirs), f"request {request.id}"
            ties += 1
    return ties


def check_fences(served: Served, combination: Combination) -> None:
    """Check that the fence asked for is the one that held."""
    modes = served.summary.by_mode()
    assert set(modes) == {"extend", "decode"}
    assert sum(mode.steps for mode in modes.values()) == served.steps
    if not combination.overlap:
        assert served.fences == {"absent": served.steps}
    elif combination.fence == "coarse":
        assert served.fences == {"coarse": served.steps}
        assert dict(served.summary.total().reasons) == {"forced": served.steps}
    else:
        extend, decode = modes["extend"], modes["decode"]
        assert dict(decode.fence) == {"fine": decode.steps}
        assert dict(decode.resolved) == {"POST_REPLAY" if combination.graph == "off" else "IN_REPLAY": decode.steps}
        assert dict(extend.fence) == {"fine" if combination.attention == "trtllm_mha" else "coarse": extend.steps}


def check(
    variant: Variant,
    combination: Combination,
    prompts: Sequence[Prompt],
    references: References,
    note: Callable[[str, object], None],
    costs: CostTable | None = None,
) -> None:
    served = serve(prompts, costs=costs, **combination.options(), **variant.options)
    ties = count_ties(served, prompts, reference_of(variant, references))
    note("ties", ties)
    print(f"{ties} ties in {len(prompts)} requests")  # noqa: T201 - pytest shows it with -rP, or where a test fails
    assert ties < MOST_TIES * len(prompts)
    assert not served.hazards
    check_fences(served, combination)
    # What the prompts and the variant are there for did happen.
    assert (served.retractions > 0) == ("kv_tokens" in variant.options)
    assert (served.launches["evict_swa"] > 0) == variant.windowed
    assert (served.cached_tokens > 0) == combination.prefix_cache
    if variant is PLAIN:
        assert (served.launches["rewrite_req_to_token"] > 0) == combination.prefix_cache


def test_the_prompts_are_what_they_are_meant_to_be(prompts: list[Prompt], references: References) -> None:
    lengths = [len(prompt.ids) for prompt in prompts]
    assert len(prompts) == 64
    assert (min(lengths), max(lengths)) == (1, LONGEST_PROMPT)
    assert max(prompt.params.max_new_tokens for prompt in prompts) == LONGEST_OUTPUT
    answers = [references.full.answer(prompt) for prompt in prompts]
    windowed = [references.window.answer(prompt) for prompt in prompts]
    assert {len(answer) for answer in answers} >= {LONGEST_OUTPUT}
    assert sum(one != other for one, other in zip(answers, windowed, strict=True)) > len(prompts) // 2


@pytest.mark.parametrize("combination", PAIRWISE, ids=str)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_tokens_equal_the_reference(
    variant: Variant,
    combination: Combination,
    prompts: list[Prompt],
    references: References,
    record_property: Callable[[str, object], None],
) -> None:
    check(variant, combination, prompts, references, record_property)


@pytest.mark.matrix
@pytest.mark.parametrize("combination", ALL, ids=str)
@pytest.mark.parametrize("variant", [*VARIANTS, EVERYTHING], ids=str)
def test_tokens_equal_the_reference_in_every_combination(
    variant: Variant,
    combination: Combination,
    prompts: list[Prompt],
    references: References,
    record_property: Callable[[str, object], None],
) -> None:
    check(variant, combination, prompts, references, record_property)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("variant", [PLAIN, WINDOWED, EVERYTHING], ids=str)
def test_tokens_do_not_depend_on_timing(
    variant: Variant,
    seed: int,
    prompts: list[Prompt],
    references: References,
    record_property: Callable[[str, object], None],
) -> None:
    combination = Combination(overlap=True, fence="fine", graph="full", attention="trtllm_mha", prefix_cache=True)
    check(variant, combination, prompts, references, record_property, CostTable.random(seed))


def test_a_tie_is_two_best_tokens_that_are_equally_good(references: References) -> None:
    ids = [1, 2, 3]
    theirs = references.full.greedy(ids, 8)
    worse = [*theirs[:3], (theirs[3] + 1) % 256, *theirs[4:]]
    assert not references.full.is_tie(ids, worse, theirs)
    assert not references.full.is_tie(ids, theirs[:5], theirs)
