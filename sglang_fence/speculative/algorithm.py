"""``SpeculativeAlgorithm``: *who* reads last in a step (R3). *Where* that read ends is the backends' to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sglang_fence.attention.base import AttentionBackend
    from sglang_fence.contract import ForwardMode
    from sglang_fence.memory.kv_pool import KVStore, PagedKV
    from sglang_fence.models.served import ServedModel
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.speculative.worker import SpeculativeWorker


@dataclass(frozen=True, slots=True)
class SpecContext:
    """What a speculative worker is built from."""

    target: ModelRunner
    """The target model's runner, with its backend and KV pool."""
    target_kv: PagedKV
    draft_tokens: int
    """Drafts a round."""
    draft_model: ServedModel
    """For algorithms that draft with a whole model; the target itself where nothing else was given."""
    graph: str
    """Kind of graphs: ``full``, ``breakable``, ``off``."""
    capture_bs: Sequence[int]
    """Batch sizes to capture, ascending; the last is the most requests of a round."""
    prefill_tokens: Sequence[int]
    """Token counts to capture for the target's prefill."""
    make_backend: Callable[[KVStore], AttentionBackend]
    """Makes another backend of the kind that was asked for, over a draft's KV store."""
    order: Iterator[int]
    """Shared by all publishers."""


class SpeculativeAlgorithm(ABC):
    """What an algorithm answers. The defaults are the safe ones: nothing is known, so every step is coarse."""

    name: ClassVar[str]

    def is_last_shared_read_phase(self, mode: ForwardMode, *, staged: bool = False) -> bool:  # noqa: ARG002 - the question
        """Whether nothing of the same step reads shared buffers after a phase of ``mode``.

        ``staged``: the step's draft-extend read all it needs before verification.
        """
        return False

    def supports_prefill_shared_read_done(self) -> bool:
        """Whether no draft reads shared buffers after a step's prefill of the target (R8)."""
        return False

    @property
    def verifies_in_one_graph(self) -> bool:
        """Whether verification is one full graph, also where graphs are breakable."""
        return False

    @abstractmethod
    def make_worker(self, context: SpecContext) -> SpeculativeWorker:
        """Build the worker that runs the algorithm's rounds."""


class AlgorithmRegistry:
    """Algorithms by name; ``none`` is no algorithm."""

    def __init__(self, algorithms: Iterable[SpeculativeAlgorithm] = ()) -> None:
        self._by_name = {algorithm.name: algorithm for algorithm in algorithms}

    def register(self, algorithm: SpeculativeAlgorithm) -> None:
        """Add an algorithm of one's own.

        Raises:
            ConfigError: the name is taken.
        """
        if algorithm.name == "none" or algorithm.name in self._by_name:
            msg = f"speculative algorithm {algorithm.name!r} is registered already: give it another name"
            raise ConfigError(msg)
        self._by_name[algorithm.name] = algorithm

    @property
    def names(self) -> list[str]:
        """All names, ``none`` first."""
        return ["none", *sorted(self._by_name)]

    def get(self, name: str) -> SpeculativeAlgorithm | None:
        """Return the algorithm called ``name``, None for ``none``.

        Raises:
            ConfigError: nobody goes by that name.
        """
        if name == "none":
            return None
        algorithm = self._by_name.get(name)
        if algorithm is None:
            msg = f"--speculative {name}: no such algorithm; known are {', '.join(self.names)}"
            raise ConfigError(msg)
        return algorithm


def built_in_algorithms() -> AlgorithmRegistry:
    """Return a registry of the built-in algorithms; a new one at each call."""
    from sglang_fence.speculative import block, draft, multi_layer, ngram  # noqa: PLC0415 - they import this module

    return AlgorithmRegistry(
        (
            ngram.Ngram(),
            draft.Standalone(),
            draft.Eagle(),
            multi_layer.MultiLayerEagle(),
            block.DFlash(),
            block.DSpark(),
        ),
    )
