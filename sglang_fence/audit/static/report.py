"""The static audit of a target, from its files to its findings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sglang_fence.audit.static.finding import Finding, Severity
from sglang_fence.audit.static.rules import RULES
from sglang_fence.audit.static.sources import read_sources
from sglang_fence.audit.static.target import find_target
from sglang_fence.audit.static.world import World
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.audit.static.sources import Unreadable
    from sglang_fence.audit.static.target import Target

_IGNORE = re.compile(r"#\s*sglang-fence:\s*ignore\[([\w\s,-]+)\]")


@dataclass(frozen=True, slots=True)
class StaticReport:
    """What was read, and what was found."""

    target: str
    root: Path
    files: int
    """Python files of the target."""
    parsed: int
    """Of these, those that bear on the contract and could be parsed."""
    classes: tuple[str, ...]
    """Classes that implement the contract."""
    unreadable: tuple[Unreadable, ...]
    findings: tuple[Finding, ...]
    """In order of place."""
    ignored: tuple[Finding, ...]
    """Findings that a comment in the source says to ignore."""

    @property
    def errors(self) -> int:
        """How many findings can tear data."""
        return sum(one.severity is Severity.ERROR for one in self.findings)

    def shown(self, path: Path) -> str:
        """Return a path as reports show it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def to_json(self) -> dict[str, object]:
        """Return the report as JSON values; files are relative to ``root``."""
        return {
            "target": self.target,
            "root": str(self.root),
            "files": self.files,
            "parsed": self.parsed,
            "classes": list(self.classes),
            "unreadable": [
                {"file": self.shown(one.path), "line": one.line, "problem": one.problem} for one in self.unreadable
            ],
            "findings": [{**one.to_json(), "file": self.shown(one.path)} for one in self.findings],
            "ignored": [{**one.to_json(), "file": self.shown(one.path)} for one in self.ignored],
        }


def audit_statically(name: str) -> StaticReport:
    """Audit a path or an installed package by its source alone.

    Raises:
        ConfigError: there is no such target, it holds no Python file, or no class in it implements the contract.
    """
    target = find_target(name)
    sources = read_sources(target)
    world = World(target, sources)
    if not world.backends:
        raise _nothing_to_audit(target, sources.unreadable)
    found = [finding for cls in world.backends for rule in RULES for finding in rule.check(world, cls)]
    found.sort(key=lambda one: (one.path, one.line, one.rule))
    ignored = [one for one in found if _is_ignored(one)]
    return StaticReport(
        target=name,
        root=target.root,
        files=len(target.files),
        parsed=len(sources.trees),
        classes=tuple(cls.name for cls in world.backends),
        unreadable=tuple(sources.unreadable),
        findings=tuple(one for one in found if one not in ignored),
        ignored=tuple(ignored),
    )


def _nothing_to_audit(target: Target, unreadable: list[Unreadable]) -> ConfigError:
    if unreadable:
        first = unreadable[0]
        what = f"{len(unreadable)} of its files can't be read, the first at {first.path}:{first.line} ({first.problem})"
        return ConfigError(f"{target.name}: no attention backend is left to audit: {what}; mend them")
    what = f"none of its {len(target.files)} Python files has an attention backend"
    return ConfigError(f"{target.name}: {what}; name a tree that has one")


def _is_ignored(finding: Finding) -> bool:
    """Whether the line of a finding, or a comment line right above it, names its rule in an ``ignore`` comment."""
    lines = finding.path.read_text(encoding="utf-8", errors="replace").split("\n")
    above = lines[finding.line - 2].strip() if finding.line > 1 else ""
    for line in (lines[finding.line - 1], above if above.startswith("#") else ""):
        comment = _IGNORE.search(line)
        if comment is not None and finding.rule in {name.strip() for name in comment[1].split(",")}:
            return True
    return False
