"""``sglang-fence audit --static``: findings, one a paragraph, and how much was read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from sglang_fence.audit.static.finding import Severity
from sglang_fence.audit.static.report import audit_statically
from sglang_fence.cli.files import check_writable, write
from sglang_fence.observe.counting import many, noun

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.audit.static.finding import Finding
    from sglang_fence.audit.static.report import StaticReport


def run_static(target: str, json_file: Path | None) -> int:
    """Audit the source of ``target`` and print what is found.

    Args:
        target: a path, or the dotted name of an installed package.
        json_file: where to write the whole report as well.

    Returns:
        The exit status: 1 where a finding is an error, else 0.

    Raises:
        ConfigError: there is nothing to audit, or the file can't be written.
    """
    check_writable(json_file)
    report = audit_statically(target)
    if json_file is not None:
        write(json_file, json.dumps(report.to_json(), indent=1) + "\n")
    console = Console(highlight=False)
    for finding in report.findings:
        console.print(_paragraph(report, finding), soft_wrap=True)
    for one in report.unreadable:
        console.print(f"{report.shown(one.path)}:{one.line}: not audited: {one.problem}", markup=False, soft_wrap=True)
    console.print(_summary(report), markup=False, soft_wrap=True)
    return 1 if report.errors else 0


def _paragraph(report: StaticReport, finding: Finding) -> Text:
    style = "bold red" if finding.severity is Severity.ERROR else "yellow"
    also = f" So do its subclasses {', '.join(finding.also)}." if finding.also else ""
    return Text.assemble(
        f"{report.shown(finding.path)}:{finding.line}: ",
        (finding.severity.value, style),
        f" [{finding.rule}] ({finding.confidence} confidence) {finding.sentence}{also} {finding.mend}",
    )


def _summary(report: StaticReport) -> str:
    warnings = len(report.findings) - report.errors
    files, classes = noun(report.files, "Python file"), many(len(report.classes), "class", "classes")
    read = f"Read {report.parsed} of {report.files} {files}, with {classes} of the contract"
    unread = f"; {len(report.unreadable)} could not be read" if report.unreadable else ""
    ignored = f", {len(report.ignored)} ignored by comments" if report.ignored else ""
    return f"{read}{unread}. Errors: {report.errors}, warnings: {warnings}{ignored}."
