"""A plugin of its own, for tests: makes one of the hooks raise. It acts when it is imported, before any registers."""

# ruff: noqa: ANN401 - what SGLang hands over has no types

from __future__ import annotations

import os
from typing import Any

from sglang_fence.sglang_plugin import guard

TARGET = os.environ.get("FENCE_TEST_RAISE", "")
PLACE = os.environ.get("FENCE_TEST_RAISE_AT", "before")


def register() -> None:
    """Nothing is left to do."""


def _break(hook_class: Any) -> None:
    original = hook_class.around

    def around(self: Any) -> Any:
        if self.target.key == TARGET:

            def raising(*_: Any, **__: Any) -> None:
                msg = f"planted in {TARGET}"
                raise RuntimeError(msg)

            setattr(self._handler, PLACE, raising)
        return original(self)

    hook_class.around = around


if TARGET:
    _break(guard.Hook)
