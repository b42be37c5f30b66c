"""Panels as this project draws them: one way for each kind, so that dashboards list what is shown and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import heatmap as h
from grafana_foundation_sdk.models import prometheus as p

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATASOURCE = d.DataSourceRef(type_val="prometheus", uid="${datasource}")

GOOD = "green"

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel | statetimeline.Panel
_Panel = TypeVar("_Panel", timeseries.Panel, stat.Panel, table.Panel, heatmap.Panel, statetimeline.Panel)


class Query(NamedTuple):
    """What a panel asks, and what its answers are called."""

    expr: str
    legend: str
    exemplars: bool = False


class Look(NamedTuple):
    """What a panel looks like."""

    unit: str = "short"
    span: int = 12
    height: int = 8
    steps: tuple[tuple[float | None, str], ...] = ()
    """Thresholds: from this value on, this colour."""
    names: tuple[tuple[str, str, str], ...] = ()
    """Value, its text, its colour."""
    link: tuple[str, str] | None = None
    """Title and address of a link on each series."""
    greatest: float | None = None


def series(title: str, text: str, queries: Sequence[Query], look: Look = Look()) -> timeseries.Panel:  # noqa: B008 - it is immutable
    """Lines over time, from 0 up."""
    legend = common.VizLegendOptions().display_mode(c.LegendDisplayMode.LIST).placement(c.LegendPlacement.BOTTOM)
    panel = timeseries.Panel().legend(legend.show_legend(show_legend=True)).min(0).fill_opacity(10).line_width(1)
    panel = panel.tooltip(common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI).sort(c.SortOrder.DESCENDING))
    return _dressed(panel, title, text, queries, look)


def number(title: str, text: str, queries: Sequence[Query], look: Look = Look()) -> stat.Panel:  # noqa: B008 - as above
    """One value, large; of several series, each with its name."""
    reduced = common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(values=False)
    panel = stat.Panel().reduce_options(reduced).graph_mode(c.BigValueGraphMode.AREA)
    panel = panel.color_mode(c.BigValueColorMode.BACKGROUND).text_mode(c.BigValueTextMode.AUTO)
    return _dressed(panel, title, text, queries, look)


def named(title: str, text: str, queries: Sequence[Query], look: Look = Look()) -> stat.Panel:  # noqa: B008 - as above
    """What matters is the name of the series: which reason, whose runner."""
    panel = number(title, text, queries, look)
    return panel.text_mode(c.BigValueTextMode.VALUE_AND_NAME).graph_mode(c.BigValueGraphMode.NONE)


def heat(title: str, text: str, expr: str, look: Look = Look("s")) -> heatmap.Panel:  # noqa: B008 - as above
    """Buckets of a histogram over time, with exemplars where there are any."""
    color = heatmap.HeatmapColorOptions().mode(h.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64)
    panel = heatmap.Panel().calculate(calculate=False).color(color).y_axis(heatmap.YAxisConfig().unit(look.unit))
    query = _target(Query(expr, "{{le}}", exemplars=True), "A").format(p.PromQueryFormat.HEATMAP)
    return _dressed(panel.show_tooltip().exemplars_color("rgba(255,0,255,0.7)"), title, text, (), look).targets([query])


def states(title: str, text: str, queries: Sequence[Query], look: Look = Look()) -> statetimeline.Panel:  # noqa: B008 - as above
    """A state over time, a line a series."""
    panel = statetimeline.Panel().merge_values(merge_values=True).show_value(c.VisibilityMode.NEVER).row_height(0.8)
    return _dressed(panel, title, text, queries, look)


def rows(
    title: str,
    text: str,
    queries: Sequence[Query],
    columns: Mapping[str, str],
    look: Look = Look(),  # noqa: B008 - as above
    units: Mapping[str, str] | None = None,
) -> table.Panel:
    """A table of what is so now; a column a label, and one a query, called as its legend says.

    ``columns``: label → title, in order; other labels are left out. ``units``: by title.
    """
    panel = _dressed(table.Panel(), title, text, (), look)
    panel = panel.targets(
        [
            _target(query, chr(65 + index)).instant().format(p.PromQueryFormat.TABLE)
            for index, query in enumerate(queries)
        ]
    )
    values = {
        "Value" if len(queries) == 1 else f"Value #{chr(65 + index)}": query.legend
        for index, query in enumerate(queries)
    }
    shown = {**columns, **{value: legend for value, legend in values.items() if legend}}
    hidden = [value for value, legend in values.items() if not legend]
    panel = panel.transformations(
        [
            d.DataTransformerConfig(id_val="merge", options={}),
            d.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": dict.fromkeys(["Time", "__name__", *hidden], True),
                    "indexByName": {name: index for index, name in enumerate(shown)},
                    "renameByName": shown,
                },
            ),
        ]
    )
    for column, unit in (units or {}).items():
        panel = panel.override_by_name(column, [d.DynamicConfigValue(id_val="unit", value=unit)])
    return panel


def _target(query: Query, ref: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).legend_format(query.legend or "__auto").ref_id(ref)
    target = target.datasource(DATASOURCE)
    return target.exemplar(exemplar=True) if query.exemplars else target


def _dressed(panel: _Panel, title: str, text: str, queries: Sequence[Query], look: Look) -> _Panel:
    panel = panel.title(title).description(text).datasource(DATASOURCE).unit(look.unit)
    panel = panel.span(look.span).height(look.height)
    for index, query in enumerate(queries):
        panel = panel.with_target(_target(query, chr(65 + index)))
    steps = [d.Threshold(value=value, color=color) for value, color in look.steps or ((None, GOOD),)]
    panel = panel.thresholds(build.ThresholdsConfig().mode(d.ThresholdsMode.ABSOLUTE).steps(steps))
    if look.greatest is not None:
        panel = panel.max(look.greatest)
    if look.names:
        options = {
            value: d.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, text, color) in enumerate(look.names)
        }
        panel = panel.mappings([d.ValueMap(options=options)])
    if look.link is not None:
        name, url = look.link
        panel = panel.data_links([build.DashboardLink(name).url(url)])
    return panel
