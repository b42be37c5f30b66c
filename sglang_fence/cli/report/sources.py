"""Telling what a file is, and reading it: a run's record, a capture, or the analysis of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sglang_fence.analyze.exporting import REPORT_SUFFIX
from sglang_fence.cli.report.from_analysis import facts_of_analysis
from sglang_fence.cli.report.from_capture import facts_of_capture
from sglang_fence.cli.report.from_record import facts_of_record
from sglang_fence.errors import ConfigError
from sglang_fence.observe.run_record import SCHEMA, SCHEMA_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from sglang_fence.cli.report.facts import RunFacts

_SQLITE = b"SQLite format 3\0"
_WANTED = "give what run --record wrote, a capture (.nsys-rep or .sqlite), or what nsys --json wrote"


def read_facts(path: Path) -> RunFacts:
    """Read a file.

    Raises:
        ConfigError: it isn't there, can't be read, or is none of the three.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(len(_SQLITE))
        if beginning == _SQLITE or path.suffix in {REPORT_SUFFIX, ".sqlite"}:
            return facts_of_capture(path)
        told: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"{path} can't be read ({error.strerror}): {_WANTED}"
        raise ConfigError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} is neither JSON nor a capture: {_WANTED}"
        raise ConfigError(msg) from error
    return _of_json(path, told)


def _of_json(path: Path, told: Any) -> RunFacts:  # noqa: ANN401 - whatever the file holds
    keys = told.keys() if isinstance(told, dict) else set()
    facts = None
    try:
        schema = told["schema"] if "schema" in keys else None
        if isinstance(schema, str) and schema.startswith(f"{SCHEMA_NAME}/") and schema != SCHEMA:
            msg = f"{path} is a record of another version ({schema}, not {SCHEMA}): make it anew with run --record"
            raise ConfigError(msg)
        if schema == SCHEMA:
            facts = facts_of_record(path.name, told)
        elif {"schema", "summary", "steps", "inferred"} <= keys:
            facts = facts_of_analysis(path.name, told)
        if facts is not None:
            facts.draw(facts.candidates)  # so that what is broken is found here, and said as such
            return facts
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        msg = f"{path} isn't whole, or was written by another version ({type(error).__name__}: {error}): {_WANTED}"
        raise ConfigError(msg) from error
    if "fence" in keys and "modes" in keys:
        msg = f"{path} is what run --json wrote, which holds no single steps: {_WANTED}"
    else:
        msg = f"{path} is JSON of another kind: {_WANTED}"
    raise ConfigError(msg)
