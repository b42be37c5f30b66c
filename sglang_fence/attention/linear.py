"""``LinearAttnBackend``: linear attention, a recurrent state a request; a child of ``hybrid_linear``.

| mode | reads | declares |
|---|---|---|
| decode, verify | no table: states lie at the batch's own rows | IN_REPLAY (the base's, though nothing is read) |
| extend | no table | PRE_REPLAY |
| draft-extend | no table | UNKNOWN (the base's) |

States are read and written on the forward stream alone, a row's next owner's too: no fence is needed for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch.nn.functional import elu

from sglang_fence.attention.base import AttentionBackend
from sglang_fence.contract import ForwardMode, SharedReadEnds
from sglang_fence.device.buffers import SharedBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.attention.batch import ForwardBatch
    from sglang_fence.device.protocol import Access, DeviceModule
    from sglang_fence.memory.kv_pool import KVStore
    from sglang_fence.memory.request_pool import ReqToTokenPool


class LinearAttnBackend(AttentionBackend):
    """Causal attention with the kernel ``φ(q) · φ(k)``, ``φ = elu + 1``, carried on in a state.

    A query's output is ``φ(q) · S / φ(q) · z``, over all tokens up to its own: ``S = Σ φ(k) ⊗ v``, ``z = Σ φ(k)``.

    Args:
        device: launches.
        requests: rows.
        kv: its layout; nothing is kept there.
        layers: which layers of the model it serves.
        state: shared with backends that take turns at a request; None: its own.
    """

    name = "linear"
    deviations: ClassVar[dict[ForwardMode, str]] = {
        ForwardMode.EXTEND: "states lie at rows that the batch brings along; no table is read",
    }

    def __init__(
        self,
        device: DeviceModule,
        requests: ReqToTokenPool,
        kv: KVStore,
        *,
        layers: Sequence[int],
        state: SharedBuffer | None = None,
    ) -> None:
        super().__init__(device, requests, kv)
        self._index = {layer: index for index, layer in enumerate(layers)}
        self.state = new_state(device, requests, kv, len(layers)) if state is None else state

    @property
    def side_buffers(self) -> tuple[SharedBuffer, ...]:
        """The states."""
        return (self.state,)

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        """An extend has read all that is shared before it starts: nothing."""
        return SharedReadEnds.PRE_REPLAY if mode is ForwardMode.EXTEND else super().shared_read_ends(mode)

    def has_extend_snapshot(self, batch: ForwardBatch) -> bool:
        """The rows came with this very batch, and it needs no more."""
        return batch.mode is ForwardMode.EXTEND

    def init_forward_metadata_out_graph(self, batch: ForwardBatch, in_capture: bool = False) -> None:  # noqa: FBT001, FBT002 - the contract's signature
        """Nothing."""

    def init_forward_metadata_in_graph(self, batch: ForwardBatch) -> None:
        """Nothing."""

    def attend(
        self,
        batch: ForwardBatch,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> torch.Tensor:
        """See the base. The state goes on from where the row's last forward left it, or from zero at position 0."""
        lines = batch.token_lines
        if lines is None:
            lines = torch.arange(len(query), device=query.device) // batch.width
        index = self._index[layer]
        states = self.state.tensor
        first = first_positions(batch.positions, lines, len(batch.req_rows))
        # Padding starts at position 0 as well, so that row 0 stays finite.
        before = states[batch.req_rows, index].where(first[:, None, None, None] > 0, 0)
        out, states[batch.req_rows, index] = linear_attention(query, key, value, lines, before)
        return out

    def layer_accesses(
        self,
        batch: ForwardBatch,
        layer: int,  # noqa: ARG002 - the base's signature
    ) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """States, no pages."""
        rows: Access = (self.state, batch.read_rows)
        return (rows,), (rows,)

    def table_reads(self, batch: ForwardBatch) -> tuple[Access, ...]:  # noqa: ARG002 - the base's signature
        """None."""
        return ()


def new_state(device: DeviceModule, requests: ReqToTokenPool, kv: KVStore, layers: int) -> SharedBuffer:
    """Make states: float32 ``[rows + 1, layers, kv_heads, head_dim, head_dim + 1]``, the last column being ``z``."""
    layout = kv.layout
    shape = (requests.max_running + 1, layers, layout.kv_heads, layout.head_dim, layout.head_dim + 1)
    return SharedBuffer(device, "recurrent_state", torch.zeros(shape, device=device.torch_device))


def first_positions(positions: torch.Tensor, token_lines: torch.Tensor, lines: int) -> torch.Tensor:
    """Return the first position that each line computes, int64 ``[lines]``; for a line without tokens a large one."""
    own = token_lines == torch.arange(lines, device=positions.device)[:, None]
    return positions.expand(lines, -1).where(own, torch.iinfo(torch.int64).max).amin(1)


def linear_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    token_lines: torch.Tensor,
    before: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to the new tokens among themselves and to the state; static shapes, float32 inside, deterministic.

    Takes memory for a float32 of each head and pair of tokens.

    Args:
        query: ``[tokens, heads, head_dim]``.
        key: ``[tokens, kv_heads, head_dim]``.
        value: likewise.
        token_lines: int64 ``[tokens]``, each line's tokens in order.
        before: states, ``[lines, kv_heads, head_dim, head_dim + 1]``.

    Returns:
        The output, shaped and typed as ``query``, and the states after the last token.
    """
    groups = key.shape[1]
    queries = elu(query.float().unflatten(1, (groups, -1))) + 1
    keys = elu(key.float()) + 1
    values = torch.cat([value.float(), torch.ones_like(value[..., :1], dtype=torch.float32)], dim=-1)
    pairs = (token_lines[:, None] == token_lines).tril()
    weights = torch.einsum("tgrd,sgd->grts", queries, keys) * pairs
    new = torch.einsum("grts,sge->tgre", weights, values)
    # A line at a time: each token multiplied with every line's state, and its own picked, is free of gathers per token.
    tokens = torch.arange(len(query), device=query.device)
    old = torch.einsum("tgrd,lgde->tlgre", queries, before)[tokens, token_lines]
    total = new + old
    own = token_lines == torch.arange(len(before), device=query.device)[:, None]
    after = before + torch.einsum("ltgd,tge->lgde", own[:, :, None, None] * keys, values)
    out = total[..., :-1] / total[..., -1:]
    return out.flatten(1, 2).to(query.dtype), after
