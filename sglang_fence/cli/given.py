"""Which options were given: one that would be ignored is refused, and never passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang_fence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

    import typer


def refuse_others(context: typer.Context, taken: Collection[str], because: str) -> None:
    """Refuse options that were given on the command line and aren't looked at.

    Args:
        context: of the command.
        taken: the parameters that are.
        because: the option that says so, and why.

    Raises:
        ConfigError: one was given.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in taken and source is not None and source.name == "COMMANDLINE":
            option = next((one for one in parameter.opts if one.startswith("--")), parameter.opts[0])
            msg = f"{because}: {option} means nothing there; leave it out"
            raise ConfigError(msg)
