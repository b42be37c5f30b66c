"""What every dashboard has: variables, tags, links to the others and to traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as d

from dashboards.source.panels import DATASOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dashboards.source.panels import Panel

TAG = "sglang-fence"

ON_OFF = (("1", "on", "green"), ("0", "off", "red"))
SHARE = ((None, "red"), (0.5, "orange"), (0.8, "green"))
LOST = ((None, "green"), (0.01, "orange"), (0.03, "red"))
ANY_IS_BAD = ((None, "green"), (0.000_001, "red"))


def variable(name: str, label: str, query: str, *, all_value: str = ".+") -> build.QueryVariable:
    """Return a choice of label values; several can be chosen, at first all are."""
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query(query)
        .refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(d.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(all_value)
        .current(d.VariableOption(selected=True, text="All", value="$__all"))
    )


def dashboard(title: str, uid: str, text: str, *, ranks: bool) -> build.Dashboard:
    """Return an empty dashboard.

    Args:
        title: shown in lists.
        uid: stable, since alerts and bookmarks lead to it.
        text: what it answers.
        ranks: whether one can choose ranks.
    """
    seen = "sglang_fence_barrier_enabled"
    chosen = 'job=~"$job", instance=~"$instance"'
    board = (
        build.Dashboard(title)
        .uid(uid)
        .description(text)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(d.DashboardCursorSync.CROSSHAIR)
        .link(
            build.DashboardLink("Dashboards")
            .type(d.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(as_dropdown=True)
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
        .link(
            build.DashboardLink("Traces of coarse steps")
            .type(d.DashboardLinkType.LINK)
            .url(traces('{ span.sglang_fence.fence = "coarse" }'))
            .keep_time(keep_time=True)
            .target_blank(target_blank=True)
        )
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(build.DatasourceVariable("traces").label("Traces").type("tempo"))
        .with_variable(variable("job", "Job", f"label_values({seen}, job)"))
        .with_variable(variable("instance", "Instance", f'label_values({seen}{{job=~"$job"}}, instance)'))
        # Servers without the plugin carry no name and no rank: "All" must match them, too.
        .with_variable(variable("model", "Model", f"label_values({seen}{{{chosen}}}, model_name)", all_value=".*"))
    )
    if ranks:
        query = f'label_values({seen}{{{chosen}, model_name=~"$model"}}, tp_rank)'
        board = board.with_variable(variable("rank", "Rank", query, all_value=".*"))
    return board


def filled(board: build.Dashboard, content: Mapping[str, Sequence[Panel]]) -> build.Dashboard:
    """Return ``board`` with its panels, by heading."""
    for heading, panels in content.items():
        board = board.with_row(build.Row(heading))
        for panel in panels:
            board = board.with_panel(panel)
    return board


def traces(query: str) -> str:
    """Return the address that looks for traces by their attributes, which works without exemplars, too."""
    panes = {
        "datasource": "${traces}",
        "queries": [{"refId": "A", "queryType": "traceql", "query": query}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    return "/explore?left=" + quote(json.dumps(panes), safe="${}_.")


def to_server(instance: str) -> str:
    """Return the address of the server's dashboard, with what was chosen here."""
    return f"/d/sglang-fence-server?var-datasource=${{datasource}}&var-instance={instance}&${{__url_time_range}}"
