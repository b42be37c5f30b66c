"""The compose file: accepted by a real parser, pinned, hardened, closed to the outside, complete in each profile."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from sglang_fence.sglang_plugin.switches import problems
from tests.deploy.layout import COMPOSE, PINNED, accepted, documents, dump, load, run
from tests.deploy.mounted import binds, services

if TYPE_CHECKING:
    from pathlib import Path

PROFILES = {"gpu": {"sglang"}, "demo": {"demo"}}
ALWAYS = {"alertmanager", "grafana", "otel-collector", "prometheus", "tempo"}


def parser() -> list[str]:
    """Return the command that reads compose files, or skip the test."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker") and run("docker", "compose", "version").returncode == 0:
        return ["docker", "compose"]
    pytest.skip("needs docker-compose")


@pytest.mark.parametrize("profile", PROFILES)
def test_a_real_parser_accepts_it(profile: str) -> None:
    printed = accepted(*parser(), "-f", COMPOSE, "--profile", profile, "config")
    (read,) = documents(printed)
    assert PROFILES[profile] | ALWAYS <= set(read["services"])
    assert "${" not in printed


def test_the_parser_refuses_what_is_wrong(tmp_path: Path) -> None:
    broken = load(COMPOSE)
    broken["services"]["tempo"]["imagee"] = broken["services"]["tempo"].pop("image")
    path = tmp_path / "compose.yaml"
    path.write_text(dump(broken), encoding="utf-8")
    done = run(*parser(), "-f", path, "config")
    assert done.returncode != 0
    assert "imagee" in done.stderr


def test_each_profile_has_what_it_needs_and_nothing_of_the_other() -> None:
    started = {
        profile: {name for name, service in services().items() if profile in service.get("profiles", [profile])}
        for profile in PROFILES
    }
    assert started == {profile: own | ALWAYS for profile, own in PROFILES.items()}
    for profile, names in started.items():
        needed = {other for name in names for other in services()[name].get("depends_on", ())}
        assert needed <= names, profile
    assert "deploy" not in services()["demo"]
    assert services()["sglang"]["deploy"]["resources"]["reservations"]["devices"]


def test_images_are_pinned() -> None:
    images = {service["image"] for service in services().values()}
    assert not [image for image in images if not PINNED.fullmatch(image)]


def test_all_are_hardened_and_open_to_this_machine_alone() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert service.get("user", "10001") not in {"root", "0"}, name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_what_is_mounted_is_there_and_read_only() -> None:
    mounted = [bind for service in services().values() for bind in binds(service)]
    assert mounted
    for bind in mounted:
        assert bind.source.exists(), bind
        assert bind.mode == "ro", bind


def test_volumes_that_are_named_are_declared_and_no_more() -> None:
    used = {
        volume.split(":")[0]
        for service in services().values()
        for volume in service.get("volumes", ())
        if not volume.startswith(".")
    }
    assert used == set(load(COMPOSE)["volumes"])


def test_the_plugin_can_use_what_its_switches_are_set_to() -> None:
    environment = services()["sglang"]["environment"]
    # As the parser fills it in: ${NAME:-default} is its default.
    values = {name: value.split(":-")[1].rstrip("}") for name, value in environment.items() if ":-" in value}
    own = {name: value for name, value in values.items() if name.startswith("SGLANG_FENCE")}
    assert own
    assert not problems(own)


def test_grafana_lets_people_look_and_nobody_in() -> None:
    environment = services()["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] != "Admin"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert not [name for name in environment if "PASSWORD" in name]
