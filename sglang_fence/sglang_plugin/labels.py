"""The labels that SGLang puts on a scheduler's series: the model's name, and its ranks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sglang_fence.sglang_plugin.border import CONTEXT


def server_labels() -> dict[str, str]:
    """Return this scheduler's labels. The data-parallel rank is there where SGLang has one, as in its own series."""
    context: Any = import_module(CONTEXT)
    parallel = context.get_parallel()
    labels = {
        "model_name": model_name(context),
        "tp_rank": str(parallel.tp_rank),
        "pp_rank": str(parallel.pp_rank),
    }
    data_rank = getattr(parallel, "dp_rank", None)
    if data_rank is not None:
        labels["dp_rank"] = str(data_rank)
    return labels


def model_name(context: Any) -> str:  # noqa: ANN401 - SGLang's module
    """Return the name that the model is served under; 0.5.18 has it in the server's arguments alone."""
    serving = getattr(context, "get_serving", None)
    if serving is not None:
        return str(serving().served_model_name)
    return str(context.get_server_args().served_model_name)


def place() -> int:
    """Return which of the server's schedulers this is, from 0: no two of one server are the same."""
    context: Any = import_module(CONTEXT)
    parallel = context.get_parallel()
    inside = int(parallel.pp_rank) * int(parallel.tp_size) + int(parallel.tp_rank)
    return int(getattr(parallel, "dp_rank", None) or 0) * int(parallel.tp_size) * int(parallel.pp_size) + inside
