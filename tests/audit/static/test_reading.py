"""What is read, how names are resolved, what may be ignored, and how the command ends."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from sglang_fence.audit.static.report import audit_statically
from sglang_fence.cli import main
from sglang_fence.errors import ConfigError
from tests.audit.static.trees import BASE, audit, write_tree

if TYPE_CHECKING:
    from pathlib import Path

OLD = "    def prepare_prefill_shared_read_snapshot(self, batch): ..."


@pytest.mark.parametrize(
    "source",
    [
        f"class Leaf(AttentionBackend):\n{OLD}",
        f"from backends.base import AttentionBackend as Base\nclass Leaf(Base):\n{OLD}",
        f"from backends import base\nclass Leaf(base.AttentionBackend):\n{OLD}",
        f"import backends.base\nclass Leaf(backends.base.AttentionBackend):\n{OLD}",
        f"from .base import AttentionBackend as Base\nclass Leaf(Base):\n{OLD}",
        f"if True:\n    from backends.facade import Renamed\nclass Leaf(Renamed):\n{OLD}",
        f"from nowhere.attention import AttentionBackend\nclass Leaf(AttentionBackend):\n{OLD}",
    ],
)
def test_a_base_is_found_by_how_it_was_imported(source: str, tmp_path: Path) -> None:
    report = audit(tmp_path, leaf=source, facade="from backends.base import AttentionBackend as Renamed")
    assert [one.class_name for one in report.findings] == ["Leaf"]


def test_a_class_of_the_same_name_that_is_no_backend_is_left_alone(tmp_path: Path) -> None:
    report = audit(
        tmp_path, other=f"class AttentionBackend:\n    def run(self): ...\nclass Leaf(AttentionBackend):\n{OLD}"
    )
    assert "Leaf" not in report.classes


def test_nothing_is_imported(tmp_path: Path) -> None:
    package = write_tree(tmp_path, leaf="raise SystemExit('imported')\nclass Leaf(AttentionBackend): ...")
    before = set(sys.modules)
    assert "Leaf" in audit_statically(str(package)).classes
    assert not {name for name in set(sys.modules) - before if name.startswith("backends")}


def test_an_installed_package_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = write_tree(tmp_path, leaf=f"class Leaf(AttentionBackend):\n{OLD}")
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("backends", "backends.leaf"):
        assert [one.path for one in audit_statically(name).findings] == [package / "leaf.py"]


def test_a_base_outside_the_target_is_read_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, own = tmp_path / "installed", tmp_path / "own"
    installed.mkdir()
    own.mkdir()
    older = write_tree(
        installed, base=BASE.replace("_snapshot_prefill", "prepare_prefill").replace("_reads(", "_read_snapshot(")
    )
    (own / "leaf.py").write_text(f"from backends.base import AttentionBackend\nclass Leaf(AttentionBackend):\n{OLD}")
    monkeypatch.syspath_prepend(installed)
    report = audit_statically(str(own))
    assert (report.classes, report.findings) == (("Leaf",), ())
    assert "prepare_prefill_shared_read_snapshot" in (older / "base.py").read_text()


@pytest.mark.parametrize(
    ("comment", "ignored"),
    [
        ("# sglang-fence: ignore[old-name]", True),
        ("# sglang-fence: ignore[constant-answer, old-name]", True),
        ("# sglang-fence: ignore[constant-answer]", False),
        ("# old-name", False),
    ],
)
@pytest.mark.parametrize("above", [True, False])
def test_a_comment_names_the_rule_to_ignore(comment: str, *, ignored: bool, above: bool, tmp_path: Path) -> None:
    method = f"    {comment}\n{OLD}" if above else f"{OLD}  {comment}"
    report = audit(tmp_path, leaf=f"class Leaf(AttentionBackend):\n{method}")
    assert (len(report.findings), len(report.ignored)) == ((0, 1) if ignored else (1, 0))


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["sglang-fence", "audit", "--static", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_errors_end_with_status_1_and_the_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = write_tree(tmp_path, leaf=f"class Leaf(AttentionBackend):\n{OLD}", broken="def shared_read_ends(:")
    report = tmp_path / "report.json"
    assert command(monkeypatch, package, "--json", report) == 1
    said = capsys.readouterr().out
    assert "leaf.py:3: error [old-name] (high confidence) Leaf overrides" in said
    assert "broken.py:2: not audited: " in said
    assert "1 could not be read. Errors: 1, warnings: 0." in said
    written = json.loads(report.read_text())
    assert [(one["file"], one["line"], one["class"]) for one in written["findings"]] == [("leaf.py", 3, "Leaf")]
    assert [one["file"] for one in written["unreadable"]] == ["broken.py"]


def test_warnings_end_with_status_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"class Leaf(AttentionBackend):\n{OLD}\ndef ask(leaf): leaf.prepare_prefill_shared_read_snapshot()"
    assert command(monkeypatch, write_tree(tmp_path, leaf=source)) == 0


@pytest.mark.parametrize(
    "name", ["no/such/path", "no_such_package_anywhere", "", "empty", "text.txt", "plain.py", "broken.py"]
)
def test_bad_targets_are_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").touch()
    (tmp_path / "plain.py").write_text("class AttentionBackend: ...")
    (tmp_path / "broken.py").write_text("class Leaf(AttentionBackend: ...\ndef shared_read_ends(): ...")
    if name:
        with pytest.raises(ConfigError):
            audit_statically(name)
        assert command(monkeypatch, name) == 2
    else:
        assert command(monkeypatch, tmp_path / "none") == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
