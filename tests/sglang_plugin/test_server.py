"""Real servers on a CPU: they say of each barrier what is counted beside the plugin, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sglang_fence.sglang_plugin.findings import EARLY_VERSIONS
from sglang_fence.sglang_plugin.targets import ONLY_MARKED, TARGETS
from tests.sglang_plugin.controls import files_left, prompts
from tests.sglang_plugin.serving import (
    alive,
    by,
    children,
    samples,
    serve,
    stop,
    total,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sglang_plugin.controls import Control
    from tests.sglang_plugin.serving import Server

pytestmark = pytest.mark.sglang


def _sglang_names(text: str) -> set[str]:
    lines = [line.split() for line in text.splitlines() if line.startswith("# TYPE ")]
    return {line[2] for line in lines if not line[2].startswith("sglang_fence")}


def _check_counts(server: Server) -> str:
    """Assert that the plugin's counts are the independent ones; return the metrics."""
    text, counted = server.settled(), server.counted()
    assert counted.total() > 0
    assert total(text, "sglang_fence_steps_total") == counted.total()
    steps = by(text, "sglang_fence_steps_total", "mode", "fence")
    assert steps == {(mode.lower(), fence): count for (mode, fence), count in counted.items()}
    fallbacks = by(text, "sglang_fence_coarse_fallbacks_total", "mode")
    coarse = {(mode,): count for (mode, fence), count in steps.items() if fence == "coarse"}
    assert fallbacks == coarse
    return text


def test_an_eager_server_is_coarse_for_reasons_and_is_otherwise_as_it_was(
    environment: Path, tmp_path: Path, control: Callable[[Path], Control]
) -> None:
    without = control(environment)
    with serve(environment, tmp_path) as server:
        assert server.generate(prompts()) == without.tokens
        text = _check_counts(server)
        assert set(by(text, "sglang_fence_coarse_fallbacks_total", "mode", "reason")) == {
            ("decode", "no_graph"),
            ("extend", "backend_unknown"),
        }
        assert _sglang_names(text) == _sglang_names(without.metrics)
        hooks = by(text, "sglang_fence_plugin_hook", "target", "state")
        asked = [target for target in TARGETS if target.key not in ONLY_MARKED]
        assert set(hooks) == {(target.path, "installed") for target in asked}
        assert by(text, "sglang_fence_loop_info", "loop") == {("overlap",): 1}
        assert samples(text, "sglang_fence_barrier_enabled", why="switch")[0][1] == 1
        assert samples(text, "sglang_fence_device_timing_enabled", why="no_timing_events")[0][1] == 0
        declared = by(text, "sglang_fence_declaration_info", "backend", "mode", "declared")
        assert declared[("TorchNativeAttnBackend", "decode", "in_replay")] == 1
        assert declared[("TorchNativeAttnBackend", "extend", "unknown")] == 1
        labels = samples(text, "sglang_fence_steps_total")[0][0]
        assert labels["model_name"] == samples(text, "sglang:num_running_reqs")[0][0]["model_name"]
        assert (labels["tp_rank"], labels["pp_rank"]) == ("0", "0")
        assert not by(text, "sglang_fence_observer_errors_total", "hook")
        assert total(text, "sglang_fence_observer_cost_seconds_total") > 0
        below = children(server.process.pid)
        assert stop(server) == 0
    assert not alive(below)
    assert files_left(tmp_path) == without.files
    log = server.log.read_text(errors="replace")
    assert not re.findall(r'File "\S*sglang_fence\S*"', log)
    assert "TorchNativeAttnBackend declares that shared reads end: decode in_replay, extend unknown" in log


def test_without_a_marker_late_versions_resolve_later_and_early_ones_unsoundly(
    environment: Path, tmp_path: Path
) -> None:
    with serve(environment, tmp_path, environ={"FENCE_TEST_GRAPHS": "plain"}, plugins=_GRAPHS) as server:
        server.generate(prompts())
        text = _check_counts(server)
        early = version_of(environment) in EARLY_VERSIONS
        decodes = total(text, "sglang_fence_steps_total", mode="decode")
        ends = by(text, "sglang_fence_steps_total", "mode", "ends", "fence")
        assert ends[("decode", "pre_replay" if early else "post_replay", "fine")] == decodes > 0
        assert total(text, "sglang_fence_downgrades_total", cause="no_marker") == (0 if early else decodes)
        assert total(text, "sglang_fence_unsound_resolutions_total", mode="decode") == (decodes if early else 0)
    assert server.log.read_text(errors="replace").count("which is earlier") == int(early)


def test_with_a_marker_decode_is_fine_from_inside_the_graph(environment: Path, tmp_path: Path) -> None:
    with serve(environment, tmp_path, environ={"FENCE_TEST_GRAPHS": "marker"}, plugins=_GRAPHS) as server:
        server.generate(prompts())
        text = _check_counts(server)
        ends = by(text, "sglang_fence_steps_total", "mode", "ends", "fence")
        assert set(ends) == {("decode", "in_replay", "fine"), ("extend", "unknown", "coarse")}
        assert not total(text, "sglang_fence_downgrades_total")
        assert not total(text, "sglang_fence_unsound_resolutions_total")
        assert not total(text, "sglang_fence_stale_publications_total")
        published = by(text, "sglang_fence_publications_total", "mode", "runner", "ends")
        assert published[("decode", "target", "in_replay")] == ends[("decode", "in_replay", "fine")]


def test_forced_coarse_says_so(environment: Path, tmp_path: Path) -> None:
    environ = {"FENCE_TEST_GRAPHS": "marker", "SGLANG_FORCE_COARSE_WAR_BARRIER": "1"}
    with serve(environment, tmp_path, environ=environ, plugins=_GRAPHS) as server:
        server.generate(prompts())
        text = _check_counts(server)
        assert {reason for _, reason in by(text, "sglang_fence_coarse_fallbacks_total", "mode", "reason")} == {"forced"}
        assert samples(text, "sglang_fence_config_info", force_coarse_war_barrier="true")


def test_a_barrier_that_is_off_is_disabled_and_has_no_reasons(environment: Path, tmp_path: Path) -> None:
    with serve(environment, tmp_path, environ={"SGLANG_ENABLE_WAR_BARRIER": "0"}) as server:
        server.generate(prompts())
        text = _check_counts(server)
        assert {fence for _, fence in by(text, "sglang_fence_steps_total", "mode", "fence")} == {"disabled"}
        assert samples(text, "sglang_fence_barrier_enabled", why="synchronous_device")[0][1] == 0


def test_a_loop_without_a_barrier_counts_its_steps_as_absent(environment: Path, tmp_path: Path) -> None:
    with serve(environment, tmp_path, "--disable-overlap-schedule") as server:
        server.generate(prompts())
        text = server.settled()
        assert {fence for _, fence in by(text, "sglang_fence_steps_total", "mode", "fence")} == {"absent"}
        assert by(text, "sglang_fence_loop_info", "loop") == {("normal",): 1}
        assert not total(text, "sglang_fence_coarse_fallbacks_total")
        assert not server.counted()


def test_both_ranks_of_two_have_their_series(environment: Path, tmp_path: Path) -> None:
    environ = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    with serve(environment, tmp_path, "--tp", "2", environ=environ) as server:
        server.generate(prompts())
        text = _check_counts(server)
        ranks = by(text, "sglang_fence_steps_total", "tp_rank")
        assert set(ranks) == {("0",), ("1",)}
        assert len(set(ranks.values())) == 1
        gauges = by(text, "sglang_fence_barrier_enabled", "tp_rank", "why")
        assert gauges == {("0", "switch"): 1, ("1", "switch"): 1}
        below = children(server.process.pid)
        assert stop(server) == 0
    assert not alive(below)


_GRAPHS = ("barrier_counting", "cpu_graphs")
_AT_START = ("run_event_loop", "event_loop_overlap")
_WHILE_SERVING = (
    "run_batch",
    "apply_war_barrier",
    "on_idle",
    "resolve_forward_inputs",
    "decode_resolve",
    "eager_execute",
    "publish_prefill",
)


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_hook_that_raises_costs_its_sight_and_nothing_else(
    environment: Path, tmp_path: Path, control: Callable[[Path], Control], place: str
) -> None:
    asked = tmp_path / "raise"
    asked.write_text("")
    environ = {"FENCE_TEST_GRAPHS": "marker", "FENCE_TEST_RAISE": str(asked), "FENCE_TEST_RAISE_AT": place}
    expected = control(environment).tokens
    with serve(environment, tmp_path, environ=environ, plugins=(*_GRAPHS, "failing_hooks")) as server:
        for key in _WHILE_SERVING:
            asked.write_text(key)
            assert server.generate(prompts()) == expected, key

            def counted(text: str, key: str = key) -> bool:
                return total(text, "sglang_fence_observer_errors_total", hook=key) > 0

            assert server.wait_for(counted), key
        assert stop(server) == 0


def test_without_its_first_and_last_hooks_a_server_serves(
    environment: Path, tmp_path: Path, control: Callable[[Path], Control]
) -> None:
    environ = {"FENCE_TEST_RAISE": ",".join(_AT_START)}
    with serve(environment, tmp_path, environ=environ, plugins=("barrier_counting", "failing_hooks")) as server:
        assert server.generate(prompts()) == control(environment).tokens
        assert stop(server) == 0
    log = server.log.read_text(errors="replace")
    assert all(f"planted in {key}" in log for key in _AT_START)
