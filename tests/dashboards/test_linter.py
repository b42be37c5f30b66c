"""The rules of Grafana's dashboard-linter, and a few of the house; exceptions with their reasons."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from dashboards.source.build import built
from sglang_fence.mixin import wording
from sglang_fence.mixin.packaged import dashboards
from tests.dashboards.boards import boards, panels_of, targets

if TYPE_CHECKING:
    from tests.dashboards.boards import Board

UIDS = {wording.FLEET, wording.SERVER, wording.DECLARATIONS}

UNITS = {"short", "ops", "s", "percentunit"}


WITHOUT_UNIT = {"table": "a table has a unit a column", "state-timeline": "states are words"}
"""panel-units-rule: kinds of panels that need none, and why."""


@pytest.fixture(params=sorted(UIDS))
def board(request: pytest.FixtureRequest) -> Board:
    return boards()[request.param]


def variables(board: Board) -> dict[str, Any]:
    return {variable["name"]: variable for variable in board["templating"]["list"]}


def test_uids_are_stable_since_alerts_lead_to_them() -> None:
    assert set(boards()) == UIDS


def test_the_packaged_json_is_what_the_sources_build_byte_by_byte() -> None:
    assert dashboards() == dict(sorted(built().items()))
    assert built() == built()


def test_nobody_edits_what_is_provisioned(board: Board) -> None:
    assert board["editable"] is False
    assert board["tags"] == ["sglang-fence"]
    assert board["title"]
    assert board["description"]
    assert "id" not in board or board["id"] is None


def test_the_data_source_is_chosen(board: Board) -> None:
    source = variables(board)["datasource"]
    assert (source["type"], source["query"], source["label"]) == ("datasource", "prometheus", "Data source")
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels_of(board):
        assert panel["datasource"] == wanted
        assert all(target["datasource"] == wanted for target in panel["targets"])
    queried = [variable for variable in variables(board).values() if variable["type"] == "query"]
    assert all(variable["datasource"] == wanted for variable in queried)


@pytest.mark.parametrize(("name", "label"), [("job", "Job"), ("instance", "Instance")])
def test_job_and_instance_are_chosen(board: Board, name: str, label: str) -> None:
    variable = variables(board)[name]
    assert variable["type"] == "query"
    assert variable["label"] == label
    assert variable["multi"] is True
    assert variable["includeAll"] is True
    assert variable["allValue"] == ".+"


def test_choices_follow_the_time_range(board: Board) -> None:
    queried = [variable for variable in variables(board).values() if variable["type"] == "query"]
    assert {variable["name"] for variable in queried} >= {"job", "instance", "model"}
    for variable in queried:
        assert variable["refresh"] == 2
        assert re.fullmatch(r"label_values\(sglang_fence_\w+(\{.*\})?, \w+\)", variable["query"])


def test_every_panel_says_what_it_shows_and_in_what(board: Board) -> None:
    titles = [panel["title"] for panel in panels_of(board)]
    assert len(titles) == len(set(titles))
    for panel in panels_of(board):
        assert panel["title"]
        assert panel["description"]
        assert panel["targets"]
        if panel["type"] not in WITHOUT_UNIT:
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_panels_do_not_overlap(board: Board) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = (
            {(x, y) for x in range(at.get("x", 0), at.get("x", 0) + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            if "y" in at
            else {(x, y) for x in range(at.get("x", 0), at.get("x", 0) + at["w"]) for y in range(at["h"])}
        )
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.parametrize("target", list(targets()), ids=lambda target: f"{target.board}: {target.panel}")
def test_every_query_follows_the_choices_and_the_interval(target: Any) -> None:  # noqa: ANN401 - a Target
    expr = target.expr
    selectors = re.findall(r"\bsglang_fence_\w+(\{[^}]*\})?(\[[^\]]*\])?", expr)
    assert selectors
    for matchers, window in selectors:
        assert 'job=~"$job"' in matchers
        assert 'instance=~"$instance"' in matchers
        assert window in {"", "[$__rate_interval]"}
    counters = re.findall(r"(\w+)\(sglang_fence_\w+(?:_total|_bucket|_sum|_count)\{", expr)
    assert len(counters) == len(re.findall(r"\bsglang_fence_\w+(?:_total|_bucket|_sum|_count)\{", expr))
    assert set(counters) <= {"rate"}
    assert not re.search(r"\b\d+(\.\d+){3}\b|:\d{4,5}\b", expr)
