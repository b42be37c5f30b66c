"""Rules of the house that no linter knows."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

import sglang_fence

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 300

# Where people, and machines that build, keep a checkout.
_PERSONAL = re.compile(r"(?<![\w./~$}-])/(?:home|Users|root|work|workspace|builds)/[\w.-]+[^\s\"'`,;:)]*")
_PERSONAL_EXEMPT = {
    "/root/.cache/huggingface": "the model cache inside SGLang's container image",
}


def _ignored() -> set[str]:
    """Return patterns of what isn't part of the repository."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    return {".git", *(line.strip("/") for line in lines)}


def _files(top: Path = ROOT) -> list[Path]:
    """Return the repository's files below ``top``, without what is generated."""
    ignored = _ignored()
    found: list[Path] = []
    for entry in sorted(top.iterdir()):
        if any(fnmatch(entry.name, pattern) for pattern in ignored):
            continue
        if entry.is_dir():
            found += _files(entry)
        elif entry.is_file():
            found.append(entry)
    return found


def _texts() -> dict[str, str]:
    texts: dict[str, str] = {}
    for path in _files():
        content = path.read_bytes()
        if b"\0" not in content:
            texts[path.relative_to(ROOT).as_posix()] = content.decode("utf-8")
    return texts


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Return the text of every text file of the repository, by path."""
    return _texts()


def _python(texts: dict[str, str]) -> dict[str, str]:
    packages = ("sglang_fence/", "exporters/")
    return {path: text for path, text in texts.items() if path.startswith(packages) and path.endswith(".py")}


def test_the_walk_sees_the_repository_and_nothing_generated(texts: dict[str, str]) -> None:
    assert {"pyproject.toml", ".ci/run", "sglang_fence/contract.py", "tests/test_house.py"} <= set(texts)
    assert not [path for path in texts if ".venv" in path or "__pycache__" in path]


def test_no_module_is_too_long_to_read_in_one_go(texts: dict[str, str]) -> None:
    lengths = {path: len(text.splitlines()) for path, text in _python(texts).items()}
    assert lengths
    assert not {path: length for path, length in lengths.items() if length > LONGEST}


def test_every_package_has_an_init_so_that_no_linter_misses_it(texts: dict[str, str]) -> None:
    folders = {Path(path).parent.as_posix() for path in _python(texts)}
    assert {"sglang_fence", "sglang_fence/catalogue", "exporters/sglang_fence_exporters"} <= folders
    assert not [folder for folder in folders if f"{folder}/__init__.py" not in texts]


def test_no_file_names_a_path_of_somebodys_machine(texts: dict[str, str]) -> None:
    own = str(ROOT) if len(ROOT.parts) > 2 else None  # in a container the root may be as short as /app
    found: dict[str, list[str]] = {}
    for path, text in texts.items():
        hits = [hit for hit in _PERSONAL.findall(text) if not hit.startswith(tuple(_PERSONAL_EXEMPT))]
        if own is not None and own in text:
            hits.append(own)
        if hits:
            found[path] = hits
    assert not found


@pytest.mark.parametrize("folder", ["home", "Users", "root", "work"])
def test_the_pattern_knows_such_a_path_when_it_sees_one(folder: str) -> None:
    path = f"/{folder}/jane/sglang-fence"
    assert _PERSONAL.findall(f'open("{path}")') == [path]
    assert not _PERSONAL.findall(f"docs{path} and $HOME{path.removeprefix('/' + folder)}")


def test_the_version_has_one_source(texts: dict[str, str]) -> None:
    settings = tomllib.loads(texts["pyproject.toml"])
    assert "version" in settings["project"]["dynamic"]
    assert "version" not in settings["project"]
    assert settings["tool"]["hatch"]["version"]["path"] == "sglang_fence/__init__.py"
    assigned = [
        (path, version)
        for path, text in texts.items()
        for version in re.findall(r'^__version__ *(?:: *str *)?= *"(.+)"', text, re.MULTILINE)
    ]
    assert assigned == [("sglang_fence/__init__.py", sglang_fence.__version__)]


def test_the_changelog_has_a_place_for_what_is_not_released(texts: dict[str, str]) -> None:
    assert "\n## [Unreleased]\n" in texts["CHANGELOG.md"]


def test_each_rule_of_the_contract_has_one_row_and_no_other_rule_is_cited(texts: dict[str, str]) -> None:
    rules = re.findall(r"^\| (R\d+) \| ", texts["CONTRIBUTING.md"], re.MULTILINE)
    assert rules == [f"R{number}" for number in range(1, 13)]
    cited = {rule for text in _python(texts).values() for rule in re.findall(r"\bR[1-9]\d?\b", text)}
    assert "R4" in cited
    assert cited <= set(rules)


def test_every_target_of_make_is_listed_by_help(texts: dict[str, str]) -> None:
    makefile = texts["Makefile"]
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony is not None
    assert set(re.findall(r"^([a-z]+):.*## \S", makefile, re.MULTILINE)) == set(phony[1].split())


def test_lines_end_as_editorconfig_says(texts: dict[str, str]) -> None:
    assert not [path for path, text in texts.items() if "\r" in text]
    assert not [path for path, text in texts.items() if text and not text.endswith("\n")]
