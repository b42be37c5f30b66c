"""Real SGLang on a GPU: is what the plugin says true, and what does it cost?

    python3 -m tests.sglang_plugin.gpu.check correct MODELS SCRATCH RESULTS [--names big] [--kinds plain,eagle]
    python3 -m tests.sglang_plugin.gpu.check cost MODELS SCRATCH RESULTS [--names big] [--rounds 5]

``correct`` is about counts, ends, reasons, times and tokens, plain and with EAGLE; ``cost`` about throughput with and
without, host time a step, and what forcing every fence coarse costs. Run it in the repository's root.

Prints one line a claim, ``ok`` or ``WRONG``, and the figures behind it as JSON; the file ``RESULTS`` has them all, and
is whole after each. Exit status 1 if a claim is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.sglang_plugin.gpu.correct import BLOCKS, correct
from tests.sglang_plugin.gpu.cost import cost
from tests.sglang_plugin.gpu.report import Report


def main() -> int:
    """Check."""
    parser = argparse.ArgumentParser(description="Checks the plugin in real SGLang on a GPU.")
    parser.add_argument("what", choices=("correct", "cost"))
    parser.add_argument("models", type=Path, help="the folder of models")
    parser.add_argument("scratch", type=Path, help="a folder for logs")
    parser.add_argument("results", type=Path, help="the JSON file to write")
    parser.add_argument("--names", default="big", help="models, separated by commas")
    parser.add_argument("--kinds", default=",".join(BLOCKS), help="plain, eagle, or both, separated by a comma")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of cost at the least")
    parser.add_argument("--new-tokens", type=int, default=256, help="tokens of each request of a block of cost")
    parser.add_argument("--budget", type=float, default=260.0, help="seconds: rounds are added while there is time")
    asked = parser.parse_args()
    report = Report(asked.results, asked.budget)
    names = asked.names.split(",")
    if asked.what == "correct":
        correct(report, asked.models, asked.scratch, names, asked.kinds.split(","))
    else:
        for name in names:
            cost(report, asked.models, asked.scratch, name, rounds=asked.rounds, new_tokens=asked.new_tokens)
    return bool(report.wrong)


if __name__ == "__main__":
    sys.exit(main())
