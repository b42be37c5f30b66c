"""``Request``: one prompt on its way through the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sglang_fence.memory.prefix_cache import Path


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a request's tokens are chosen, and when they end."""

    max_new_tokens: int = 32
    temperature: float = 0.0
    """0: greedy."""
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    """Texts that end the output; they are cut off its text, not off its tokens."""

    @property
    def greedy(self) -> bool:
        """Whether the best token is taken, always."""
        return self.temperature == 0.0


@dataclass(slots=True, eq=False)
class Request:
    """State of one request. ``kv_len`` counts what has been launched, ``output`` what the host has seen."""

    id: str | int
    prompt: list[int]
    params: SamplingParams
    max_new_tokens: int = 0
    """What may still be generated, cut to the context."""

    traceparent: str | None = None
    """W3C trace context of whoever sent it; traces of its steps are linked to it."""

    output: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str | None = None
    """``stop`` (an end token or a stop text), ``length``, ``error``, or None while it runs."""
    error: str | None = None

    row: int = 0
    """Its row of ``req_to_token`` while it runs; 0 otherwise."""
    pages: list[int] = field(default_factory=list)
    path: Path = field(default_factory=Path)
    """What it holds of the prefix cache: the first ``len(path.nodes)`` of its pages belong to the cache."""
    fill: list[int] = field(default_factory=list)
    """Tokens whose prefill makes it run: the prompt, after a retraction the output so far too."""
    kv_len: int = 0
    """Positions whose keys and values are computed, or launched; with speculation the fewest that can be."""
    kv_most: int = 0
    """The most that can be: a speculative round in flight may have accepted all its drafts."""
    pointed: int = 0
    """Positions that its row points to pages."""
    in_flight: int = 0
    """Launched tokens whose results the host hasn't seen."""
    window_passed: int = 0
    """Pages that have left its sliding window."""
    epoch: int = 0
    """How often it was retracted: results of an older epoch must not touch its memory."""

    @property
    def finished(self) -> bool:
        """Whether its output is complete."""
        return self.finish_reason is not None

    @property
    def filled(self) -> bool:
        """Whether its prefill is launched whole."""
        return self.kv_len >= len(self.fill)

    @property
    def wants_decode(self) -> bool:
        """Whether one more token may be launched for it."""
        return not self.finished and len(self.output) + self.in_flight < self.max_new_tokens

    def fail(self, message: str) -> None:
        """End it alone, with an error of its own."""
        self.finish_reason = "error"
        self.error = message

    def to_json(self) -> dict[str, Any]:
        """A line of the output file."""
        line: dict[str, Any] = {
            "id": self.id,
            "prompt_tokens": len(self.prompt),
            "output_ids": self.output,
            "text": self.text,
            "finish_reason": self.finish_reason,
        }
        if self.error is not None:
            line["error"] = self.error
        return line
