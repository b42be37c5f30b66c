"""A plugin of its own, for tests: makes hooks raise. It acts when it is imported, before any plugin registers.

``FENCE_TEST_RAISE`` names the hooks, separated by commas, or a file that names them: that can be changed meanwhile.
"""

# ruff: noqa: ANN401 - what SGLang hands over has no types

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sglang_fence.sglang_plugin import guard

WHERE = os.environ.get("FENCE_TEST_RAISE", "")
PLACE = os.environ.get("FENCE_TEST_RAISE_AT", "before")


def register() -> None:
    """Nothing is left to do."""


def _asked() -> set[str]:
    text = Path(WHERE).read_text(encoding="utf-8") if os.sep in WHERE else WHERE
    return {name.strip() for name in text.split(",")}


def _break(hook_class: Any) -> None:
    original = hook_class.__init__

    def init(self: Any, target: Any, handler: Any, *args: Any) -> None:
        looks_after = type(handler).after is not guard.Handler.after
        name = "after" if looks_after else {"before": "before", "after": "over"}[PLACE]
        sound = getattr(handler, name)

        def perhaps_raise(*args: Any, **kwargs: Any) -> Any:
            if target.key in _asked():
                msg = f"planted in {target.key}"
                raise RuntimeError(msg)
            return sound(*args, **kwargs)

        setattr(handler, name, perhaps_raise)
        original(self, target, handler, *args)

    hook_class.__init__ = init


if WHERE:
    _break(guard.Hook)
