"""Loading: the embedded model is always the same; what can't be served is refused by name, with the mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from sglang_fence.errors import ConfigError, ModelError
from sglang_fence.models.loading import ModelOptions, embedded_causal_lm, embedded_config, load_model
from sglang_fence.models.tokenizer import EOS, ByteTokenizer, NoTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sglang_fence.models.served import ServedModel

CPU = torch.device("cpu")


def load(model: Path | str, **options: Any) -> ServedModel:  # noqa: ANN401 - any option
    return load_model(ModelOptions(model=str(model), **options), CPU)


def config(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any key of a config
    """Return the embedded model's config, with ``changes``."""
    return {**embedded_config(), **changes}


def save(path: Path, **changes: Any) -> Path:  # noqa: ANN401 - any key of a config
    """Save a small Llama whose config differs from the embedded one's by ``changes``."""
    LlamaForCausalLM(LlamaConfig(**config(**changes))).save_pretrained(path)
    return path


def weights(model: ServedModel) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = model.causal_lm.state_dict()
    return state


def test_the_embedded_model_is_the_same_each_time() -> None:
    one, two = load_model(ModelOptions(), CPU), load_model(ModelOptions(), CPU)
    assert all(torch.equal(tensor, weights(two)[name]) for name, tensor in weights(one).items())
    assert isinstance(one.tokenizer, ByteTokenizer)
    assert (one.windows, one.context_len, set(one.eos_ids)) == ((None,) * 4, 512, {EOS})
    assert not any(tensor.requires_grad for tensor in one.causal_lm.parameters())


def test_making_it_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    embedded_causal_lm()
    assert torch.equal(torch.rand(3), expected)


def test_its_weights_depend_on_no_random_state_of_the_caller() -> None:
    torch.manual_seed(1)
    one = embedded_causal_lm()
    torch.manual_seed(2)
    assert torch.equal(one.lm_head.weight, embedded_causal_lm().lm_head.weight)


def test_a_checkpoint_without_a_tokenizer_is_served_by_ids(tmp_path: Path) -> None:
    model = load(save(tmp_path / "model", num_hidden_layers=2))
    assert (model.num_layers, model.vocab_size) == (2, 260)
    assert isinstance(model.tokenizer, NoTokenizer)


def nowhere(path: Path) -> None:
    assert not path.exists()


def no_config(path: Path) -> None:
    path.mkdir()


def a_file(path: Path) -> None:
    path.write_text("weights, I swear")


def config_is_no_json(path: Path) -> None:
    path.mkdir()
    (path / "config.json").write_text("{")


def gpt2(path: Path) -> None:
    GPT2Config(n_layer=1).save_pretrained(path)


def no_weights(path: Path) -> None:
    LlamaConfig(**embedded_config()).save_pretrained(path)


def garbage(path: Path) -> None:
    no_weights(path)
    (path / "model.safetensors").write_bytes(b"garbage" * 10)


def pickled_garbage(path: Path) -> None:
    no_weights(path)
    (path / "pytorch_model.bin").write_bytes(b"garbage" * 10)


def cut_short(path: Path) -> None:
    file = save(path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def of_other_shapes(path: Path) -> None:
    save(path, hidden_size=32)
    no_weights(path)


def of_fewer_layers(path: Path) -> None:
    save(path, num_hidden_layers=2)
    no_weights(path)


LEAVE_OUT = "give a directory with a checkpoint, a hub name, or leave --model out"
CHECK = "check its weight files"
BAD: dict[Callable[[Path], None], tuple[str, str]] = {
    nowhere: ("isn't there", LEAVE_OUT),
    no_config: ("has no config.json", LEAVE_OUT),
    a_file: ("has no config.json", LEAVE_OUT),
    config_is_no_json: ("not a valid JSON file", "give a directory or a hub name that exists"),
    gpt2: ("is a 'gpt2'", "served are llama, mistral, qwen2, qwen3"),
    no_weights: ("no file named", CHECK),
    garbage: ("can't be loaded", CHECK),
    pickled_garbage: ("can't be loaded", CHECK),
    cut_short: ("can't be loaded", CHECK),
    of_other_shapes: ("can't be loaded", CHECK),
    of_fewer_layers: ("no weights for model.layers.2.", CHECK),
}


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_a_bad_model_is_refused_by_name_with_the_mend(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "model"
    make(path)
    with pytest.raises(ModelError) as caught:
        load(path)
    message = str(caught.value)
    what, mend = BAD[make]
    assert message.startswith(f"model {str(path)!r} ")
    assert what in message
    assert message.endswith(mend)
    assert "\n" not in message


def test_a_hub_name_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=r"model 'nobody/nothing' can't be read .*that exists$"):
        load("nobody/nothing")


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_without_the_current_token_is_refused(window: int) -> None:
    with pytest.raises(ConfigError, match=f"--sliding-window {window}: .*give 1 or more"):
        load("embedded", sliding_window=window)


@pytest.mark.parametrize("length", [0, 1, 513])
def test_a_context_that_the_model_lacks_is_refused(length: int) -> None:
    with pytest.raises(ConfigError, match=f"--context-length {length}: the model takes 2 to 512 tokens"):
        load("embedded", context_len=length)


def test_windows_come_from_the_option_or_the_checkpoint(tmp_path: Path) -> None:
    assert load("embedded", sliding_window=7).windows == (7,) * 4
    mistral = MistralConfig(**config(sliding_window=9, num_hidden_layers=2, head_dim=16))
    MistralForCausalLM(mistral).save_pretrained(tmp_path / "model")
    assert load(tmp_path / "model").windows == (9, 9)
    assert load(tmp_path / "model", sliding_window=3).windows == (3, 3)


@pytest.mark.parametrize(("asked", "expected"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_dtype_is_float32_on_the_cpu_unless_asked_for(asked: str, expected: torch.dtype) -> None:
    assert load("embedded", dtype=asked).causal_lm.dtype is expected
