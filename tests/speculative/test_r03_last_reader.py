"""R3: each algorithm says which phase reads last, each worker whose mailbox that fills."""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING, NamedTuple

import pytest

from sglang_fence.contract import FallbackReason, FenceKind, ForwardMode, SharedReadEnds
from sglang_fence.fence.barrier import Verdict, WarBarrier
from sglang_fence.speculative.algorithm import SpeculativeAlgorithm, built_in_algorithms
from sglang_fence.speculative.worker import SpeculativeWorker
from tests.speculative.serving import ALGORITHMS, check_sound, check_tokens, prompts, serve

if TYPE_CHECKING:
    from sglang_fence.device.protocol import Stream
    from sglang_fence.fence.barrier import LastReader
    from sglang_fence.fence.publication import ReadDone

VERIFY, DRAFT_EXTEND = ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND

# Section 4 of the design: the last phase, where the step was staged too, and whose runner it is in a round.
TABLE: dict[str, tuple[ForwardMode | None, ForwardMode | None, str]] = {
    "ngram": (None, None, "target"),
    "standalone": (DRAFT_EXTEND, DRAFT_EXTEND, "draft"),
    "eagle": (DRAFT_EXTEND, DRAFT_EXTEND, "draft"),
    "multi_layer_eagle": (DRAFT_EXTEND, VERIFY, "draft"),
    "dflash": (VERIFY, VERIFY, "target"),
    "dspark": (VERIFY, VERIFY, "target"),
}


def _algorithm(name: str) -> SpeculativeAlgorithm:
    algorithm = built_in_algorithms().get(name)
    assert algorithm is not None
    return algorithm


def test_the_table_is_whole() -> None:
    assert set(TABLE) == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "mode", "staged"), list(product(ALGORITHMS, ForwardMode, (False, True))))
def test_the_last_phase_is_the_tables(name: str, mode: ForwardMode, *, staged: bool) -> None:
    assert _algorithm(name).is_last_shared_read_phase(mode, staged=staged) is (mode is TABLE[name][staged])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_nothing_reads_behind_a_prefill_where_a_block_is_drafted(name: str) -> None:
    assert _algorithm(name).supports_prefill_shared_read_done() is (name in {"dflash", "dspark"})


class Applied(NamedTuple):
    """What the barrier of a step found and did."""

    step: int
    staged: bool
    owner: str
    lay_there: ReadDone | None
    """In the owner's mailbox."""
    elsewhere: tuple[ReadDone, ...]
    """In all other mailboxes."""
    verdict: Verdict


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[Applied]:
    """Write down each barrier."""
    noted: list[Applied] = []
    original = WarBarrier.apply

    def apply(self: WarBarrier, step: int, reader: LastReader, forward_stream: Stream) -> Verdict:
        assert isinstance(reader, SpeculativeWorker)
        owner = reader.last_shared_read_runner
        others = [runner for runner in reader.runners if runner is not owner]
        lay_there = owner.shared_read_done.peek()
        elsewhere = tuple(done for runner in others if (done := runner.shared_read_done.peek()) is not None)
        verdict = original(self, step, reader, forward_stream)
        noted.append(Applied(step, reader.staged, owner.role, lay_there, elsewhere, verdict))
        return verdict

    monkeypatch.setattr(WarBarrier, "apply", apply)
    return noted


@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_steps_publication_is_taken_from_its_owner(name: str, attention: str, applied: list[Applied]) -> None:
    some = prompts(8, longest=60)
    served = serve(some, speculative=name, attention=attention, max_running=4, context_len=132, chunk=64)
    check_tokens(served, some)
    check_sound(served)
    last, last_staged, owner = TABLE[name]
    assert [entry.step for entry in applied] == list(range(len(served.steps)))
    for entry, step in zip(applied, served.steps, strict=True):
        done = entry.verdict.done
        assert done is not None
        assert done is entry.lay_there
        assert done.step == entry.step == step.step
        assert entry.verdict.ends is step.resolved or name == "ngram"
        assert entry.owner == ("target" if entry.staged else owner)
        if step.mode is ForwardMode.EXTEND:
            assert (done.mode, entry.staged) == (ForwardMode.EXTEND, False)
        else:
            assert done.mode is ((last_staged if entry.staged else last) or VERIFY)
        # What others published of this step came before; nothing older lies about.
        assert all(other.step == entry.step and other.order < done.order for other in entry.elsewhere)
    if name != "multi_layer_eagle":
        assert not any(entry.staged for entry in applied)


def test_with_a_head_a_layer_the_owner_changes_from_step_to_step(applied: list[Applied]) -> None:
    some = prompts(16, longest=60)
    served = serve(
        some,
        speculative="multi_layer_eagle",
        attention="trtllm_mha",
        max_running=4,
        context_len=132,
        chunk=64,
    )
    check_sound(served)
    rounds = [entry for entry, step in zip(applied, served.steps, strict=True) if step in served.rounds]
    changes = {(one.staged, other.staged) for one, other in pairwise(rounds)}
    assert changes == {(False, False), (False, True), (True, False), (True, True)}
    for entry in rounds:
        done = entry.verdict.done
        assert done is not None
        if entry.staged:
            assert (entry.owner, done.mode, done.ends) == ("target", VERIFY, SharedReadEnds.IN_REPLAY)
            assert entry.verdict.kind is FenceKind.FINE
            # The heads' decodes published as well; their staged extends publish before verification.
            assert {other.mode for other in entry.elsewhere} == {ForwardMode.DECODE, DRAFT_EXTEND}
        else:
            assert (entry.owner, done.mode, done.ends) == ("draft", DRAFT_EXTEND, SharedReadEnds.UNKNOWN)
            assert entry.verdict.reason is FallbackReason.BACKEND_UNKNOWN
            assert VERIFY in {other.mode for other in entry.elsewhere}
