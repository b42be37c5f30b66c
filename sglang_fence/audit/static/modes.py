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
    worth: bool | None
    match condition:
        case ast.Constant(value=value):
            worth = bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = truth(operand, mode, ask)
            worth = None if inner is None else not inner
        case ast.BoolOp(op=operator, values=values):
            parts = [truth(part, mode, ask) for part in values]
            decisive = isinstance(operator, ast.Or)
            open_ = None if None in parts else not decisive
            worth = decisive if decisive in parts else open_
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if is_mode(left):
            worth = _compared(operator, right, mode)
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _PREDICATES and is_mode(of):
            true, unsettled = _PREDICATES[name]
            worth = None if mode in unsettled else mode in true
        case ast.Call():
            worth = ask(condition)
        case _:
            worth = None
    return worth


def is_mode(expression: ast.expr) -> bool:
    """Whether an expression is the batch's mode, by its name."""
    if isinstance(expression, ast.Name):
        return expression.id in _MODE_NAMES
    return isinstance(expression, ast.Attribute) and expression.attr in _MODE_NAMES


def _compared(operator: ast.cmpop, right: ast.expr, mode: ForwardMode) -> bool | None:
    """Return what comparing ``mode`` with one mode, or with a collection of them, is worth."""
    fitting: tuple[type[ast.cmpop], ...]
    if isinstance(right, ast.Tuple | ast.List | ast.Set):
        listed, fitting = right.elts, (ast.In, ast.NotIn)
    else:
        listed, fitting = [right], (ast.Eq, ast.Is, ast.NotEq, ast.IsNot)
    values = [_mode_named(one) for one in listed]
    if _UNSEEN in values or not isinstance(operator, fitting):
        return None
    return (mode in values) is isinstance(operator, ast.Eq | ast.Is | ast.In)


def _mode_named(expression: ast.expr) -> object:
    """Return the mode that ``ForwardMode.X`` names, None for one that isn't asked about, ``_UNSEEN`` for all else."""
    if not isinstance(expression, ast.Attribute) or ast.unparse(expression.value).split(".")[-1] != "ForwardMode":
        return _UNSEEN
    return None if expression.attr in _ELSEWHERE else _BY_NAME.get(expression.attr, _UNSEEN)
