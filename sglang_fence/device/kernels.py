"""Every kernel and host call of the runtime by name, with what it costs on the simulated device by default.

The names are the ones that the hazard checker prints, that NVTX ranges carry, and that a cost table may set.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What one kernel or host call costs in virtual time."""

    us: float
    about: str


KERNELS: dict[str, Cost] = {
    # Schedule stream: what prepares the next step and what follows from results.
    "upload_batch": Cost(2.0, "copies the step's packed inputs from the host"),
    "assign_req_to_token": Cost(3.0, "writes the KV slots of new tokens into rows of req_to_token"),
    "map_full_to_swa": Cost(3.0, "maps new full pages to sliding-window pages"),
    "write_history": Cost(3.0, "tokens of newly admitted requests, for drafts by n-gram"),
    "rewrite_req_to_token": Cost(3.0, "prefix-cache insertion: points a live row at the cached pages"),
    "evict_swa": Cost(3.0, "unmaps pages that left every window"),
    "free": Cost(0.0, "a step's tensor goes back to its stream's allocator; from here it may be overwritten"),
    # Forward stream.
    "load_batch": Cost(3.0, "copies the step's inputs into the graph's static buffers; resolves relayed tokens"),
    "out_graph_metadata": Cost(2.0, "attention metadata prepared per step, outside the graph"),
    "gather_page_table": Cost(8.0, "attention metadata in the graph: page table and write slots from req_to_token"),
    "regather_page_table": Cost(8.0, "the same again, at the start of a later segment of a breakable graph"),
    "split_batch": Cost(2.0, "line numbers of the second half of a batch that is served in two"),
    "snapshot_metadata": Cost(8.0, "attention metadata of an extend, gathered at once before the replay"),
    "embed": Cost(3.0, "token embedding and rotary tables"),
    "layer": Cost(35.0, "one decoder layer of a decode"),
    "extend_layer": Cost(90.0, "one decoder layer of an extend"),
    "hand_over": Cost(1.0, "activations across a break of a breakable graph"),
    "merge": Cost(1.0, "the halves of a split batch are put together"),
    "lm_head": Cost(10.0, "final norm and logits"),
    "ngram_lookup": Cost(4.0, "drafts from a request's own history"),
    "ngram_commit": Cost(4.0, "history and rejected slots behind an n-gram verification"),
    "draft_pick": Cost(2.0, "the draft model's best token"),
    "draft_features": Cost(2.0, "the target's hidden states, shifted to where a draft takes them"),
    "accept": Cost(4.0, "greedy acceptance of drafts; tokens and lengths go into the relays"),
    "sample": Cost(8.0, "sampling; the token goes into the relay"),
    "copy_out": Cost(2.0, "sampled tokens to the host"),
}
"""Kernel name → default cost. A launch under a name that isn't here costs the table's default."""

HOST_CALLS: dict[str, Cost] = {
    "schedule": Cost(40.0, "choosing and preparing the next batch"),
    "launch": Cost(15.0, "enqueueing a forward"),
    "barrier": Cost(2.0, "applying the barrier, before its wait is enqueued"),
    "process_results": Cost(30.0, "finished requests, prefix cache, eviction"),
}
"""Host call → default cost. The cost passes on the host before the call takes effect."""
