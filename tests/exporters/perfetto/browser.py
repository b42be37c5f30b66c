"""A headless Chromium, driven through chromedriver by WebDriver's own JSON over HTTP."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")

ARGUMENTS = (
    "--headless",
    "--no-sandbox",  # Containers run as root, where Chromium has no sandbox.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nothing but loopback, whatever the page asks for.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1600,1000",
)


class Browser:
    """One session. Scripts are asynchronous functions: the last argument takes the result."""

    def __init__(self, address: str, session: str) -> None:
        self._session = f"{address}/session/{session}"

    def open(self, url: str) -> None:
        _post(f"{self._session}/url", {"url": url})

    def run(self, body: str, *args: object) -> Any:  # noqa: ANN401 - whatever the script returns
        """Run the body of an async JavaScript function, and return what it returns."""
        script = (
            "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);"
            f"(async (...args) => {{ {body} }})(...given).then("
            "value => done({value}), error => done({error: String(error)}));"
        )
        answer = _post(f"{self._session}/execute/async", {"script": script, "args": list(args)})
        assert "error" not in answer, answer["error"]
        return answer.get("value")

    def tell(self, command: str, **parameters: object) -> Any:  # noqa: ANN401 - whatever it answers
        """Give a command of the DevTools protocol, and return its answer."""
        return _post(f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        """Return what the console shows since the last call, one line an entry: ``LEVEL message``."""
        entries = _post(f"{self._session}/se/log", {"type": "browser"})
        return [f"{entry['level']} {entry['message']}" for entry in entries]

    def wait_for(self, condition: str, *, seconds: float = 60) -> Any:  # noqa: ANN401 - as above
        """Ask until the JavaScript expression ``condition`` is truthy; return it."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(f"return {condition};")):
            assert time.monotonic() < deadline, f"not in {seconds} s: {condition}; the console: {self.console()}"
            time.sleep(0.05)
        return value


@contextmanager
def chromium(profile: Path) -> Generator[Browser]:
    """Start a browser with an empty ``profile``, and end it afterwards."""
    assert CHROMIUM
    assert CHROMEDRIVER
    driver = subprocess.Popen([CHROMEDRIVER, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout
        port = next(match[1] for line in driver.stdout if (match := re.search(r"successfully on port (\d+)", line)))
        address = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": [*ARGUMENTS, f"--user-data-dir={profile}"]}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 60_000},
        }
        session = _post(f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        try:
            yield Browser(address, session)
        finally:
            _ask(urllib.request.Request(f"{address}/session/{session}", method="DELETE"))  # noqa: S310 - loopback
    finally:
        driver.terminate()
        driver.wait(30)


def _post(url: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
    data = json.dumps(body).encode()
    return _ask(urllib.request.Request(url, data, {"Content-Type": "application/json"}))  # noqa: S310 - loopback


def _ask(request: urllib.request.Request) -> Any:  # noqa: ANN401 - as above
    # Proxies of the environment aren't for loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error
