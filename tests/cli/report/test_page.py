"""What a page is made of: the right steps, whole histograms, bars that cover none another, colours that can be read."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.cli.report.drawing import picture, stacked
from sglang_fence.cli.report.facts import FORWARD, Block, Timeline
from sglang_fence.cli.report.histogram import MOST_BINS, histogram
from sglang_fence.cli.report.naming import colors
from sglang_fence.cli.report.page import page
from sglang_fence.cli.report.scales import ticks
from sglang_fence.cli.report.sources import read_facts
from sglang_fence.cli.report_command import report
from sglang_fence.errors import ConfigError
from sglang_fence.observe.run_record import SCHEMA
from tests.cli.report.rows import row

if TYPE_CHECKING:
    from pathlib import Path

ON_COLOURS = "#111318"
READABLE = 4.5
"""Of WCAG, for text of ordinary size."""

times = st.floats(0, 1e6).map(lambda us: round(us, 3))
"""In µs, to the nanosecond, as the observer and the analysis give them."""


@given(st.lists(times, min_size=1, max_size=200))
def test_a_histogram_holds_each_value_in_its_bin(values: list[float]) -> None:
    made = histogram("key", "title", values)
    assert made is not None
    assert sum(one.count for one in made.bins) == made.count == len(values)
    for one in made.bins:
        inside = [value for value in values if (one.low <= value < one.high if one.high else value == 0)]
        # A bin's bounds are powers of two with fractions, so a value at one may fall to either side.
        near = [
            value for value in values if one.high and min(abs(value / one.low - 1), abs(value / one.high - 1)) < 1e-9
        ]
        assert abs(one.count - len(inside)) <= len(near)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=50))
def test_a_histogram_is_no_wider_than_a_page(values: list[float]) -> None:
    made = histogram("key", "title", values)
    assert made is not None
    assert len(made.bins) <= MOST_BINS


@given(st.lists(st.tuples(times, times), max_size=40))
def test_no_bar_covers_another_and_none_is_lost(spans: list[tuple[float, float]]) -> None:
    blocks = [Block(FORWARD, "replay", min(span), max(span), "replay") for span in spans]
    rows = stacked(blocks)
    assert sorted(str(block) for found in rows for block in found) == sorted(str(block) for block in blocks)
    for found in rows:
        assert all(one.end <= other.start for one, other in pairwise(found))


@given(times, times, times)
def test_bars_and_marks_lie_on_the_picture(start: float, end: float, at: float) -> None:
    low, high = min(start, end), max(start, end)
    length = max(high, at, 1.0)
    block = Block(FORWARD, "replay", low, high, "replay")
    drawn = picture(Timeline(row(0, slack=1.0), length, (block,), waited_from=at, reads_end=low, forward_end=high))
    assert all(0 <= mark.x <= 100 for mark in drawn.marks)
    assert all(0 <= bar.x <= 100 for lane in drawn.lanes for bar in lane.bars)
    assert all(lane.y + lane.height <= drawn.axis_y for lane in drawn.lanes)


@given(st.floats(0.01, 1e9))
def test_an_axis_has_few_round_places_and_begins_at_nothing(whole: float) -> None:
    places = ticks(whole)
    assert places[0][1] == "0"
    assert 2 <= len(places) <= 5
    assert all(at <= whole * (1 + 1e-9) for at, _ in places)


def test_what_a_file_says_is_shown_as_text_whatever_it_is(record: Path, tmp_path: Path) -> None:
    told = json.loads(record.read_text(encoding="utf-8"))
    evil = "</title><script>alert(1)</script>"
    told["run"]["policy"] = evil
    told["traces"][0]["spans"][0]["name"] = evil
    told["run"]["modes"][evil] = told["run"]["modes"].pop("decode")
    path = tmp_path / "evil & co.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    made = page(read_facts(path))
    assert "<script" not in made
    assert "&lt;script&gt;" in made
    assert "evil &amp; co.json" in made


def test_the_same_file_gives_the_same_page(record: Path) -> None:
    assert page(read_facts(record)) == page(read_facts(record))


def test_each_colour_bears_its_text_and_each_theme_its_words(record: Path) -> None:
    style = page(read_facts(record))
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks]
    assert len(themes) == 2
    for theme in themes:
        for name in ("text", "quiet", "fine", "coarse", "accent"):
            assert contrast(theme[name], theme["card"]) >= READABLE, (name, theme)
        assert contrast(theme["quiet"], theme["page"]) >= READABLE
    for category, color in colors().items():
        assert contrast(ON_COLOURS, color) >= READABLE - 0.5, category  # bold enough, and said in the table as well


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, as WCAG reckons it."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


MISTAKES = {
    "not there": (None, "can't be read"),
    "not JSON": ("{", "neither JSON nor a capture"),
    "nested too deeply": ("[" * 100_000, "neither JSON nor a capture"),
    "of another kind": ("[1]", "JSON of another kind"),
    "of run --json": ('{"fence": {}, "modes": {}}', "holds no single steps"),
    "not whole": (f'{{"schema": "{SCHEMA}", "run": {{}}}}', "isn't whole"),
    "of an earlier version": ('{"schema": "sglang-fence.record/1"}', "a record of another version"),
    "of a later version": ('{"schema": "sglang-fence.record/99"}', "a record of another version"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_file_that_cant_be_shown_is_told_in_one_line(name: str, tmp_path: Path) -> None:
    content, expected = MISTAKES[name]
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=expected) as caught:
        report(path)
    assert str(path) in str(caught.value)
    assert not path.with_suffix(".html").exists()


def test_a_record_with_a_broken_trace_is_told(record: Path, tmp_path: Path) -> None:
    told = json.loads(record.read_text(encoding="utf-8"))
    del told["traces"][3]["spans"][0]["track"]
    path = tmp_path / "run.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ConfigError, match="isn't whole"):
        report(path)


def test_the_page_never_takes_the_place_of_what_it_is_made_of(record: Path) -> None:
    before = record.read_bytes()
    with pytest.raises(ConfigError, match="it is read"):
        report(record, out=record)
    assert record.read_bytes() == before


@pytest.mark.parametrize("option", ["out", "against", "json_file"])
def test_an_option_that_a_picture_would_ignore_is_refused(option: str, record: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "step.svg"
    with pytest.raises(ConfigError, match=r"--timeline-svg .*leave one out"):
        report(record, timeline_svg=drawn, **{option: tmp_path / "other"})  # type: ignore[arg-type] # each a path
    assert not list(tmp_path.iterdir())


def test_a_step_that_is_not_there_cant_be_drawn(capture: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no step 999"):
        report(capture, timeline_svg=tmp_path / "step.svg", step=999)
    with pytest.raises(ConfigError, match="only --timeline-svg"):
        report(capture, step=3)
