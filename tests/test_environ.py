"""The switches: each word that is accepted, each mistake that is named."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from sglang_fence.environ import SWITCHES, Switch, Switches
from sglang_fence.errors import ConfigError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

TRUE = ("1", "true", "yes", "y", "on")
FALSE = ("0", "false", "no", "n", "off", "")
WRONG = ("2", "-1", "tru", "enabled", "none", "1.0", "yes no", "t")


def _plain(word: str) -> str:
    return word


def _padded(word: str) -> str:
    return f" {word}\t"


SPELLINGS: tuple[Callable[[str], str], ...] = (_plain, str.upper, str.title, _padded)


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("word", "value"), [(w, True) for w in TRUE] + [(w, False) for w in FALSE])
def test_each_accepted_word(switch: Switch, spelling: Callable[[str], str], word: str, *, value: bool) -> None:
    assert switch.read({switch.name: spelling(word)}) is value


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
@pytest.mark.parametrize("word", WRONG)
def test_a_bad_value_names_the_variable_the_value_and_the_mend(switch: Switch, word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        switch.read({switch.name: word})
    message = str(caught.value)
    assert message.startswith(f"{switch.name}={word!r} isn't a boolean")
    assert "write one of 1, true, yes, on, 0, false, no, off, or unset it" in message
    assert isinstance(caught.value, UserError)


def test_names_and_defaults_are_those_of_the_design() -> None:
    assert {switch.name: switch.default for switch in SWITCHES} == {
        "SGLANG_ENABLE_WAR_BARRIER": False,
        "SGLANG_FORCE_COARSE_WAR_BARRIER": False,
        "SGLANG_ENABLE_PREFILL_WAR_READ_DONE": True,
        "SGLANG_FENCE_NATIVE": True,
    }
    assert all(switch.about.endswith(".") for switch in SWITCHES)


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Switches.from_environ({}) == Switches()
    assert [getattr(Switches(), field.name) for field in fields(Switches)] == [s.default for s in SWITCHES]


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_each_variable_sets_its_own_field_alone(switch: Switch) -> None:
    field_name = switch.name.removeprefix("SGLANG_").lower()
    switches = Switches.from_environ({switch.name: "off" if switch.default else "on"})
    changed = {f.name for f in fields(Switches) if getattr(switches, f.name) is not getattr(Switches(), f.name)}
    assert changed == {field_name}


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for switch in SWITCHES:
        monkeypatch.delenv(switch.name, raising=False)
    assert Switches.from_environ() == Switches()
    monkeypatch.setitem(os.environ, "SGLANG_FORCE_COARSE_WAR_BARRIER", "yes")
    assert Switches.from_environ() == Switches(force_coarse_war_barrier=True)


def test_one_bad_value_spoils_the_whole_reading() -> None:
    with pytest.raises(ConfigError, match="SGLANG_FORCE_COARSE_WAR_BARRIER='maybe'"):
        Switches.from_environ({"SGLANG_ENABLE_WAR_BARRIER": "1", "SGLANG_FORCE_COARSE_WAR_BARRIER": "maybe"})
