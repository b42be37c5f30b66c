"""Paged attention beside a plain reference: one token, one head at a time, over keys laid out densely."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_fence.attention import paged

HEADS, KV_HEADS, DIM = 4, 2, 8
LENGTH = 12
SLOTS = 40


@dataclass
class Case:
    """Lines of ragged length whose keys lie scattered in a cache."""

    lens: list[tuple[int, int]]
    """New tokens and whole length, a line."""
    window: int | None
    keys: torch.Tensor
    values: torch.Tensor
    slots: torch.Tensor
    query: torch.Tensor
    positions: list[int]
    token_lines: list[int]

    def reference(self) -> torch.Tensor:
        """Attention of each new token over its own line, from its first visible position to itself."""
        out = torch.empty_like(self.query)
        for token, (line, position) in enumerate(zip(self.token_lines, self.positions, strict=True)):
            first = 0 if self.window is None else max(0, position - self.window + 1)
            seen = self.slots[line, first : position + 1]
            for head in range(HEADS):
                keys, values = (part[seen, head // (HEADS // KV_HEADS)] for part in (self.keys, self.values))
                weights = (keys @ self.query[token, head] / DIM**0.5).softmax(0)
                out[token, head] = weights @ values
        return out


@st.composite
def cases(draw: st.DrawFn, *, decode: bool) -> Case:
    lines = draw(st.integers(1, 3))
    wholes = [draw(st.integers(1, LENGTH)) for _ in range(lines)]
    lens = [(1 if decode else draw(st.integers(1, whole)), whole) for whole in wholes]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 30)))
    order = (torch.randperm(SLOTS - 1, generator=generator) + 1)[: lines * LENGTH].view(lines, LENGTH)
    positions = [position for new, whole in lens for position in range(whole - new, whole)]
    return Case(
        lens=lens,
        window=draw(st.none() | st.integers(1, LENGTH + 2)),
        keys=torch.randn(SLOTS, KV_HEADS, DIM, generator=generator),
        values=torch.randn(SLOTS, KV_HEADS, DIM, generator=generator),
        slots=order,
        query=torch.randn(len(positions), HEADS, DIM, generator=generator),
        positions=positions,
        token_lines=[line for line, (new, _) in enumerate(lens) for _ in range(new)],
    )


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, atol=1e-5, rtol=1e-5)


@given(case=cases(decode=True), padding=st.integers(0, 2))
@settings(deadline=None)
def test_a_decode_sees_its_own_line_and_padding_disturbs_nobody(case: Case, padding: int) -> None:
    lines = len(case.lens)
    seq_lens = torch.tensor([whole for _, whole in case.lens] + [1] * padding)
    query = torch.cat([case.query, torch.zeros(padding, HEADS, DIM)])
    table = torch.cat([torch.zeros(1, LENGTH, dtype=torch.int64), case.slots])
    rows = torch.tensor([*range(1, lines + 1), *[0] * padding])
    slots = paged.slots_of(table, rows, seq_lens)
    mask = paged.line_mask((seq_lens - 1)[:, None], LENGTH, case.window)
    out = paged.line_attention(query, case.keys, case.values, slots, mask)
    assert close(out[:lines], case.reference())
    assert torch.isfinite(out).all()


@given(case=cases(decode=False))
@settings(deadline=None)
def test_a_ragged_extend_is_the_reference(case: Case) -> None:
    out = paged.extend_attention_ragged(case.query, case.keys, case.values, case.slots, case.lens, case.window)
    assert close(out, case.reference())


@given(case=cases(decode=False), tokens=st.integers(0, 3), lines=st.integers(1, 2))
@settings(deadline=None)
def test_a_static_extend_agrees_whatever_is_padded(case: Case, tokens: int, lines: int) -> None:
    real = len(case.lens)
    query = torch.cat([case.query, torch.zeros(tokens, HEADS, DIM)])
    slots = torch.cat([case.slots, torch.zeros(lines, LENGTH, dtype=torch.int64)])
    positions = torch.tensor(case.positions + [0] * tokens)
    token_lines = torch.tensor(case.token_lines + [real + lines - 1] * tokens)
    mask = paged.extend_mask(positions, token_lines, real + lines, LENGTH, case.window)
    out = paged.extend_attention_static(query, case.keys, case.values, slots, mask)
    ragged = paged.extend_attention_ragged(case.query, case.keys, case.values, case.slots, case.lens, case.window)
    assert close(out[: len(case.positions)], ragged)
    assert torch.isfinite(out).all()


@given(case=cases(decode=True))
@settings(deadline=None)
def test_a_decode_is_an_extend_by_one_token(case: Case) -> None:
    seq_lens = torch.tensor([whole for _, whole in case.lens])
    mask = paged.line_mask((seq_lens - 1)[:, None], LENGTH, case.window)
    decode = paged.line_attention(case.query, case.keys, case.values, case.slots, mask)
    ragged = paged.extend_attention_ragged(case.query, case.keys, case.values, case.slots, case.lens, case.window)
    assert close(decode, ragged)


@given(
    table=st.lists(st.lists(st.integers(0, 99), min_size=4, max_size=4), min_size=2, max_size=5),
    data=st.data(),
)
def test_slots_end_with_the_sequence_and_padding_points_at_slot_zero(
    table: list[list[int]], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=4))
    lens = [data.draw(st.integers(0, 4)) for _ in rows]
    found = paged.slots_of(torch.tensor(table), torch.tensor(rows), torch.tensor(lens))
    assert found.tolist() == [
        [slot if position < length else 0 for position, slot in enumerate(table[row])]
        for row, length in zip(rows, lens, strict=True)
    ]


@given(
    mapping=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    size=st.integers(1, 5),
    data=st.data(),
)
def test_sliding_slots_keep_their_place_in_the_page(mapping: list[int], size: int, data: st.DataObject) -> None:
    slots = data.draw(st.lists(st.integers(0, len(mapping) * size - 1), min_size=1, max_size=6))
    found = paged.to_swa(torch.tensor(slots), torch.tensor(mapping), size)
    assert found.tolist() == [mapping[slot // size] * size + slot % size for slot in slots]
