"""Small source trees, and real ones with methods taken out."""

from __future__ import annotations

import ast
from textwrap import dedent
from typing import TYPE_CHECKING

from sglang_fence.audit.static.report import audit_statically

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from sglang_fence.audit.static.finding import Finding
    from sglang_fence.audit.static.report import StaticReport

BASE = '''
class SharedReadEnds: ...
class ForwardMode: ...
class AttentionBackend:
    def init_forward_metadata(self, batch):
        self.init_forward_metadata_out_graph(batch)
        self.init_forward_metadata_in_graph(batch)
    def init_forward_metadata_out_graph(self, batch, in_capture=False):
        """Nothing."""
    def init_forward_metadata_in_graph(self, batch):
        """Nothing."""
    def shared_read_ends(self, fm):
        if fm.is_decode() or fm.is_target_verify():
            return SharedReadEnds.IN_REPLAY
        return SharedReadEnds.UNKNOWN
    def _snapshot_prefill_shared_reads(self, batch):
        return self.shared_read_ends(batch.forward_mode)
'''
FROM_BASE = "from backends.base import AttentionBackend, ForwardMode, SharedReadEnds\n"


def write_tree(folder: Path, **sources: str) -> Path:
    """Write the package ``backends``, with ``base`` and the given modules, and return its folder."""
    package = folder / "backends"
    package.mkdir()
    for name, source in {"base": BASE, **sources}.items():
        own = source if name == "base" else FROM_BASE + dedent(source)
        (package / f"{name}.py").write_text(own, encoding="utf-8")
    return package


def audit(folder: Path, **sources: str) -> StaticReport:
    """Write a tree and audit it."""
    return audit_statically(str(write_tree(folder, **sources)))


def by_rule(report: StaticReport, rule: str) -> list[Finding]:
    """Return the findings of one rule."""
    return [finding for finding in report.findings if finding.rule == rule]


def silent(report: StaticReport, hook: str) -> set[str]:
    """Return the classes that don't pass ``hook`` on, subclasses that inherit the fault too."""
    found = [one for one in by_rule(report, "wrapper-inherits") if f" {hook} " in one.sentence]
    return {name for one in found for name in (one.class_name, *one.also)}


def without_methods(source: str, class_name: str, methods: Collection[str]) -> str:
    """Return ``source`` without the given methods of a class: as if it had never overridden them."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name != class_name:
            continue
        for member in reversed(node.body):
            if isinstance(member, ast.FunctionDef) and member.name in methods:
                first = min([member.lineno, *(one.lineno for one in member.decorator_list)])
                del lines[first - 1 : member.end_lineno]
    return "".join(lines)
