"""Cost tables: what replaces what, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sglang_fence.device.kernels import HOST_CALLS, KERNELS
from sglang_fence.device.simulated.costs import CostTable
from sglang_fence.errors import CostTableError

if TYPE_CHECKING:
    from pathlib import Path

US = 1_000_000  # ps


def load(tmp_path: Path, text: str) -> CostTable:
    path = tmp_path / "costs.json"
    path.write_text(text, encoding="utf-8")
    return CostTable.load(path)


def test_the_built_in_table_is_the_list_of_kernels() -> None:
    table = CostTable()
    assert table.kernel("layer") == KERNELS["layer"].us * US
    assert table.host("schedule") == HOST_CALLS["schedule"].us * US
    assert table.kernel("never heard of") == 1 * US


def test_named_costs_override_built_in_ones(tmp_path: Path) -> None:
    table = load(tmp_path, '{"kernels": {"layer": 0.25}, "host": {"schedule": 7}}')
    assert (table.kernel("layer"), table.host("schedule")) == (250_000, 7 * US)
    assert table.kernel("sample") == KERNELS["sample"].us * US
    assert table.host("launch") == HOST_CALLS["launch"].us * US


def test_a_default_replaces_every_built_in_cost(tmp_path: Path) -> None:
    table = load(tmp_path, '{"default_us": 0, "kernels": {"layer": 40}}')
    assert table.kernel("layer") == 40 * US
    assert [table.kernel("sample"), table.host("schedule"), table.kernel("never heard of")] == [0, 0, 0]


def test_an_empty_table_is_the_built_in_one(tmp_path: Path) -> None:
    table = load(tmp_path, "{}")
    assert [table.kernel(name) for name in KERNELS] == [CostTable().kernel(name) for name in KERNELS]


def test_random_tables_differ_by_seed_alone() -> None:
    def costs(seed: int) -> list[int]:
        table = CostTable.random(seed)
        return [*map(table.kernel, KERNELS), *map(table.host, HOST_CALLS)]

    assert costs(1) == costs(1)
    assert costs(1) != costs(2)
    assert min(costs(1)) >= 0


BAD = {
    '{"kernel": {}}': "unknown key 'kernel'",
    '{"kernels": {"laier": 4}}': "kernels.laier: no kernel of that name; did you mean layer",
    '{"host": {"zzz": 4}}': "host.zzz: no host call of that name; known: barrier, launch, process_results, schedule",
    '{"kernels": []}': "kernels is []; write an object",
    '{"kernels": {"layer": -1}}': "kernels.layer is -1; a time can't be negative",
    '{"kernels": {"layer": true}}': "kernels.layer is true; write a number",
    '{"kernels": {"layer": "4"}}': 'kernels.layer is "4"; write a number',
    '{"kernels": {"layer": null}}': "kernels.layer is null; write a number",
    '{"kernels": {"layer": 1e999}}': "kernels.layer is inf; write a finite number",
    '{"kernels": {"layer": NaN}}': "NaN is no JSON number",
    '{"host": {"schedule": -0.1}}': "host.schedule is -0.1; a time can't be negative",
    '{"default_us": -2}': "default_us is -2; a time can't be negative",
    '{"default_us": null}': "default_us is null; write a number",
    '{"default_us": false}': "default_us is false; write a number",
    '{"default_us": 1, "default_us": 2}': "'default_us' stands twice",
    "{": "not JSON",
    "[]": "write an object",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    with pytest.raises(CostTableError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "costs.json"))
    assert BAD[text] in message
    assert "\n" not in message


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CostTableError, match=r"nowhere\.json: can't be read: No such file"):
        CostTable.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("us", [-1.0, float("nan"), float("inf"), True])
def test_a_table_made_in_code_is_checked_as_well(us: float) -> None:
    with pytest.raises(CostTableError, match=r"kernels\.layer is"):
        CostTable(kernels={"layer": us})
