"""The audit on a GPU, beside the exact answer: every case, or the telling ones.

    python3 -m tests.gpu.audit_matrix OUT.json [few|all] [REPEATS] [JOBS] [PART/PARTS]

``1/4`` audits the first of four parts, where a machine is lent for minutes: all of them take a process about 15.
Prints a line a case, and what is wrong; writes every verdict. Exit status 1 if an end is unsound, a plant was missed,
or the GPU's verdicts aren't those of the happens-before relation. Run it in the repository's root.
"""

# ruff: noqa: T201 - it prints

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from sglang_fence.audit.auditing import AuditOptions
from sglang_fence.audit.cases import Case, select
from sglang_fence.audit.matrix import audit_all
from sglang_fence.audit.wording import sentence

FEW = (
    Case("native", "none", "full"),
    Case("trtllm_mha", "none", "breakable"),
    Case("deepseek_v4", "dflash", "breakable"),
    Case("tbo:trtllm_mha", "eagle", "full"),
    Case("hybrid:native,deepseek_v4", "multi_layer_eagle", "breakable"),
    Case("hybrid_linear:native", "none", "off"),
)


def main(out: Path, which: str, repeats: int, jobs: int, part: str) -> int:
    """Audit; return the exit status."""
    torch.set_num_threads(1)  # the models are tiny, and others may want the processors
    number, _, parts = part.partition("/")
    every = FEW if which == "few" else select(["all"], ["all"], ["all"])
    cases = every[int(number) - 1 :: int(parts)]
    options = AuditOptions(repeats=repeats, costs=which == "few")
    begun = time.perf_counter()
    device = torch.cuda.get_device_name()
    failed, content = 0, []
    for report in audit_all(cases, "cuda", options, jobs=jobs):
        wrong = [*report.missed, *report.disagreements, *(["UNSOUND"] if report.unsound else [])]
        failed += bool(wrong)
        print(f"{time.perf_counter() - begun:6.1f} s  {'WRONG' if wrong else 'ok   '} {report.case}", flush=True)
        for text in wrong:
            print(f"          {text}", flush=True)
        if which == "few":
            for claim in report.poisoned.claims:
                print(f"          {sentence(claim, report.poisoned.by)}", flush=True)
        content.append(report.to_json())
        # After each, so that a run that is cut short has told what it found.
        out.write_text(json.dumps({"device": device, "repeats": repeats, "cases": content}, indent=1) + "\n")
    print(f"{len(content)} cases on {device}, {repeats} repeats: {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    path, which, repeats, jobs, part = (*sys.argv[1:], *("all", "6", "1", "1/1")[len(sys.argv) - 2 :])
    sys.exit(main(Path(path), which, int(repeats), int(jobs), part))
