"""The page in headless Chromium: nothing on the console, nothing loaded, both themes, a narrow page, its numbers."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.cli.report_command import report
from tests.exporters.perfetto.browser import CHROMEDRIVER, CHROMIUM, Browser, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver")

SOURCES = ("record", "capture", "analysis")
NUMBERS = """
return Object.fromEntries([...document.querySelectorAll("[data-key]")].map(one =>
    [one.dataset.key, [one.dataset.value, one.textContent.trim()]]));
"""
BACKGROUND = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


def show(browser: Browser, page: Path, *, theme: str = "light", width: int = 1200) -> None:
    browser.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    browser.tell("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    browser.open(page.as_uri())


def test_it_loads_nothing_and_the_console_stays_empty_in_both_themes(
    browser: Browser, source: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    report(source, out=page)
    backgrounds: set[str] = set()
    for theme in ("light", "dark"):
        show(browser, page, theme=theme)
        assert browser.console() == []
        assert browser.run("return performance.getEntriesByType('resource').map(one => one.name)") == []
        assert browser.run("return document.scripts.length") == 0
        backgrounds.add(browser.run(BACKGROUND))
        # The style is applied, though the page's own policy forbids every other.
        assert browser.run("return getComputedStyle(document.querySelector('section')).borderRadius") == "10px"
    assert len(backgrounds) == 2


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_has_to_be_scrolled_sideways(browser: Browser, source: Path, tmp_path: Path, width: int) -> None:
    page = tmp_path / "page.html"
    report(source, out=page)
    show(browser, page, width=width)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true;")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    # Tables may be wider than a telephone: they scroll in a frame that the keyboard reaches.
    assert browser.run("""
        return [...document.querySelectorAll("table")].every(table => table.closest("[tabindex='0'][aria-label]"));
    """)
    outside = """
        return [...document.querySelectorAll("svg.plot rect")].filter(one => one.getBoundingClientRect().width === 0
            && one.getAttribute("height") !== "0.0").length;
    """
    assert browser.run(outside) == 0


def numbers(browser: Browser, page: Path) -> dict[str, tuple[str, str]]:
    show(browser, page)
    found: dict[str, tuple[str, str]] = {key: (value, text) for key, (value, text) in browser.run(NUMBERS).items()}
    return found


def check(found: dict[str, tuple[str, str]], key: str, expected: float | None) -> None:
    """Check what is shown, and what it was rounded from."""
    value, text = found[key]
    if expected is None:
        assert (value, text) == ("", "–")
    else:
        assert float(value) == pytest.approx(expected, abs=1e-9)
        assert float(text.replace(",", "")) == pytest.approx(expected, abs=0.0501)


def test_the_numbers_of_a_run_are_those_of_its_json(browser: Browser, record: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report(record, out=page)
    found = numbers(browser, page)
    run: dict[str, Any] = json.loads(record.with_suffix(".run.json").read_text(encoding="utf-8"))
    for key in ("requests", "steps", "tokens", "tokens_per_s", "lost_us", "hazard_count", "unresolved"):
        check(found, key, run[key])
    for kind in ("fine", "coarse"):
        assert run["fence"][kind] > 0
        check(found, f"fence.{kind}", run["fence"][kind])
    for mode, row in run["modes"].items():
        check(found, f"modes.{mode}.steps", row["steps"])
        check(found, f"modes.{mode}.fence.fine", row["fence"].get("fine", 0))
        check(found, f"modes.{mode}.lost_us", row["lost_us"])
        for share in ("p50", "p99"):
            check(found, f"modes.{mode}.slack_us.{share}", row["slack_us"][share])
            check(found, f"modes.{mode}.wait_us.{share}", row["wait_us"][share])
    assert run["fallbacks"]
    for row in run["fallbacks"]:
        for what in ("steps", "lost_us", "lost_from", "lost_slack_us", "lost_slack_from"):
            check(found, f"fallbacks.{row['mode']}.{row['reason']}.{what}", row[what])
    # All steps were timed, and all but the coarse ones are decodes.
    check(found, "histogram.slack_fine.median", run["modes"]["decode"]["slack_us"]["p50"])


def test_what_was_not_measured_is_a_dash(browser: Browser, untimed_record: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report(untimed_record, out=page)
    found = numbers(browser, page)
    for key in ("lost_us", "hazard_count", "modes.extend.lost_us"):
        check(found, key, None)
    unknown = [key for key in found if key.startswith("fallbacks.") and key.endswith("_us")]
    assert len(unknown) == 2
    for key in unknown:
        check(found, key, None)
    said = browser.run("return document.body.textContent")
    assert "What was lost isn't known: it was measured on 0 of 4 coarse steps that stand for others." in said
    assert "hazards (not checked)" in said
    check(found, "modes.decode.lost_us", 0.0)  # no step was coarse there


def distinct(value: Any, start: float) -> Any:  # noqa: ANN401 - JSON
    """Return JSON in which every number is another, so that none can stand in the place of its neighbour."""
    numbers = count(start, 1.25)

    def walk(one: Any) -> Any:  # noqa: ANN401 - as above
        if isinstance(one, dict):
            return {key: walk(inner) for key, inner in one.items()}
        if isinstance(one, list):
            return [walk(inner) for inner in one]
        return next(numbers) if isinstance(one, float) else int(next(numbers)) if isinstance(one, int) else one

    return walk(value)


def test_no_number_stands_in_the_place_of_another(browser: Browser, record: Path, tmp_path: Path) -> None:
    told = json.loads(record.read_text(encoding="utf-8"))
    modes, fallbacks = distinct(told["run"]["modes"], 1000.0), distinct(told["run"]["fallbacks"], 5000.0)
    told["run"] |= {"modes": modes, "fallbacks": fallbacks}
    path, page = tmp_path / "distinct.json", tmp_path / "page.html"
    path.write_text(json.dumps(told), encoding="utf-8")
    report(path, out=page)
    found = numbers(browser, page)
    for mode, row in modes.items():
        for which in ("slack_us", "wait_us"):
            for share in ("p50", "p99"):
                check(found, f"modes.{mode}.{which}.{share}", row[which][share])
        for kind in row["fence"]:
            check(found, f"modes.{mode}.fence.{kind}", row["fence"][kind])
        check(found, f"modes.{mode}.lost_us", row["lost_us"])
    for row in fallbacks:
        for what in ("steps", "lost_us", "lost_from", "lost_slack_us", "lost_slack_from"):
            check(found, f"fallbacks.{row['mode']}.{row['reason']}.{what}", row[what])


@pytest.mark.parametrize("of", ["capture", "analysis"])
def test_the_numbers_of_a_capture_are_those_of_its_analysis(
    browser: Browser, of: str, analysis: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    report(request.getfixturevalue(of), out=page)
    found = numbers(browser, page)
    told: dict[str, Any] = json.loads(analysis.read_text(encoding="utf-8"))
    check(found, "steps", len(told["steps"]))
    assert len(told["summary"]) == 2
    for row in told["summary"]:
        key = f"modes.{row['mode']}"
        check(found, f"{key}.steps", row["steps"])
        check(found, f"{key}.fence.coarse", row["coarse"])
        check(found, f"{key}.lost_us", row["lost_slack_us"])
        for share in ("p50", "p99"):
            check(found, f"{key}.slack_us.{share}", row[f"slack_{share}_us"])
            check(found, f"{key}.wait_us.{share}", row[f"wait_{share}_us"])


def test_two_runs_stand_side_by_side(browser: Browser, record: Path, coarse_record: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    report(record, out=page, against=coarse_record)
    found = numbers(browser, page)
    other = json.loads(coarse_record.with_suffix(".run.json").read_text(encoding="utf-8"))
    own = json.loads(record.with_suffix(".run.json").read_text(encoding="utf-8"))
    assert found["comparison.mode"][0] == "decode"
    for key, told in (("sides.run.fine", own), ("sides.other.coarse", other)):
        decodes = told["modes"]["decode"]
        check(found, f"{key}.steps", decodes["steps"])
        check(found, f"{key}.slack.p99", decodes["slack_us"]["p99"])
        check(found, f"{key}.wait.p50", decodes["wait_us"]["p50"])
    assert browser.console() == []
    titles = browser.run("return [...document.querySelectorAll('.pair strong')].map(one => one.textContent)")
    assert ["fine" in title for title in titles] == [True, False]


def test_two_timelines_have_one_scale_however_long_they_are(
    browser: Browser, record: Path, capture: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    report(record, out=page, against=capture)
    show(browser, page)
    axes = browser.run("""
        const plots = [...document.querySelectorAll(".pair svg.plot")];
        const said = one => one.getAttribute("x") + one.textContent;
        return plots.map(plot => [...plot.querySelectorAll(":scope > text.soft")].map(said).join());
    """)
    assert len(axes) == 2
    assert len(set(axes)) == 1


def test_a_picture_of_one_step_is_drawn_by_the_browser(browser: Browser, capture: Path, tmp_path: Path) -> None:
    picture = tmp_path / "step.svg"
    report(capture, timeline_svg=picture, step=10)
    show(browser, picture)
    assert browser.console() == []
    assert browser.run("return document.documentElement.tagName") == "svg"
    assert "step 10" in browser.run("return document.querySelector('title').textContent")
    assert browser.run("return document.querySelectorAll('svg.bar').length") > 10
