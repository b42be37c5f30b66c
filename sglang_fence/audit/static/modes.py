"""What a condition is worth in one forward mode: true, false, or not known (None)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from sglang_fence.contract import ForwardMode

if TYPE_CHECKING:
    from collections.abc import Callable

MODES = tuple(ForwardMode)

_BY_NAME = {mode.name: mode for mode in ForwardMode} | {"DRAFT_EXTEND_V2": ForwardMode.DRAFT_EXTEND}
_ELSEWHERE = frozenset({"SPLIT_PREFILL", "DLLM_EXTEND", "PREBUILT"})
"""Modes of SGLang's for which no answer is asked here."""

_EXTEND, _DECODE, _MIXED, _IDLE, _VERIFY, _DRAFT = (
    ForwardMode.EXTEND,
    ForwardMode.DECODE,
    ForwardMode.MIXED,
    ForwardMode.IDLE,
    ForwardMode.TARGET_VERIFY,
    ForwardMode.DRAFT_EXTEND,
)
_PREDICATES: dict[str, tuple[frozenset[ForwardMode], frozenset[ForwardMode]]] = {
    # name: modes in which it is true, modes in which releases or arguments differ
    "is_decode": (frozenset({_DECODE}), frozenset()),
    "is_decode_or_idle": (frozenset({_DECODE, _IDLE}), frozenset()),
    "is_idle": (frozenset({_IDLE}), frozenset()),
    "is_mixed": (frozenset({_MIXED}), frozenset()),
    "is_target_verify": (frozenset({_VERIFY}), frozenset()),
    "is_draft_extend": (frozenset({_DRAFT}), frozenset()),
    "is_draft_extend_v2": (frozenset({_DRAFT}), frozenset()),
    "is_extend": (frozenset({_EXTEND, _MIXED, _VERIFY}), frozenset({_DRAFT})),
    "is_prefill": (frozenset({_EXTEND, _MIXED}), frozenset({_VERIFY, _DRAFT})),
    "is_extend_or_draft_extend_or_mixed": (frozenset({_EXTEND, _MIXED}), frozenset({_DRAFT})),
    "is_extend_without_speculative": (frozenset({_EXTEND, _MIXED}), frozenset({_DRAFT})),
    "is_context_parallel_extend": (frozenset({_EXTEND, _MIXED}), frozenset({_VERIFY, _DRAFT})),
    "is_cuda_graph": (frozenset({_DECODE, _VERIFY, _IDLE}), frozenset()),
    "is_dllm_extend": (frozenset(), frozenset()),
    "is_split_prefill": (frozenset(), frozenset()),
    "is_prebuilt": (frozenset(), frozenset()),
}

_MODE_NAMES = frozenset({"fm", "mode", "forward_mode"})
_UNSEEN = object()


def truth(
    condition: ast.expr,
    mode: ForwardMode,
    ask: Callable[[ast.Call], bool | None],
) -> bool | None:
    """Evaluate a condition.

    Args:
        condition: from the source.
        mode: the mode of the batch, wherever the source names one.
        ask: what a call is worth that isn't one of the mode's predicates.
    """
    if isinstance(condition, ast.Constant):
        return bool(condition.value)
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        inner = truth(condition.operand, mode, ask)
        return None if inner is None else not inner
    if isinstance(condition, ast.BoolOp):
        parts = [truth(part, mode, ask) for part in condition.values]
        decisive = isinstance(condition.op, ast.Or)
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if isinstance(condition, ast.Compare):
        return _compared(condition, mode)
    if isinstance(condition, ast.Call):
        if isinstance(condition.func, ast.Attribute) and condition.func.attr in _PREDICATES:
            true, open_ = _PREDICATES[condition.func.attr]
            return None if mode in open_ or not is_mode(condition.func.value) else mode in true
        return ask(condition)
    return None


def is_mode(expression: ast.expr) -> bool:
    """Whether an expression is the batch's mode, by its name."""
    if isinstance(expression, ast.Name):
        return expression.id in _MODE_NAMES
    return isinstance(expression, ast.Attribute) and expression.attr in _MODE_NAMES


def _compared(condition: ast.Compare, mode: ForwardMode) -> bool | None:
    if len(condition.ops) != 1 or not is_mode(condition.left):
        return None
    listed = condition.comparators[0]
    several = isinstance(listed, ast.Tuple | ast.List | ast.Set)
    values = [_mode_named(one) for one in (listed.elts if isinstance(listed, ast.Tuple | ast.List | ast.Set) else [listed])]
    if _UNSEEN in values:
        return None
    match condition.ops[0]:
        case ast.Eq() | ast.Is() if not several:
            return values[0] is mode
        case ast.NotEq() | ast.IsNot() if not several:
            return values[0] is not mode
        case ast.In() if several:
            return mode in values
        case ast.NotIn() if several:
            return mode not in values
        case _:
            return None


def _mode_named(expression: ast.expr) -> object:
    """Return the mode that ``ForwardMode.X`` names, None for one that isn't asked about, ``_UNSEEN`` for all else."""
    if not isinstance(expression, ast.Attribute) or ast.unparse(expression.value).split(".")[-1] != "ForwardMode":
        return _UNSEEN
    return None if expression.attr in _ELSEWHERE else _BY_NAME.get(expression.attr, _UNSEEN)
