"""Wrappers that answer without asking their children: made ones, and this project's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import sglang_fence
from sglang_fence.audit.static.finding import Confidence, Severity
from sglang_fence.audit.static.report import audit_statically
from tests.audit.static.trees import audit, by_rule, silent, without_methods

OURS = Path(sglang_fence.__file__).parent
HOLDERS = {
    "attention/hybrid.py": "HybridAttnBackend",
    "attention/tbo.py": "TboAttnBackend",
    "attention/by_layer.py": "ByLayerAttnBackend",  # HybridLinear and MiniMaxHybrid descend from it
}
WRAPPER = """
class Leaf(AttentionBackend):
    def init_forward_metadata_in_graph(self, batch):
        self.table = self.req_to_token[batch.rows]
    def _snapshot_prefill_shared_reads(self, batch):
        return SharedReadEnds.PRE_REPLAY
class Wrapper(AttentionBackend):
    def __init__(self, first: AttentionBackend, second: "list[AttentionBackend]"):
        self.first = first
        self.rest = list(second)
    def init_forward_metadata_out_graph(self, batch, in_capture=False):
        for child in (self.first, *self.rest):
            child.init_forward_metadata_out_graph(batch)
    def init_forward_metadata_in_graph(self, batch):
        for child in (self.first, *self.rest):
            child.init_forward_metadata_in_graph(batch)
"""
DELEGATES = """
    def shared_read_ends(self, fm):
        return SharedReadEnds.max_of(child.shared_read_ends(fm) for child in (self.first, *self.rest))
    def _snapshot_prefill_shared_reads(self, batch):
        return [child._snapshot_prefill_shared_reads(batch) for child in (self.first, *self.rest)]
"""


def test_a_wrapper_that_passes_all_on_is_clean(tmp_path: Path) -> None:
    assert audit(tmp_path, wrapper=WRAPPER + DELEGATES).findings == ()


def test_an_inherited_declaration_is_an_error_and_an_inherited_snapshot_a_warning(tmp_path: Path) -> None:
    declaration, snapshot = audit(tmp_path, wrapper=WRAPPER).findings
    assert (declaration.severity, declaration.confidence) == (Severity.ERROR, Confidence.HIGH)
    assert "inherits shared_read_ends from AttentionBackend (base.py:12)" in declaration.sentence
    assert "self.first, self.rest" in declaration.sentence
    assert declaration.path.read_text().splitlines()[declaration.line - 1].startswith("class Wrapper")
    assert snapshot.severity is Severity.WARNING


def test_a_snapshot_is_not_passed_on_by_passing_on_the_declaration(tmp_path: Path) -> None:
    source = without_methods(WRAPPER + DELEGATES, "Wrapper", {"_snapshot_prefill_shared_reads"})
    report = audit(tmp_path, wrapper=source)
    assert silent(report, "shared_read_ends") == set()
    assert silent(report, "_snapshot_prefill_shared_reads") == {"Wrapper"}


def test_each_metadata_hook_has_to_be_passed_on(tmp_path: Path) -> None:
    source = without_methods(WRAPPER + DELEGATES, "Wrapper", {"init_forward_metadata_in_graph"})
    assert silent(audit(tmp_path, wrapper=source), "init_forward_metadata_in_graph") == {"Wrapper"}


def test_a_hook_that_no_leaf_overrides_need_not_be_passed_on(tmp_path: Path) -> None:
    source = without_methods(WRAPPER + DELEGATES, "Wrapper", {"init_forward_metadata_out_graph"})
    assert audit(tmp_path, wrapper=source).findings == ()


@pytest.mark.parametrize(("end", "found"), [("UNKNOWN", False), ("PRE_REPLAY", True)])
def test_an_answer_of_the_wrappers_own_is_sound_only_if_it_is_unknown(end: str, *, found: bool, tmp_path: Path) -> None:
    own = f"""
    def shared_read_ends(self, fm):
        return SharedReadEnds.{end}
"""
    delegating = DELEGATES[DELEGATES.index("    def _snapshot") :]
    assert bool(silent(audit(tmp_path, wrapper=WRAPPER + own + delegating), "shared_read_ends")) is found


def test_children_are_known_by_what_is_made_and_by_what_is_asked(tmp_path: Path) -> None:
    report = audit(
        tmp_path,
        made="""
        class Made(AttentionBackend):
            def __init__(self):
                self.inner = [Leaf() for _ in range(2)]
        class Leaf(AttentionBackend): ...
        """,
        asked="""
        class Asked(AttentionBackend):
            def __init__(self, steps):
                self.steps = steps
            def init_forward_metadata_out_graph(self, batch, in_capture=False):
                for step, part in zip(self.steps, batch):
                    step.init_forward_metadata_out_graph(part)
        """,
        helped="""
        class Helped(AttentionBackend):
            def __init__(self, make: "Callable[[], AttentionBackend]"):
                self.make = make
                self.helper = Helper()
            def init_forward_metadata_out_graph(self, batch, in_capture=False):
                self.helper.init_forward_metadata_out_graph(batch)
        class Helper: ...
        """,
    )
    found = by_rule(report, "wrapper-inherits")
    assert {one.class_name: one.confidence for one in found} == {
        "Made": Confidence.HIGH,
        "Asked": Confidence.MEDIUM,
    }


def test_a_child_that_the_declaration_never_asks(tmp_path: Path) -> None:
    half = DELEGATES.replace("for child in (self.first, *self.rest))", "for child in (self.first,))")
    (found,) = audit(tmp_path, wrapper=WRAPPER + half).findings
    assert found.rule == "forgotten-child"
    assert "never from self.rest" in found.sentence


BY_LAYER = """
class Wrapper(AttentionBackend):
    def __init__(self, full: AttentionBackend, linear: AttentionBackend):
        self.full = full
        self.linear = linear
        self.all = [full, linear]
    def shared_read_ends(self, fm):
        return SharedReadEnds.max_of(child.shared_read_ends(fm) for child in self.all)
class Narrow(Wrapper):
    def __init__(self, full: AttentionBackend, conv: AttentionBackend):
        super().__init__(full, conv)
        self.conv = conv
"""


def test_a_list_of_the_same_children_is_no_further_child(tmp_path: Path) -> None:
    assert audit(tmp_path, wrapper=BY_LAYER).findings == ()


def test_a_subclass_that_names_a_child_anew_is_mended_with_its_base(tmp_path: Path) -> None:
    (found,) = audit(tmp_path, wrapper=without_methods(BY_LAYER, "Wrapper", {"shared_read_ends"})).findings
    assert (found.class_name, found.also) == ("Wrapper", ("Narrow",))


def test_our_own_tree_has_no_finding() -> None:
    report = audit_statically(str(OURS))
    assert not [*report.findings, *report.ignored, *report.unreadable]
    assert {"HybridLinearAttnBackend", "MiniMaxHybridAttnBackend", "StagedAttnBackend"} <= set(report.classes)


@pytest.mark.parametrize("hook", ["shared_read_ends", "has_extend_snapshot", "init_forward_metadata_segment"])
def test_our_four_wrappers_are_found_where_they_do_not_delegate(hook: str, tmp_path: Path) -> None:
    copied = tmp_path / "sglang_fence"
    shutil.copytree(OURS, copied, ignore=shutil.ignore_patterns("__pycache__"))
    for name, holder in HOLDERS.items():
        source = (copied / name).read_text(encoding="utf-8")
        (copied / name).write_text(without_methods(source, holder, {hook}), encoding="utf-8")
    four = {"HybridAttnBackend", "TboAttnBackend", "HybridLinearAttnBackend", "MiniMaxHybridAttnBackend"}
    assert silent(audit_statically(str(copied)), hook) == {*four, "ByLayerAttnBackend"}


def test_a_copy_of_the_attention_folder_alone_is_read_instead_of_what_is_installed(tmp_path: Path) -> None:
    copied = tmp_path / "attention"
    shutil.copytree(OURS / "attention", copied, ignore=shutil.ignore_patterns("__pycache__"))
    source = (copied / "by_layer.py").read_text(encoding="utf-8")
    (copied / "by_layer.py").write_text(
        without_methods(source, "ByLayerAttnBackend", {"shared_read_ends"}), encoding="utf-8"
    )
    found = silent(audit_statically(str(copied)), "shared_read_ends")
    assert found == {"ByLayerAttnBackend", "HybridLinearAttnBackend", "MiniMaxHybridAttnBackend"}
