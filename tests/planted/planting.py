"""Serves a few requests with a mistake planted, and names what the hazard checker found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.speculative.serving import Prompt, Served, prompts, serve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sglang_fence.device.simulated.accesses import Hazard

WINDOW = 16
NEXT, SAME, BEFORE = 1, 0, -1
"""How far the second access's step lies from the first's."""

SOME = prompts(7, longest=60)
# One page and more in common, and long enough for several chunks.
LONG = [Prompt((7, 8, 9, 10, *range(20 + index, 84 + index)), 6 + index) for index in range(5)]


class Found(NamedTuple):
    """A hazard without what differs from replay to replay."""

    kind: str
    buffer: str
    first: str
    """Kernel; in a graph with its name, less its batch size: ``decode/layer``."""
    second: str
    apart: int
    """Step of the second less step of the first."""


def kernel(label: str) -> str:
    """Strip a label of ordinals and of a graph's size: ``decode_bs4[3]/layer#1`` is ``decode/layer``."""
    return re.sub(r"#\d+$|\[\d+\]|_(bs|t)\d+(_\d+)?", "", label)


def found(hazards: Iterable[Hazard]) -> set[Found]:
    """Name them."""
    return {
        Found(
            hazard.kind,
            hazard.buffer,
            kernel(hazard.first),
            kernel(hazard.second),
            hazard.second_step - hazard.first_step,
        )
        for hazard in hazards
    }


def run(wanted: list[Prompt] = SOME, **options: Any) -> Served:  # noqa: ANN401 - engine options
    """Serve ``wanted`` with pages and windows so short that the schedule stream writes in most steps."""
    settings: dict[str, Any] = {"max_running": 4, "chunk": 64, "page_size": 4, "context_len": 112, "fence": "fine"}
    return serve(wanted, **settings | options)


def hazards_of(served: Served) -> set[Found]:
    """Name what the run's checker found."""
    return found(served.device.hazards)


def check_torn_table(seen: set[Found], readers: set[str]) -> None:
    """Rows of ``req_to_token`` are read too late, by ``readers`` alone; the next step's preparation writes them."""
    assert {one.first for one in seen} == readers
    assert {(one.kind, one.buffer) for one in seen} == {("WAR", "req_to_token")}
    assert {(one.second, one.apart) for one in seen} == {("assign_req_to_token", NEXT)}
