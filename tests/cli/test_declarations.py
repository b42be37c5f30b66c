"""``sglang-fence declarations``: the table of what is declared."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sglang_fence.attention.declarations import WRAPPED
from sglang_fence.attention.registry import LEAVES
from sglang_fence.contract import ForwardMode, SharedReadEnds

Table = dict[tuple[str, str], tuple[str, str | None]]


def _run(*arguments: str) -> str:
    command = [sys.executable, "-m", "sglang_fence", "declarations", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.fixture(scope="module")
def table() -> Table:
    rows = json.loads(_run("--json"))
    assert all(list(row) == ["backend", "mode", "declared", "deviation"] for row in rows)
    found = {(row["backend"], row["mode"]): (row["declared"], row["deviation"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_every_backend_is_there_in_the_modes_that_make_sense(table: Table) -> None:
    assert {backend for backend, _ in table} == {*LEAVES, *WRAPPED, "deepseek_v4 (DSPARK)"}
    assert {mode for _, mode in table} == {"extend", "decode", "target_verify", "draft_extend"}
    assert {mode for backend, mode in table if backend.startswith("hybrid_linear")} == {"extend", "decode"}
    assert {declared for declared, _ in table.values()} <= set(SharedReadEnds.__members__)


@pytest.mark.parametrize(
    ("backend", "extend", "decode", "verify"),
    [
        ("native", "UNKNOWN", "IN_REPLAY", "IN_REPLAY"),
        ("trtllm_mha", "PRE_REPLAY", "IN_REPLAY", "IN_REPLAY"),
        ("sparse", "UNKNOWN", "IN_REPLAY", "IN_REPLAY"),
        ("deepseek_v4", "PRE_REPLAY", "IN_REPLAY", "POST_REPLAY"),
        ("deepseek_v4 (DSPARK)", "PRE_REPLAY", "IN_REPLAY", "IN_REPLAY"),
        ("hybrid:trtllm_mha,native", "PRE_REPLAY", "IN_REPLAY", "IN_REPLAY"),
        ("hybrid:native,deepseek_v4", "UNKNOWN", "IN_REPLAY", "POST_REPLAY"),
        ("tbo:native", "UNKNOWN", "IN_REPLAY", "IN_REPLAY"),
        ("tbo:trtllm_mha", "PRE_REPLAY", "IN_REPLAY", "IN_REPLAY"),
        ("tbo:deepseek_v4", "PRE_REPLAY", "IN_REPLAY", "POST_REPLAY"),
        ("hybrid_linear:native", "UNKNOWN", "IN_REPLAY", None),
        ("hybrid_linear:trtllm_mha", "PRE_REPLAY", "IN_REPLAY", None),
        ("minimax:sparse,trtllm_mha", "UNKNOWN", "IN_REPLAY", "IN_REPLAY"),
        ("minimax:deepseek_v4,trtllm_mha", "PRE_REPLAY", "IN_REPLAY", "POST_REPLAY"),
    ],
)
def test_what_is_declared(table: Table, backend: str, extend: str, decode: str, verify: str | None) -> None:
    modes = (ForwardMode.EXTEND, ForwardMode.DECODE, ForwardMode.TARGET_VERIFY)
    found = [table[backend, mode][0] if (backend, mode) in table else None for mode in modes]
    assert found == [extend, decode, verify]


def test_a_reason_stands_beside_each_deviation_alone(table: Table) -> None:
    base = {"extend": "UNKNOWN", "decode": "IN_REPLAY", "target_verify": "IN_REPLAY", "draft_extend": "UNKNOWN"}
    for (_, mode), (declared, deviation) in table.items():
        assert (deviation is None) is (declared == base[mode])


def test_without_json_it_is_a_table_to_read() -> None:
    out = _run()
    assert "why it differs from" in out
    assert all(backend in out for backend in LEAVES)
    assert "POST_REPLAY" in out
