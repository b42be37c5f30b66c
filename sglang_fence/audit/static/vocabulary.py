"""The words of the contract, as SGLang's releases and this project use them: hooks, their old names, shared buffers."""

from __future__ import annotations

from dataclasses import dataclass

from sglang_fence.audit.static.finding import Severity

DECLARATION = "shared_read_ends"
ROOT_NAME = "AttentionBackend"
"""What the contract's base class is called, in SGLang and here."""
EAGER = "init_forward_metadata"
OUT_GRAPH = "init_forward_metadata_out_graph"
IN_GRAPH = ("init_forward_metadata_in_graph", "init_forward_metadata_segment")
"""Hooks that are captured and replayed with the graph. The second is this project's, for breakable graphs."""
SNAPSHOTS = ("_snapshot_prefill_shared_reads", "prepare_prefill_shared_read_snapshot", "has_extend_snapshot")
LAYERS = ("forward_decode", "forward_extend", "attend")
"""What runs in each layer."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook that a wrapper has to pass on to the children that read (R1)."""

    severity: Severity
    consequence: str
    """What the base's own answer does to a child that overrides the hook; completes "so …"."""
    directly: bool = False
    """The base's body must not stand for it, even where it reaches the children through another hook."""


HOOKS: dict[str, Hook] = {
    DECLARATION: Hook(
        Severity.ERROR,
        "a child that reads later than the base declares is published too early",
    ),
    OUT_GRAPH: Hook(Severity.ERROR, "the children's metadata stays that of an earlier step"),
    "init_forward_metadata_in_graph": Hook(
        Severity.ERROR,
        "what the children gather in the graph is not captured, and they go on with an earlier step's page table",
    ),
    "init_forward_metadata_segment": Hook(
        Severity.ERROR,
        "what the children gather anew in a later segment is not captured",
    ),
    EAGER: Hook(Severity.ERROR, "the children's metadata is not prepared for an eager forward"),
    "_snapshot_prefill_shared_reads": Hook(
        Severity.WARNING,
        "no child builds its snapshot, and the prefill is published as late as the declaration says",
        directly=True,
    ),
    "prepare_prefill_shared_read_snapshot": Hook(
        Severity.ERROR,
        "no child builds its snapshot, and one that declares PRE_REPLAY by snapshot reads the live tables later",
        directly=True,
    ),
    "has_extend_snapshot": Hook(
        Severity.WARNING,
        "every prefill is coarse, whatever the children have snapshotted",
        directly=True,
    ),
    "draft_extend_metadata_captured_in_graph": Hook(
        Severity.WARNING,
        "draft-extend prepares metadata outside the graph although the children rebuild it inside",
    ),
    "on_after_cuda_graph_warmup": Hook(
        Severity.WARNING,
        "metadata that warm-up has replaced is captured as it is: the children can't undo it before the capture",
    ),
    "verify_mask": Hook(Severity.WARNING, "the draft stage finds no mask to fill, although a child has one"),
    "verifies_in_one_graph": Hook(
        Severity.WARNING,
        "a verify that a child needs in one graph may be captured in segments",
    ),
}
"""Hooks that bear on when shared state is read, with what goes wrong where a wrapper keeps the base's."""


@dataclass(frozen=True, slots=True)
class Renamed:
    """One hook's names over the releases."""

    names: tuple[str, ...]
    """The oldest first."""
    history: str


RENAMED = (
    Renamed(
        ("init_forward_metadata_capture_cuda_graph", "init_forward_metadata_replay_cuda_graph", OUT_GRAPH),
        "one hook, init_forward_metadata_out_graph(batch, in_capture), took the place of the pair before 0.5.15",
    ),
    Renamed(
        ("prepare_prefill_shared_read_snapshot", "_snapshot_prefill_shared_reads"),
        "0.5.19 to 0.5.22 call prepare_prefill_shared_read_snapshot and ignore what it returns; "
        "0.5.23 calls _snapshot_prefill_shared_reads and publishes what it returns; 0.5.18 has neither",
    ),
    Renamed(
        ("get_verify_buffers_to_fill_after_draft", "verify_mask"),
        "the property verify_mask took its place in 0.5.17",
    ),
)

CURRENT_NAMES = frozenset(
    {
        DECLARATION,
        EAGER,
        OUT_GRAPH,
        "init_forward_metadata_in_graph",
        "_snapshot_prefill_shared_reads",
        "draft_extend_metadata_captured_in_graph",
        "on_after_cuda_graph_warmup",
        "verify_mask",
    },
)
"""The contract of SGLang 0.5.23: assumed of a base class whose source isn't found."""

SHARED_ATTRIBUTES = frozenset(
    {"req_to_token", "full_to_swa", "full_to_swa_index_mapping", "req_index_to_mamba_index_mapping"},
)
"""Tensors that the schedule stream writes while a forward runs."""

SHARED_READERS = frozenset(
    {
        "translate_loc_from_full_to_swa",
        "get_mamba_indices",
        "copy_page_table",
        "read_table",
        "read_source",
        "pack_read_stream",
        "table_reads",
    },
)
"""Methods of pools and of the index translator, and our own helper, whose call is a read of such a tensor."""

NOT_A_READ = frozenset({"shape", "dtype", "device", "ndim", "size", "stride", "numel", "element_size", "data_ptr"})
"""What is asked of a tensor's handle on the host: the schedule stream changes contents alone."""
