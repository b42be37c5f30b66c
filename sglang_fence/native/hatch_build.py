"""The wheel's build hook: compiles ``sglang_fence/native/*.c``, where there is a C compiler, and goes on where not."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PACKAGE = "sglang_fence/native"


class CompilingHook(BuildHookInterface[BuilderConfig]):
    """Builds in place for an editable install, and into the wheel otherwise."""

    PLUGIN_NAME = "custom"

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel with compiled parts is for one platform and every Python from 3.11 on."""
        sys.path.insert(0, self.root)
        try:
            from sglang_fence.native import build  # noqa: PLC0415 - from the tree that is built, and nowhere else
        finally:
            sys.path.remove(self.root)
        editable = version == "editable"
        if editable:
            target = Path(self.root, _PACKAGE)
        else:
            self._folder = tempfile.TemporaryDirectory()
            target = Path(self._folder.name)
        try:
            modules = build.build(target)
        except build.NotCompiledError as error:
            self.app.display_warning(f"without compiled parts, and all works without them: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"{build.TAG}-{build.platform_tag(modules)}"
        if not editable:
            build_data["force_include"].update({str(one): f"{_PACKAGE}/{one.name}" for one in modules})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatchling's
        """Remove what is in the wheel by now."""
        if self._folder is not None:
            self._folder.cleanup()
