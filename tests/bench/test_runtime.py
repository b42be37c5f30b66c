"""``bench runtime``: the variants serve the same prompts, tokens are really compared, and a difference is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from typer.testing import CliRunner

from sglang_fence.bench import runtime
from sglang_fence.bench.generating import Generator
from sglang_fence.bench.random_model import ModelSize, write_checkpoint
from sglang_fence.bench.runtime_result import TokenCheck
from sglang_fence.cli.app import app
from sglang_fence.device.simulated.device import SimulatedDevice
from sglang_fence.engine.engine import Engine
from sglang_fence.engine.options import EngineOptions
from sglang_fence.errors import CapacityError, ConfigError, ModelError
from tests.bench.conftest import PLAN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sglang_fence.bench.runtime_result import RuntimeResult

VARIANTS = ["runtime", "runtime again", "coarse fence", "plain loop", "generate"]
SMALL = ["--hidden-size", "64", "--layers", "1", "--batches", "2", "--new-tokens", "4", "--rounds", "1"]


def test_tokens_in_float32_are_those_of_generate(runtime_result: RuntimeResult) -> None:
    (check,) = runtime_result.checks
    assert (check.dtype, check.tokens, check.equal) == ("float32", 18, 18)
    assert check.passed
    assert check.shortfall <= check.tolerance == 1e-3


def test_each_batch_has_each_variant_and_ratios_are_to_generate(runtime_result: RuntimeResult) -> None:
    assert [one.batch for one in runtime_result.batches] == [1, 3]
    for batch in runtime_result.batches:
        assert list(batch.step_us) == list(batch.tokens_per_s) == VARIANTS
        assert batch.step_us["generate"].ratio == batch.tokens_per_s["generate"].ratio == 1
        own, theirs = batch.tokens_per_s["runtime"], batch.tokens_per_s["generate"]
        assert own.ratios == (own.values[0] / theirs.values[0],)
        assert all(one.median > 0 for one in batch.tokens_per_s.values())


def test_the_same_checkpoint_is_written_each_time_and_never_ends(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    for name in ("one", "two"):
        write_checkpoint(ModelSize(64, 1, 128), tmp_path / name, torch.float32)
    assert torch.equal(state, torch.random.get_rng_state())
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    generator = Generator(tmp_path / "one", torch.device("cpu"), torch.float32)
    prompts = PLAN.prompts(3)
    outputs = generator.generate(prompts, 40)
    assert [len(output) for output in outputs] == [40] * 3
    assert generator.shortfall(prompts, outputs) <= 1e-3


def test_one_wrong_token_falls_short(tmp_path: Path) -> None:
    write_checkpoint(ModelSize(64, 1, 128), tmp_path, torch.float32)
    generator = Generator(tmp_path, torch.device("cpu"), torch.float32)
    prompts = PLAN.prompts(2)
    outputs = generator.generate(prompts, 8)
    outputs[1][5] = (outputs[1][5] + 1) % 128
    assert generator.shortfall(prompts, outputs) > 0.01


def test_a_check_allows_a_tie_and_what_generate_itself_falls_short_by() -> None:
    def check(shortfall: float, own: float) -> bool:
        return TokenCheck("float32", 10, 9, shortfall, own, 1e-3).passed

    assert check(1e-3, 0)
    assert not check(2e-3, 0)
    assert check(2e-3, 3e-3)


def test_wrong_tokens_end_the_command_with_status_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = runtime.served_by

    def wrong(engine: Engine) -> runtime.Serve:
        serve = real(engine)

        def shifted(prompts: Sequence[Sequence[int]], new_tokens: int) -> list[list[int]]:
            return [[(token + 1) % 512 for token in output] for output in serve(prompts, new_tokens)]

        return shifted

    monkeypatch.setattr(runtime, "served_by", wrong)
    written = tmp_path / "runtime.json"
    done = CliRunner().invoke(app, ["bench", "runtime", "--device", "simulated", *SMALL, "--json", str(written)])
    assert done.exit_code == 1, done.output
    assert "differ by more than a tie" in done.output
    assert '"passed": false' in written.read_text(encoding="utf-8")


def test_a_run_with_retractions_is_refused_since_its_time_is_not_comparable() -> None:
    options = EngineOptions(max_running=4, kv_tokens=160, prefix_cache=False, fence="fine")
    serve = runtime.served_by(Engine(SimulatedDevice(check_hazards=False), options))
    prompts = [[at + 1] * 16 for at in range(4)]
    assert [len(output) for output in serve(prompts[:1], 40)] == [40]
    with pytest.raises(CapacityError, match=r"with 4 requests at once there were \d+ retractions"):
        serve(prompts, 40)


def test_a_missing_checkpoint_is_a_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="can't load it"):
        Generator(tmp_path / "nothing", torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--hidden-size", "100"], "--hidden-size 100: give a multiple of 64"),
        (["--layers", "0"], "--layers 0: give 1 or more"),
        (["--batches", "1,1.5"], "'1.5' is no size; write whole numbers from 1 on, like 1,8,32"),
        (["--batches", "0"], "'0' is no size"),
        (["--batches", "a"], "'a' is no size; write whole numbers from 1 on"),
        (["--batches", "1,,2"], "'' is no size"),
        (["--batches", "9999999999"], "is no size"),
        (["--new-tokens", "1"], "give 2 or more"),
    ],
)
def test_sizes_that_cannot_be_had_are_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["bench", "runtime", "--device", "simulated", *arguments])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
