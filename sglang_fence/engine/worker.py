"""``Worker``: runs one step's forward on the forward stream, samples, and brings the tokens to the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sglang_fence.contract import ForwardMode
from sglang_fence.engine.sampling import sample
from sglang_fence.runners.step_result import Outbox, StepResult, copy_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.device.buffers import SharedBuffer
    from sglang_fence.device.protocol import Stream
    from sglang_fence.fence.publication import Mailbox
    from sglang_fence.models.served import Activations
    from sglang_fence.runners.decode import DecodeRunner
    from sglang_fence.runners.model_runner import ModelRunner
    from sglang_fence.runners.prefill import PrefillRunner
    from sglang_fence.runners.work import ForwardWork


class StepWorker(Protocol):
    """What the scheduler and the barrier ask of a worker."""

    @property
    def forward_stream(self) -> Stream:
        """Where steps run."""

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        """The mailbox of the runner that owns the last shared read of the step just launched (R3)."""

    @property
    def mailboxes(self) -> Sequence[Mailbox]:
        """Every runner's."""

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:
        """Whether no phase of the step just launched reads shared buffers after one of ``mode``."""

    @property
    def backend_name(self) -> str:
        """Name of the attention backend."""

    def run(self, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        """Enqueue a step's forward on the current (forward) stream."""


class Worker:
    """The target model, and who owns a step's last shared read (R3). Without speculation: itself, in every phase."""

    def __init__(self, runner: ModelRunner, decode: DecodeRunner, prefill: PrefillRunner) -> None:
        self._runner = runner
        self.decode = decode
        self.prefill = prefill

    def capture(self) -> None:
        """Capture all graphs. The device must be idle."""
        self.decode.capture()
        self.prefill.capture()

    @property
    def forward_stream(self) -> Stream:
        """Where steps run."""
        return self._runner.forward_stream

    @property
    def last_shared_read_runner(self) -> ModelRunner:
        """The runner whose phase is the last of the step to read shared buffers."""
        return self._runner

    @property
    def last_shared_read_mailbox(self) -> Mailbox:
        """Its mailbox."""
        return self.last_shared_read_runner.shared_read_done

    @property
    def mailboxes(self) -> Sequence[Mailbox]:
        """Every runner's."""
        return (self._runner.shared_read_done,)

    def is_last_shared_read_phase(self, mode: ForwardMode) -> bool:  # noqa: ARG002 - speculative workers look at it
        """Without speculation a step has one phase."""
        return True

    @property
    def backend_name(self) -> str:
        """Name of the attention backend."""
        return self._runner.attn_backend.name

    def run(self, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        """Enqueue a step's forward on the current (forward) stream.

        Args:
            work: the batch.
            params: packed sampling parameters, None for greedy.
        """
        acts = self.decode.execute(work) if work.mode is ForwardMode.DECODE else self.prefill.execute(work)
        return self._sample(acts, work, params)

    def _sample(self, acts: Activations, work: ForwardWork, params: SharedBuffer | None) -> StepResult:
        device, relay, lines = self._runner.device, self._runner.relay, work.lines
        inputs = work.inputs.tensor[0, :lines]
        packed = None if params is None else params.tensor
        sampled = Outbox()

        def choose() -> None:
            if acts.logits is None:
                msg = "sampling before logits"
                raise RuntimeError(msg)
            tokens = sample(acts.logits[:lines], packed)
            relay.tensor[inputs] = tokens
            sampled.tokens = tokens[:, None]

        reads = ((work.inputs, (0,)),) if params is None else ((work.inputs, (0,)), (params, range(4)))
        device.launch("sample", choose, reads=reads, writes=((relay, work.rows),))
        return copy_out(device, self._runner.probe, sampled, lines, 1)
