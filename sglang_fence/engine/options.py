"""``EngineOptions``: everything that a run may set, checked as far as it can be without a model."""

from __future__ import annotations

from dataclasses import dataclass, field

from sglang_fence.environ import Switches
from sglang_fence.errors import ConfigError
from sglang_fence.models.loading import ModelOptions
from sglang_fence.runners.graph_runner import GRAPH_KINDS

FENCES = ("fine", "coarse", "off")

PAGE_SIZE = 16

DRAFT_TOKENS = 3
"""Drafts a round, where nobody says how many."""


def check_pdmux(*, overlap: bool, algorithm: str | None = None) -> None:
    """Check what PD multiplexing asks of the other options.

    Args:
        overlap: whether the next step is prepared while the last one runs.
        algorithm: of speculation; None: none.

    Raises:
        ConfigError: it can't be had together with them.
    """
    if not overlap:
        msg = "--pdmux --no-overlap: two steps at once can't wait for each other's results; leave one of them out"
        raise ConfigError(msg)
    if algorithm is not None and algorithm != "none":
        msg = f"--pdmux --speculative {algorithm}: PD multiplexing serves without speculation; leave one of them out"
        raise ConfigError(msg)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one engine. Sizes are in tokens."""

    model: ModelOptions = field(default_factory=ModelOptions)
    attention: str = "native"
    fence: str | None = None
    """``fine``, ``coarse`` or ``off``; None leaves it to the environment (R11)."""
    overlap: bool = True
    pdmux: bool = False
    """Whether prefill and decode run at once, on streams of their own."""
    graph: str = "full"
    max_running: int = 16
    kv_tokens: int | None = None
    """KV pool; None: enough for ``max_running`` requests of the longest kind."""
    chunk: int = 512
    """Tokens an extend computes at the most."""
    prefix_cache: bool = True
    speculative: str = "none"
    draft_tokens: int = DRAFT_TOKENS
    """Drafts a round."""
    draft_model: str | None = None
    """STANDALONE's draft: a directory, a hub name; None: the target itself."""
    page_size: int = PAGE_SIZE
    switches: Switches = field(default_factory=Switches)

    def __post_init__(self) -> None:
        if self.pdmux:
            check_pdmux(overlap=self.overlap, algorithm=self.speculative)
        for name, value, known in (("--fence", self.fence or "fine", FENCES), ("--graph", self.graph, GRAPH_KINDS)):
            if value not in known:
                msg = f"{name} {value}: known are {', '.join(known)}"
                raise ConfigError(msg)
        if self.draft_model is not None and self.speculative != "standalone":
            msg = f"--draft-model {self.draft_model}: only --speculative standalone drafts with a model of its own"
            raise ConfigError(msg)
        for name, size in (
            ("--max-running", self.max_running),
            ("--chunk", self.chunk),
            ("--draft-tokens", self.draft_tokens),
        ):
            if size < 1:
                msg = f"{name} {size}: give 1 or more"
                raise ConfigError(msg)
        if self.kv_tokens is not None and self.kv_tokens < self.page_size:
            msg = f"--kv-tokens {self.kv_tokens}: a KV pool holds at least one page, {self.page_size} tokens"
            raise ConfigError(msg)
