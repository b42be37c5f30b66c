"""``sglang-fence doctor``: would the plugin see what it should, in this serving environment?"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sglang_fence.errors import ConfigError
from sglang_fence.sglang_plugin.findings import State, look, sglang_version
from sglang_fence.sglang_plugin.source import package_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sglang_fence.sglang_plugin.findings import Finding


def doctor(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of JSON objects.")] = False,
) -> None:
    """Say what the plugin would see in the SGLang that is installed here, with this environment's variables.

    Exit status: 0 where nothing is off that you would miss, 1 where something is, 2 where SGLang isn't installed.
    """
    running, folder = sglang_version(), package_folder("sglang")
    if running is None or folder is None:
        msg = "SGLang isn't installed here: run the doctor of the environment that serves, BIN/sglang-fence doctor"
        raise ConfigError(msg)
    findings = list(look(folder, running))
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        typer.echo("\n".join(describe(findings)))
    raise typer.Exit(int(any(finding.state is State.PROBLEM for finding in findings)))


def describe(findings: list[Finding]) -> Iterator[str]:
    """Yield the lines to print. Hooks that are there are one line: there are many, and they are of no interest then."""
    hooks = [finding for finding in findings if finding.subject.startswith("hook ")]
    there = [finding for finding in hooks if finding.state is State.GOOD]
    for finding in findings:
        if finding not in there:
            yield f"{finding.state:<9}{finding.subject}: {finding.text}" + (f". {finding.mend}" if finding.mend else "")
        elif finding is there[0]:
            yield f"{finding.state:<9}hooks: {len(there)} of {len(hooks)} can be hooked"
