"""Whatever a condition is worth in a mode, it is never the contrary of what Python says."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_fence.audit.static.modes import MODES, truth
from sglang_fence.contract import ForwardMode

OWN = [name for name in vars(ForwardMode) if name.startswith("is_")]
names = st.sampled_from([f"ForwardMode.{mode.name}" for mode in MODES])
atoms = st.one_of(
    st.sampled_from([f"mode.{name}()" for name in OWN]),
    st.builds("mode {} {}".format, st.sampled_from(["is", "is not", "==", "!="]), names),
    st.builds("mode {} ({}, {})".format, st.sampled_from(["in", "not in"]), names, names),
    st.sampled_from(["True", "False", "unseen"]),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds("(not {})".format, inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=6,
)


def worth(condition: str, mode: ForwardMode) -> bool | None:
    return truth(ast.parse(condition, mode="eval").body, mode, lambda _: None)


@given(condition=conditions, mode=st.sampled_from(MODES), unseen=st.booleans())
def test_it_is_what_python_says_or_not_known(condition: str, mode: ForwardMode, *, unseen: bool) -> None:
    said = worth(condition, mode)
    scope = {"mode": mode, "ForwardMode": ForwardMode, "unseen": unseen}
    expected = bool(eval(condition, scope))  # noqa: S307 - the condition was put together above
    assert said in {None, expected}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["is_decode", "is_target_verify", "is_decode_or_idle", "is_idle", "is_cuda_graph"])
def test_predicates_that_all_releases_agree_on_are_known(name: str, mode: ForwardMode) -> None:
    assert worth(f"batch.forward_mode.{name}()", mode) is getattr(mode, name)()


def test_a_predicate_of_something_else_is_not_known() -> None:
    assert worth("self.algorithm.is_decode()", ForwardMode.DECODE) is None
