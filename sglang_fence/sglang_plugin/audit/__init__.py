"""The audit inside SGLang: its captured decode and verify graphs, by the experiment of ``sglang_fence.audit``.

:mod:`command` starts an engine with dummy weights, in whose scheduler :mod:`hooks` are registered instead of the
observer's; :mod:`examiner` runs each decode again and again, :mod:`engine` is the process that asks for some.
"""

from __future__ import annotations
