"""Old names, reads after PRE_REPLAY, and one answer for every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.audit.static.finding import Confidence, Severity
from tests.audit.static.trees import BASE, audit, by_rule

if TYPE_CHECKING:
    from pathlib import Path

READS = "self.table = self.req_to_token[batch.rows]"


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("prepare_prefill_shared_read_snapshot", "_snapshot_prefill_shared_reads"),
        ("init_forward_metadata_replay_cuda_graph", "init_forward_metadata_out_graph"),
    ],
)
def test_an_old_name_is_found_with_the_new_one(name: str, mend: str, tmp_path: Path) -> None:
    (found,) = audit(tmp_path, leaf=f"class Leaf(AttentionBackend):\n    def {name}(self, batch): ...").findings
    assert (found.rule, found.severity, found.confidence) == ("old-name", Severity.ERROR, Confidence.HIGH)
    assert mend in found.mend


def test_what_is_old_is_decided_by_the_trees_own_base(tmp_path: Path) -> None:
    older = BASE.replace("_snapshot_prefill_shared_reads", "prepare_prefill_shared_read_snapshot")
    report = audit(
        tmp_path,
        base=older,
        leaf="""
        class Fitting(AttentionBackend):
            def prepare_prefill_shared_read_snapshot(self, batch): ...
        class Early(AttentionBackend):
            def _snapshot_prefill_shared_reads(self, batch): ...
        """,
    )
    assert [one.class_name for one in by_rule(report, "old-name")] == ["Early"]


def test_an_old_name_that_the_tree_still_asks_for_is_a_warning(tmp_path: Path) -> None:
    (found,) = audit(
        tmp_path,
        leaf="""
        class Leaf(AttentionBackend):
            def get_verify_buffers_to_fill_after_draft(self): ...
        def ask(leaf):
            return leaf.get_verify_buffers_to_fill_after_draft()
        """,
    ).findings
    assert found.severity is Severity.WARNING
    assert "leaf.py" in found.sentence


PRE_REPLAY = """
class Leaf(AttentionBackend):
    def shared_read_ends(self, fm):
        if fm == ForwardMode.EXTEND:
            return SharedReadEnds.PRE_REPLAY
        return super().shared_read_ends(fm)
"""


@pytest.mark.parametrize(
    "hook",
    [
        f"{READS}",
        f"if not batch.forward_mode.is_decode(): {READS}",
        "self.fill(batch)\n    def fill(self, batch): " + READS,
        "gather(self, batch)\ndef gather(backend, batch): return backend.req_to_token",
        "self.launch(lambda: self.pool.translate_loc_from_full_to_swa(batch.locations))",
        "for row in batch.rows:\n            self.table[row] = self.req_to_token_pool.req_to_token[row]",
        "self.fill(self.alias)\n    def __init__(self, runner): self.alias = runner.req_to_token_pool.req_to_token",
    ],
)
def test_a_read_in_the_graph_behind_pre_replay(hook: str, tmp_path: Path) -> None:
    source = f"{PRE_REPLAY}    def init_forward_metadata_in_graph(self, batch):\n        {hook}\n"
    (found,) = audit(tmp_path, leaf=source).findings
    assert (found.rule, found.severity) == ("pre-replay-reads", Severity.ERROR)
    assert "PRE_REPLAY for EXTEND" in found.sentence
    assert "leaf.py:" in found.sentence


@pytest.mark.parametrize(
    "hook",
    [
        "pass",
        f"if batch.forward_mode.is_decode(): {READS}",
        f"if batch.mode in (ForwardMode.DECODE, ForwardMode.TARGET_VERIFY): {READS}",
        f"if not self.ready(batch): {READS}\n    def ready(self, batch): return batch.mode is ForwardMode.EXTEND",
        f"if batch.forward_mode.is_extend(): return\n        {READS}",
        "self.columns = self.req_to_token.shape[1]",
        "self.req_to_token = batch",
        "self.table = self.req_to_token[batch.rows] if batch.mode.is_decode() else None",
    ],
)
def test_no_read_in_that_mode(hook: str, tmp_path: Path) -> None:
    source = f"{PRE_REPLAY}    def init_forward_metadata_in_graph(self, batch):\n        {hook}\n"
    assert audit(tmp_path, leaf=source).findings == ()


@pytest.mark.parametrize(
    "declaration",
    ["helper(fm)", "super().shared_read_ends(fm)", "self.declared(fm)", "Middle.shared_read_ends(self, fm)"],
)
def test_a_declaration_is_followed_to_where_it_is_made(declaration: str, tmp_path: Path) -> None:
    source = f"""
class Middle(AttentionBackend):
    def shared_read_ends(self, fm):
        return helper(fm)
class Leaf(Middle):
    def shared_read_ends(self, fm):
        return {declaration}
    def declared(self, fm):
        return helper(fm)
    def init_forward_metadata_in_graph(self, batch):
        {READS}
def helper(fm):
    return SharedReadEnds.PRE_REPLAY if fm is ForwardMode.EXTEND else SharedReadEnds.UNKNOWN
"""
    (found,) = audit(tmp_path, leaf=source).findings
    assert found.confidence is Confidence.HIGH
    assert "PRE_REPLAY for EXTEND" in found.sentence


def test_a_declaration_that_may_be_another_is_less_sure(tmp_path: Path) -> None:
    source = PRE_REPLAY.replace("if fm ==", "if self.ready and fm ==")
    source += f"    def init_forward_metadata_in_graph(self, batch):\n        {READS}\n"
    assert [one.confidence for one in audit(tmp_path, leaf=source).findings] == [Confidence.MEDIUM]


def test_a_subclass_that_reads_behind_its_bases_declaration(tmp_path: Path) -> None:
    report = audit(
        tmp_path,
        leaf=PRE_REPLAY,
        late=f"""
        from backends.leaf import Leaf
        class Late(Leaf):
            def init_forward_metadata_in_graph(self, batch):
                {READS}
        """,
    )
    assert [one.class_name for one in report.findings] == ["Late"]


CONSTANT = """
class Leaf(AttentionBackend):
    def shared_read_ends(self, fm):
        return SharedReadEnds.{end}
    def init_forward_metadata_out_graph(self, batch, in_capture=False):
        {out}
    def forward_extend(self, batch):
        {layer}
"""


@pytest.mark.parametrize(
    ("end", "out", "layer", "severity"),
    [
        ("PRE_REPLAY", f"if batch.mode.is_decode(): {READS}", "pass", Severity.WARNING),
        ("PRE_REPLAY", READS, READS, Severity.ERROR),
        ("POST_REPLAY", READS, READS, Severity.WARNING),
        ("PRE_REPLAY", READS, "pass", None),
        ("UNKNOWN", READS, READS, None),
    ],
)
def test_one_answer_for_every_mode(end: str, out: str, layer: str, severity: Severity | None, tmp_path: Path) -> None:
    report = audit(tmp_path, leaf=CONSTANT.format(end=end, out=out, layer=layer))
    found = by_rule(report, "constant-answer")
    assert [one.severity for one in found] == ([] if severity is None else [severity])
