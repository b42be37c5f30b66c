"""Fixtures: a dump as text."""

from __future__ import annotations

import pytest

from sglang_fence.observe.flight.form import to_text
from tests.observe.flight.facts_of import dump_of, step_of


@pytest.fixture
def dump_text() -> str:
    """Return the content of a dump of two steps."""
    return to_text(dump_of(step_of(4), step_of(5), in_hand=4))
