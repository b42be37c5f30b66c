"""The real forward: eager, in one graph and in segments, it computes the same, and breaks hand over in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from sglang_fence.attention.batch import ForwardBatch
from sglang_fence.attention.registry import make_backend
from sglang_fence.contract import ForwardMode
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.graphs.breakable import BreakableGraph
from sglang_fence.graphs.full import FullGraph
from sglang_fence.graphs.parts import launch_all
from sglang_fence.memory.kv_pool import PagedKV
from sglang_fence.memory.request_pool import ReqToTokenPool, RowUpdates
from sglang_fence.models.loading import ModelOptions, load_model
from sglang_fence.models.served import ServedModel
from sglang_fence.runners.forward import ForwardKernels, capture_sizes

if TYPE_CHECKING:
    from sglang_fence.graphs.parts import CapturedForward, Part
    from sglang_fence.models.served import Activations

LINES, CONTEXT, SIZE = 3, 16, 4
KINDS = ("full", "breakable")


class WatchedModel(ServedModel):
    """Notes where each layer, and the head, find their activations."""

    addresses: list[int]

    def layer(self, acts: Activations, index: int, positions: torch.Tensor, attend: Any) -> None:  # noqa: ANN401 - base's
        self._note(acts)
        super().layer(acts, index, positions, attend)

    def head(self, acts: Activations, lines: torch.Tensor | None) -> None:
        self._note(acts)
        super().head(acts, lines)

    def _note(self, acts: Activations) -> None:
        assert acts.hidden is not None
        self.addresses.append(acts.hidden.data_ptr())


class Rig:
    """A decode of three lines through a backend, over pages of their own."""

    def __init__(self, attention: str, window: int | None) -> None:
        self.device = SimulatedDevice()
        loaded = load_model(ModelOptions(context_len=CONTEXT, sliding_window=window), self.device.torch_device)
        fields = {name: getattr(loaded, name) for name in ServedModel.__dataclass_fields__}
        self.model = WatchedModel(**fields)
        self.model.addresses = []
        requests = ReqToTokenPool(self.device, max_running=LINES, context_len=CONTEXT)
        self.kv = PagedKV(
            self.device,
            self.model.kv_layout(),
            pages=LINES * CONTEXT // SIZE,
            page_size=SIZE,
            context_len=CONTEXT,
            prefix_cache=False,
        )
        updates = RowUpdates()
        pages: list[int] = []
        for line in range(LINES):
            own = self.kv.allocate(CONTEXT // SIZE - (window is not None))
            assert own is not None
            pages += own
            updates.add(line + 1, 0, self.kv.slots(own, 0, len(own) * SIZE))
        requests.write("assign_req_to_token", updates)
        self.backend = make_backend(attention, self.device, requests, self.kv)
        zeros = torch.zeros(LINES, dtype=torch.int64)
        self.batch = ForwardBatch(
            ForwardMode.DECODE,
            req_rows=torch.arange(1, LINES + 1),
            seq_lens=zeros + 1,
            tokens=zeros.clone(),
            positions=zeros.clone(),
            width=1,
            static=True,
            rows=tuple(range(1, LINES + 1)),
            pages=tuple(pages),
        )

    def parts(self, *, breakable: bool) -> list[Part]:
        self.backend.init_forward_metadata_out_graph(self.batch, in_capture=True)
        kernels = ForwardKernels(self.device, self.model, self.backend, self.batch)
        return kernels.parts(lambda: None, breakable=breakable)

    def captured(self, kind: str) -> CapturedForward:
        parts = self.parts(breakable=kind == "breakable")
        launch_all(parts)
        make = FullGraph if kind == "full" else BreakableGraph
        graph: CapturedForward = make(self.device, "decode", parts, lambda: None)
        self.device.synchronize()
        return graph

    def load(self, position: int) -> None:
        """Put the tokens of the next step, one position further, into the static tensors."""
        self.device.synchronize()
        self.batch.tokens.copy_(torch.arange(LINES) * 7 + position)
        self.batch.positions.fill_(position)
        self.batch.seq_lens.fill_(position + 1)
        self.model.addresses.clear()
        self.backend.init_forward_metadata_out_graph(self.batch)

    def logits(self) -> torch.Tensor:
        self.device.synchronize()
        assert self.batch.acts.logits is not None
        return self.batch.acts.logits.clone()


def eager_logits(attention: str, window: int | None, steps: int) -> list[torch.Tensor]:
    rig = Rig(attention, window)
    parts = rig.parts(breakable=False)
    found = []
    for position in range(steps):
        rig.load(position)
        launch_all(parts)
        found.append(rig.logits())
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attention", ["native", "trtllm_mha"])
@pytest.mark.parametrize("window", [None, 5])
def test_a_replay_equals_the_eager_forward_bit_by_bit(window: int | None, attention: str, kind: str) -> None:
    steps = 8
    rig = Rig(attention, window)
    graph = rig.captured(kind)
    for position, expected in enumerate(eager_logits(attention, window, steps)):
        rig.load(position)
        graph.replay()
        assert torch.equal(rig.logits(), expected)


def test_the_logits_differ_from_step_to_step_so_that_equality_means_something() -> None:
    logits = eager_logits("native", None, 3)
    assert not torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[1][0], logits[1][1])


def test_what_a_segment_reads_behind_a_break_lies_where_it_lay_at_the_capture() -> None:
    """On CUDA a graph reads the very address that it was captured with, and an eager layer's output lies elsewhere."""
    rig = Rig("native", None)
    graph = rig.captured("breakable")
    seen = []
    for position in range(3):
        rig.load(position)
        graph.replay()
        rig.logits()
        seen.append(list(rig.model.addresses))
    entries = list(zip(*seen, strict=True))
    assert len(entries) == rig.model.num_layers + 1
    # Behind the first break come layer 2, the second eager layer and the head; the eager layers take it there too.
    handed = {address for entry in entries[1:] for address in entry}
    assert len(handed) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_break_costs_hand_overs_and_a_full_graph_has_none(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig("native", None)
    launched: list[str] = []
    launch = rig.device.launch

    def note(name: str, *args: object, **kwargs: object) -> None:
        launched.append(name)
        launch(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(rig.device, "launch", note)
    rig.captured(kind)
    assert launched.count("layer") == 2 * rig.model.num_layers
    assert bool(launched.count("hand_over")) == (kind == "breakable")


@pytest.mark.parametrize(("largest", "sizes"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_captured_sizes_are_powers_of_two_and_the_largest(largest: int, sizes: list[int]) -> None:
    assert capture_sizes(largest) == sizes
