"""How requests end: an end token, a stop text, enough tokens, the end of the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.engine.requests import SamplingParams
from sglang_fence.models.loading import EMBEDDED_CONTEXT
from sglang_fence.models.tokenizer import EOS, ByteTokenizer
from tests.runtime.commandline import CommandLine, write_prompts
from tests.runtime.prompts import Prompt, greedy, source, tokens
from tests.runtime.serving import serve

if TYPE_CHECKING:
    from tests.runtime.reference import Reference, References

LONG = 48


@pytest.fixture(scope="module")
def ending(references: References) -> list[int]:
    """Return a prompt to which the model answers with a few tokens and the end token."""
    rng = source(1)
    candidates = (tokens(rng, rng.randint(1, 40)) for _ in range(200))
    return next(ids for ids in candidates if 2 < len(references.full.greedy(ids, LONG)) < LONG)


def decoded(ids: list[int]) -> str:
    return ByteTokenizer().decode(ids)


@pytest.mark.parametrize("overlap", [True, False])
def test_an_end_token_ends_a_request(ending: list[int], references: References, *, overlap: bool) -> None:
    expected = references.full.greedy(ending, LONG)
    assert expected[-1] == EOS
    neighbours = [greedy([one, 2, 3], LONG) for one in range(3)]
    served = serve([greedy(ending, LONG), *neighbours], overlap=overlap)
    request = served.requests[0]
    assert request.output == expected
    assert request.finish_reason == "stop"
    assert request.text == decoded(expected)
    assert served.outputs[1:] == [references.full.answer(one) for one in neighbours]


def test_an_end_token_as_the_last_one_allowed_is_a_stop(ending: list[int], references: References) -> None:
    expected = references.full.greedy(ending, LONG)
    (request,) = serve([greedy(ending, len(expected))]).requests
    assert (request.output, request.finish_reason) == (expected, "stop")


def test_enough_tokens_end_a_request(ending: list[int], references: References) -> None:
    expected = references.full.greedy(ending, LONG)[:-1]
    (request,) = serve([greedy(ending, len(expected))]).requests
    assert (request.output, request.finish_reason) == (expected, "length")


def test_one_token_is_a_prefill_and_no_decode(references: References) -> None:
    served = serve([greedy([5, 6, 7], 1)])
    assert served.outputs == [references.full.greedy([5, 6, 7], 1)]
    assert set(served.summary.by_mode()) == {"extend"}


def wordy(reference: Reference) -> list[int]:
    """Return a prompt whose answer starts with six different characters, each a token."""
    rng = source(9)
    candidates = (tokens(rng, 12) for _ in range(400))
    return next(ids for ids in candidates if len(set(decoded(reference.greedy(ids, 20))[:6]) - {"\ufffd"}) == 6)


@pytest.mark.parametrize("first", [0, 2, 4])
@pytest.mark.parametrize("length", [1, 2])
def test_a_stop_text_cuts_the_text(first: int, length: int, references: References) -> None:
    ids = wordy(references.full)
    whole = references.full.greedy(ids, 20)
    stop = decoded(whole)[first : first + length]
    prompt = Prompt(ids, SamplingParams(max_new_tokens=20, stop=("never there", stop)))
    (request,) = serve([prompt]).requests
    assert request.text == decoded(whole)[:first]
    assert request.finish_reason == "stop"
    assert request.output == references.full.answer(prompt)
    assert decoded(request.output) == request.text + stop


def test_of_two_stop_texts_the_earlier_one_cuts(references: References) -> None:
    ids = wordy(references.full)
    text = decoded(references.full.greedy(ids, 20))
    # The longer one begins earlier, and is complete in the same moment.
    (request,) = serve([Prompt(ids, SamplingParams(max_new_tokens=20, stop=(text[4], text[2:5])))]).requests
    assert (request.text, request.finish_reason) == (text[:2], "stop")


def test_a_stop_text_of_the_command_line_holds_for_every_prompt(cli: CommandLine, references: References) -> None:
    ids = wordy(references.full)
    text = decoded(references.full.greedy(ids, 20))
    own = {"input_ids": ids, "stop": text[1]}
    path = write_prompts(cli.folder / "prompts.jsonl", [{"input_ids": ids}, own])
    ran = cli.run("--prompts", path, "--max-new-tokens", 20, "--stop", "never there", "--stop", text[3])
    assert [(line["text"], line["finish_reason"]) for line in ran.lines] == [(text[:3], "stop"), (text[:1], "stop")]


@pytest.mark.parametrize(("prompt", "context"), [(50, 64), (63, 64), (500, None)])
def test_the_context_cuts_a_request(prompt: int, context: int | None, cli: CommandLine, references: References) -> None:
    ids = tokens(source(4), prompt)
    path = write_prompts(cli.folder / "prompts.jsonl", [greedy(ids, 64)])
    ran = cli.run("--prompts", path, *([] if context is None else ["--context-length", context]))
    left = (context or EMBEDDED_CONTEXT) - prompt
    assert ran.outputs == [references.full.greedy(ids, left)]
    assert (len(ran.outputs[0]), ran.lines[0]["finish_reason"]) == (left, "length")
