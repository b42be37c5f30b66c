"""Results survive being written and read, and what isn't one is refused in a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sglang_fence.bench.fence_result import FenceResult
from sglang_fence.bench.result_files import load, to_text
from sglang_fence.bench.runtime_result import RuntimeResult
from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_fence_result_is_read_back(fence_result: FenceResult, tmp_path: Path) -> None:
    path = tmp_path / "fence.json"
    path.write_text(to_text("fence", fence_result.to_json()), encoding="utf-8")
    found = load(path, "fence", FenceResult.from_json)
    assert [cell.shape for cell in found.cells] == [cell.shape for cell in fence_result.cells]
    for cell, other in zip(found.cells, fence_result.cells, strict=True):
        assert cell.ideal_steps_per_s == pytest.approx(other.ideal_steps_per_s)
        for name, one in cell.variants.items():
            assert one.values == pytest.approx(other.variants[name].values)
            assert one.ratios == pytest.approx(other.variants[name].ratios)
    assert (found.machine, found.settings) == (fence_result.machine, fence_result.settings)


def test_a_runtime_result_is_read_back(runtime_result: RuntimeResult, tmp_path: Path) -> None:
    path = tmp_path / "runtime.json"
    path.write_text(to_text("runtime", runtime_result.to_json()), encoding="utf-8")
    found = load(path, "runtime", RuntimeResult.from_json)
    assert found.settings == runtime_result.settings
    assert [check.equal for check in found.checks] == [check.equal for check in runtime_result.checks]
    for batch, other in zip(found.batches, runtime_result.batches, strict=True):
        for name, one in batch.step_us.items():
            assert one.values == pytest.approx(other.step_us[name].values, rel=1e-6)


def test_what_is_written_is_json_with_its_name_and_format(fence_result: FenceResult) -> None:
    content = json.loads(to_text("fence", fence_result.to_json()))
    assert (content["bench"], content["format"]) == ("fence", 1)
    closer = content["cells"][1]
    assert closer["shape"]["schedule_us"] == 40
    assert closer["fine_over_coarse"] == pytest.approx(1.16)
    assert set(content["machine"]) >= {"device", "cpu", "python", "torch"}


def test_lists_of_plain_values_take_one_line() -> None:
    text = to_text("x", {"values": [1.0, 2.5], "rows": [{"name": "é", "third": 1 / 3}], "none": []})
    assert text == (
        '{\n "bench": "x",\n "format": 1,\n "values": [1.0, 2.5],\n "rows": [\n  {"name": "é", "third": 0.3333333}\n ],'
        '\n "none": []\n}\n'
    )


def without(key: str) -> dict[str, Any]:
    whole: dict[str, Any] = {"bench": "fence", "format": 1, "machine": {}, "settings": {}, "cells": []}
    return {name: value for name, value in whole.items() if name != key}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "is no result of bench fence"),
        (json.dumps(without("")), "lacks figures"),
        (json.dumps(without("bench")), "is no result of bench fence"),
        (json.dumps(without("cells")), "lacks figures"),
        (json.dumps({**without(""), "format": 2}), "in format 1"),
        (json.dumps({**without(""), "cells": [{"steps_per_s": {}}]}), "lacks figures"),
        (json.dumps({**without(""), "cells": 3}), "lacks figures"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "fence.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as refused:
        load(path, "fence", FenceResult.from_json)
    assert "make it anew with: sglang-fence bench fence" in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load(tmp_path / "fence.json", "fence", FenceResult.from_json)
