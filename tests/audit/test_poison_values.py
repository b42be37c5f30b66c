"""Other values: valid, different, and told apart."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.audit.bits import condense, same, weights
from sglang_fence.audit.cases import Case
from sglang_fence.audit.poison import other_rows, other_values, shifted
from tests.audit.live import Live


@given(
    values=st.lists(st.integers(0, 39), min_size=1, max_size=60),
    first=st.integers(0, 8),
    count=st.integers(2, 40),
    by=st.integers(1, 39),
)
def test_indices_stay_valid_and_none_is_as_it_was(values: list[int], first: int, count: int, by: int) -> None:
    tensor = torch.tensor(values)
    moved = shifted(tensor, first, count, by)
    assert bool(((moved >= first) & (moved < first + count)).all())
    if by % count:
        assert not bool((moved == tensor).any())
    # What was different within the range stays so: another request's slots, not one slot for all.
    inside = tensor[(tensor >= first) & (tensor < first + count)].unique()
    assert len(shifted(inside, first, count, by).unique()) == len(inside)


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    dtype=st.sampled_from((torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.bool)),
    seed=st.integers(0, 1000),
)
def test_a_reader_tells_contents_apart_and_their_order(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> None:
    numbers = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    by = weights(numbers)
    assert same(condense(numbers, by), condense(numbers.clone(), by))
    rolled = other_rows(numbers)
    assert rolled.shape == numbers.shape
    assert same(condense(numbers, by), condense(rolled, by)) is same(numbers, rolled)


def test_a_nan_equals_itself_and_zeros_of_different_signs_differ() -> None:
    assert same(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    assert not same(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same(torch.zeros(2), torch.zeros(3))


def test_the_runtimes_own_buffers_get_values_that_they_might_hold() -> None:
    live = Live(Case("native", "ngram", "off"))
    memory, vocabulary = live.engine.memory, live.engine.model.vocab_size
    others = other_values(memory.kv, vocabulary)
    assert set(others) == set(live.device.readers) == {"req_to_token", "full_to_swa", "token_history"}
    assert memory.kv.swa is not None
    slots = memory.kv.buffer.rows * memory.kv.page_size
    limits = {"req_to_token": slots, "full_to_swa": memory.kv.swa.buffer.rows, "token_history": vocabulary}
    for name, reader in live.device.readers.items():
        valid = torch.arange(reader.buffer.tensor.numel()).view_as(reader.buffer.tensor) % limits[name]
        made = others[name](valid)
        assert made.dtype == reader.buffer.tensor.dtype
        assert int(made.min()) >= 0
        assert int(made.max()) < limits[name]
        assert not bool((made == valid).any())
