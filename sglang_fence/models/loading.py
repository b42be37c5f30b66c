"""Loading: the embedded default, a directory, or a hub name."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sglang_fence.errors import ConfigError, ModelError
from sglang_fence.models.served import ATTENTION_NAME, ServedModel, paged_attention
from sglang_fence.models.tokenizer import (
    BOS,
    EOS,
    PAD,
    VOCAB_SIZE,
    ByteTokenizer,
    CheckpointTokenizer,
    NoTokenizer,
    Tokenizer,
)

if TYPE_CHECKING:
    from collections.abc import Generator

EMBEDDED = "embedded"
"""The name of the embedded default model."""

EMBEDDED_CONTEXT = 512

SERVED_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""``model_type`` values whose forward is exactly embed, layers, norm, head; others scale or branch in between."""

_SEED = 20_240_229


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What a run asks of its model."""

    model: str = EMBEDDED
    dtype: str = "auto"
    """``auto`` (the checkpoint's on CUDA, float32 on the CPU), ``float32`` or ``bfloat16``."""
    sliding_window: int | None = None
    """Gives layers this window, the current token included; None: as the checkpoint says."""
    context_len: int | None = None
    """Shortens the context; None: as the checkpoint says, 4,096 at the most."""
    sliding_layers: tuple[int, ...] | None = None
    """Which layers get ``sliding_window``, by index; None: every layer."""


_LONGEST_DEFAULT = 4096


def embedded_config() -> dict[str, Any]:
    """Config of the embedded Llama.

    ``initializer_range`` is 0.3, not 0.02, so that attending to a foreign page changes the next token (seen in 170 of
    200 cases against 58): a torn read shows in the output.
    """
    return {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": EMBEDDED_CONTEXT,
        "initializer_range": 0.3,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def embedded_causal_lm() -> Any:  # noqa: ANN401 - Transformers' model
    """Make the embedded model, the same each time, in float32 on the CPU; the caller's random state is kept."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - an extra, and slow to import

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        return LlamaForCausalLM(LlamaConfig(**embedded_config())).eval()


def load_model(options: ModelOptions, device: torch.device) -> ServedModel:
    """Load a model onto ``device`` and take it apart.

    Raises:
        ModelError: it is missing, unreadable, or not of a type that is served.
        ConfigError: a window or context length that it can't have.
    """
    try:
        from transformers import AttentionInterface  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        msg = "serving needs Transformers: pip install 'sglang-fence[model]'"
        raise ModelError(msg) from error
    AttentionInterface.register(ATTENTION_NAME, paged_attention)
    causal_lm, tokenizer = _embedded() if options.model == EMBEDDED else _load_checkpoint(options.model)
    config = causal_lm.config
    config._attn_implementation = ATTENTION_NAME  # noqa: SLF001 - the attribute that Transformers dispatches on
    dtype = _dtype(options.dtype, device, causal_lm.dtype)
    causal_lm = causal_lm.to(device=device, dtype=dtype).eval()
    causal_lm.requires_grad_(requires_grad=False)
    return ServedModel(
        name=options.model,
        causal_lm=causal_lm,
        tokenizer=tokenizer,
        windows=_windows(config, options.sliding_window, options.sliding_layers),
        context_len=_context_len(config, options),
        eos_ids=_eos_ids(causal_lm),
    )


def _embedded() -> tuple[Any, Tokenizer]:
    return embedded_causal_lm(), ByteTokenizer()


def _load_checkpoint(name: str) -> tuple[Any, Tokenizer]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415

    local = Path(name).expanduser()
    looks_local = name.startswith(("/", ".", "~")) or local.exists()
    if looks_local and not (local / "config.json").is_file():
        what = "isn't there" if not local.exists() else "has no config.json"
        msg = f"model {name!r} {what}: give a directory with a checkpoint, a hub name, or leave --model out"
        raise ModelError(msg)
    source = str(local) if looks_local else name
    try:
        with _retries_unheard():
            config = AutoConfig.from_pretrained(source)
    except Exception as error:  # what a damaged config.json makes Transformers raise is anybody's guess
        msg = f"model {name!r} can't be read ({_first_line(error)}): give a directory or a hub name that exists"
        raise ModelError(msg) from error
    if config.model_type not in SERVED_TYPES:
        msg = f"model {name!r} is a {config.model_type!r}; served are {', '.join(SERVED_TYPES)}"
        raise ModelError(msg)
    try:
        with bars_on_terminals_only():
            loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype="auto", output_loading_info=True)
    except Exception as error:  # likewise, of damaged weights
        msg = f"model {name!r} can't be loaded ({_first_line(error)}): check its weight files"
        raise ModelError(msg) from error
    causal_lm, loading = loaded
    if loading["missing_keys"]:  # Transformers would serve random numbers in their place
        msg = f"model {name!r} has no weights for {min(loading['missing_keys'])} and others: check its weight files"
        raise ModelError(msg)
    try:
        own: Any = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError):
        return causal_lm, NoTokenizer(name)
    # A Qwen without tokenizer files gets one that knows its special tokens and nothing else.
    empty = len(own) <= len(own.all_special_tokens)
    return causal_lm, NoTokenizer(name) if empty else CheckpointTokenizer(own)


@contextmanager
def _retries_unheard() -> Generator[None]:
    """Keep the hub's account of its retries out of the way: what comes of them is one error."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(level)


@contextmanager
def bars_on_terminals_only() -> Generator[None]:
    """Keep Transformers' progress bars out of log files, where an error is one line."""
    from transformers.utils import logging as bars  # noqa: PLC0415

    hide = bars.is_progress_bar_enabled() and not sys.stderr.isatty()
    if hide:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            bars.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0].rstrip(" .:")


def _dtype(asked: str, device: torch.device, own: torch.dtype) -> torch.dtype:
    if asked == "auto":
        return torch.float32 if device.type == "cpu" else own
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[asked]


def _windows(
    config: Any,  # noqa: ANN401 - Transformers' config
    asked: int | None,
    which: tuple[int, ...] | None,
) -> tuple[int | None, ...]:
    layers = int(config.num_hidden_layers)
    if asked is not None:
        if asked < 1:
            msg = f"--sliding-window {asked}: a window holds at least the current token; give 1 or more"
            raise ConfigError(msg)
        return tuple(asked if which is None or layer in which else None for layer in range(layers))
    window = getattr(config, "sliding_window", None)
    if window is None or getattr(config, "use_sliding_window", True) is False:
        return (None,) * layers
    types = getattr(config, "layer_types", None) or ["sliding_attention"] * layers
    return tuple(int(window) if kind == "sliding_attention" else None for kind in types)


def _context_len(config: Any, options: ModelOptions) -> int:  # noqa: ANN401 - Transformers' config
    own = int(config.max_position_embeddings)
    if options.context_len is None:
        return min(own, _LONGEST_DEFAULT)
    if not 1 < options.context_len <= own:
        msg = f"--context-length {options.context_len}: the model takes 2 to {own} tokens"
        raise ConfigError(msg)
    return options.context_len


def _eos_ids(causal_lm: Any) -> frozenset[int]:  # noqa: ANN401 - Transformers' model
    eos = getattr(causal_lm.generation_config, "eos_token_id", None)
    if eos is None:
        eos = causal_lm.config.eos_token_id
    if eos is None:
        return frozenset()
    return frozenset(eos if isinstance(eos, list) else [int(eos)])
