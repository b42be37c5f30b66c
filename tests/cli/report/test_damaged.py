"""Files that somebody wrote into: each gives a page, or one line that says that it isn't whole; never a traceback."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_fence.cli.report.page import page
from sglang_fence.cli.report.sources import read_facts
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

WRONG = [
    "NaN",
    "Infinity",
    "1e999",
    "-5",
    "-0.5",
    "1e300",
    "1" + "0" * 400,
    "null",
    "true",
    '"x"',
    '"\\ud800"',
    "[]",
    "{}",
]


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:  # noqa: ANN401 - JSON
    """Return the way to every value, the first two of each list standing for all of it."""
    found: list[tuple[str | int, ...]] = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, one in inner:
        found += places(one, (*path, key))
    return found


@pytest.mark.parametrize("source", ["record", "analysis"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_value_that_is_wrong_is_told_or_does_no_harm(
    source: str, data: st.DataObject, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    told = json.loads(request.getfixturevalue(source).read_text(encoding="utf-8"))
    path = data.draw(st.sampled_from(places(told)))
    wrong = data.draw(st.sampled_from(WRONG))
    *way, last = path
    damaged = copy.deepcopy(told)
    holder = damaged
    for key in way:
        holder = holder[key]
    holder[last] = "WRONG"
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(damaged).replace('"WRONG"', wrong), encoding="utf-8")
    with suppress(ConfigError):
        page(read_facts(file)).encode()


@pytest.mark.parametrize("wrong", ["NaN", "Infinity", "-1.0", '"12"', "true"])
def test_a_duration_that_is_none_is_told(wrong: str, record: Path, tmp_path: Path) -> None:
    told = json.loads(record.read_text(encoding="utf-8"))
    told["steps"][0]["forward_us"] = "WRONG"
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(told).replace('"WRONG"', wrong), encoding="utf-8")
    with pytest.raises(ConfigError, match="isn't whole"):
        read_facts(file)
