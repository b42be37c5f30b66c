"""The rules, a file each. A new one is a module with a class that fits :class:`rule.Rule`, and a line in ``RULES``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.audit.static.rules.constant_answer import ConstantAnswer
from sglang_fence.audit.static.rules.forgotten_child import ForgottenChild
from sglang_fence.audit.static.rules.old_name import OldName
from sglang_fence.audit.static.rules.pre_replay_reads import PreReplayReads
from sglang_fence.audit.static.rules.wrapper_inherits import WrapperInherits

if TYPE_CHECKING:
    from sglang_fence.audit.static.rules.rule import Rule

RULES: tuple[Rule, ...] = (WrapperInherits(), ForgottenChild(), OldName(), PreReplayReads(), ConstantAnswer())
