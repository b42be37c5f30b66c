"""A backend outside of the project, whose author believes that a decode has read everything before it is replayed."""

import sys

from sglang_fence.attention.native import NativeAttnBackend
from sglang_fence.audit.own import audit_backend
from sglang_fence.contract import ForwardMode, SharedReadEnds


class HopefulAttnBackend(NativeAttnBackend):
    """Gathers in the graph, as its base does, and claims otherwise."""

    name = "hopeful"

    def shared_read_ends(self, mode: ForwardMode) -> SharedReadEnds:
        return SharedReadEnds.PRE_REPLAY if mode.is_decode() else super().shared_read_ends(mode)


if __name__ == "__main__":
    report = audit_backend(HopefulAttnBackend)
    sys.exit("\n".join(report.sentences()) if report.unsound else 0)
