"""Container files: pinned, not root, made of files that are there, of one version with whatever runs them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import typer
from typer.core import TyperGroup

import sglang_fence
from sglang_fence.cli.app import app
from tests.deploy.kustomizing import OVERLAY
from tests.deploy.layout import DEPLOY, PINNED, ROOT, load
from tests.deploy.mounted import services

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted((DEPLOY / "container").glob("*.Containerfile"))
OF_SERVICE = {"sglang": "sglang.Containerfile", "demo": "runtime.Containerfile"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return its instructions, each with what follows it, comments and line breaks gone."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word, rest.strip()) for word, _, rest in found]


def arguments(path: Path) -> dict[str, str]:
    """Return its build arguments by their defaults."""
    return dict(rest.split("=", 1) for word, rest in instructions(path) if word == "ARG")


def test_there_are_both() -> None:
    assert [path.name for path in FILES] == sorted(OF_SERVICE.values())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_starts_from_an_image_that_is_pinned(path: Path) -> None:
    images = [rest.split()[0] for word, rest in instructions(path) if word == "FROM"]
    assert images
    for image in images:
        filled = re.sub(r"\$\{(\w+)\}", lambda match: arguments(path)[match[1]], image)
        assert PINNED.fullmatch(filled), filled


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_ends_as_a_user_who_is_not_root(path: Path) -> None:
    users = [rest for word, rest in instructions(path) if word == "USER"]
    # A number: Kubernetes can't tell from a name that it isn't root.
    assert users[-1:] == ["10001:10001"]
    later = [word for word, _ in instructions(path)][-2:]
    assert later == ["ENTRYPOINT", "CMD"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_it_copies_is_there_and_not_ignored(path: Path) -> None:
    copied = [
        source
        for word, rest in instructions(path)
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    ignore = path.with_name(f"{path.name}.dockerignore").read_text(encoding="utf-8").split()
    assert "*" in ignore
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignore
    # What the package is built from, by pyproject.toml.
    assert {"pyproject.toml", "README.md", "LICENSE", "sglang_fence", "exporters"} <= set(copied)


def test_an_image_is_called_by_the_versions_that_it_has() -> None:
    own = sglang_fence.__version__
    sglang = arguments(DEPLOY / "container" / "sglang.Containerfile")["SGLANG_VERSION"]
    tags = {"sglang": f"sglang-fence/sglang:{sglang}-{own}", "demo": f"sglang-fence/runtime:{own}"}
    assert {name: services()[name]["image"] for name in tags} == tags
    base = load(DEPLOY / "kubernetes" / "base" / "deployment.yaml")
    assert base["spec"]["template"]["spec"]["containers"][0]["image"] == tags["sglang"]
    (overlaid,) = load(OVERLAY / "kustomization.yaml")["images"]
    assert overlaid["newTag"] == f"{sglang}-{own}"
    for name, tag in tags.items():
        text = (DEPLOY / "container" / OF_SERVICE[name]).read_text(encoding="utf-8")
        assert f"-t {tag} ." in text


def test_compose_builds_the_files_from_the_top_of_the_repository() -> None:
    for name, path in OF_SERVICE.items():
        build = services()[name]["build"]
        assert (DEPLOY / "compose" / build["context"]).resolve() == ROOT
        assert build["dockerfile"] == f"deploy/container/{path}"


def test_the_demo_can_do_what_it_is_told() -> None:
    commands: dict[str, list[str]] = {
        "compose": [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in services()["demo"]["command"]],
        "image": json.loads(dict(instructions(DEPLOY / "container" / "runtime.Containerfile"))["CMD"]),
    }
    for where, (name, *options) in commands.items():
        command = typer.main.get_command(app)
        assert isinstance(command, TyperGroup)
        # Reads the options as the program does, and doesn't run it.
        parsed = command.commands[name].make_context(name, options)
        assert parsed.params["host"] == "0.0.0.0", where  # noqa: S104 - inside a container
        assert parsed.params["metrics_port"] == 9400
        assert parsed.params["repeat"] is True
