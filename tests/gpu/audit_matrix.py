"""The audit on a GPU, beside the exact answer: every case, the telling ones, or those named.

    python3 -m tests.gpu.audit_matrix OUT.json [few|all|NAMES] [REPEATS] [JOBS] [PART/PARTS] [--timing]

NAMES are patterns for "attention speculative graph", apart by ``;``, such as ``"tbo:* breakable; native none *"``. A
``*`` stands for anything, so that the first one takes every algorithm. ``1/4`` audits the first of four parts, where a
machine is lent for minutes: all of them take a process about 18. ``--timing`` (with one job) prints when what happened
around each overwriting at IN_REPLAY, a line a graph and one for each plant that was missed.

Prints a line a case, what is wrong, and plants that were missed in some of a claim's runs alone; writes every verdict.
Exit status 1 if an end is unsound, a plant was missed in all, or the GPU's verdicts aren't those of the happens-before
relation; 2 if no case has such a name. Run it in the repository's root.
"""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from sglang_fence.audit.auditing import AuditOptions
from sglang_fence.audit.cases import Case, select
from sglang_fence.audit.matrix import audit_all
from sglang_fence.audit.wording import sentence
from tests.gpu.audit_timing import Timings, timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sglang_fence.audit.matrix import CaseReport

FEW = (
    Case("native", "none", "full"),
    Case("trtllm_mha", "none", "breakable"),
    Case("deepseek_v4", "dflash", "breakable"),
    Case("tbo:trtllm_mha", "eagle", "full"),
    Case("hybrid:native,deepseek_v4", "multi_layer_eagle", "breakable"),
    Case("hybrid_linear:native", "none", "off"),
)


def cases_of(which: str, part: str) -> Sequence[Case]:
    """Return the cases that ``which`` names, as the module says; of them one ``part``."""
    number, _, parts = part.partition("/")
    if which == "few":
        named: Sequence[Case] = FEW
    else:
        patterns = ["*"] if which == "all" else [one.strip() for one in which.split(";")]
        every = select(["all"], ["all"], ["all"])
        named = [case for case in every if any(fnmatchcase(_name(case), one) for one in patterns)]
    return named[int(number) - 1 :: int(parts)]


def _name(case: Case) -> str:
    return f"{case.attention} {case.speculative} {case.graph}"


def partly_missed(report: CaseReport) -> list[str]:
    """Return, in words, where plants were caught in some runs and missed in others."""
    return [
        f"{claim.claim} at {end.ends.name}: {result.buffer} missed in {result.missed} of {result.missed + result.runs}"
        for claim in report.poisoned.claims
        for end in claim.ends.values()
        for result in end.buffers
        if result.missed
    ]


def audit(cases: Sequence[Case], out: Path, options: AuditOptions, jobs: int, timings: Timings | None) -> int:
    """Audit; return the exit status."""
    begun = time.perf_counter()
    failed, content = 0, []
    device = torch.cuda.get_device_name()
    for report in audit_all(cases, "cuda", options, jobs=jobs):
        wrong = [*report.missed, *report.disagreements, *(["UNSOUND"] if report.unsound else [])]
        failed += bool(wrong)
        print(f"{time.perf_counter() - begun:6.1f} s  {'WRONG' if wrong else 'ok   '} {report.case}", flush=True)
        told = [*wrong, *partly_missed(report), *(timings.lines() if timings else ())]
        if options.costs:
            told += [sentence(claim, report.poisoned.by) for claim in report.poisoned.claims]
        for text in told:
            print(f"          {text}", flush=True)
        if timings:
            timings.all.clear()
        content.append(report.to_json())
        # After each, so that a run that is cut short has told what it found.
        out.write_text(json.dumps({"device": device, "repeats": options.repeats, "cases": content}, indent=1) + "\n")
    print(f"{len(content)} cases on {device}, {options.repeats} repeats: {failed} wrong")
    return 1 if failed else 0


def main() -> int:
    """Read the command line; audit; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("which", nargs="?", default="all")
    parser.add_argument("repeats", nargs="?", type=int, default=6)
    parser.add_argument("jobs", nargs="?", type=int, default=1)
    parser.add_argument("part", nargs="?", default="1/1")
    parser.add_argument("--timing", action="store_true")
    given = parser.parse_args()
    cases = cases_of(given.which, given.part)
    if not cases:
        parser.error(f"no case is called {given.which!r}")
    if given.timing and given.jobs != 1:
        parser.error("--timing takes one job: timings stay in their process")
    torch.set_num_threads(1)  # the models are tiny, and others may want the processors
    options = AuditOptions(repeats=given.repeats, costs=given.which == "few")
    with timed() if given.timing else nullcontext() as timings:
        return audit(cases, given.out, options, given.jobs, timings)


if __name__ == "__main__":
    sys.exit(main())
