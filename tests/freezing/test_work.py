"""The work that an owner names: never pinned, and everything else that the check reads is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.freezing import discovery
from omx_autoresearch.freezing.manifest import FileClasses
from omx_autoresearch.freezing.pins import compare
from omx_autoresearch.freezing.work import Work, classes_of, project_files, proposed_work

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.freezing.manifest import PinManifest

FILES = {
    "src/app/core.py": "import json\n",
    "src/app/test_inside.py": "def test_x(): pass\n",
    "src/conftest.py": "",
    "tests/test_core.py": (
        '"""Reads docs/prose.md, or so it says."""\n'
        "from pathlib import Path\nimport support.cases\nfrom app import core\n"
        "HERE = Path(__file__).parent\nWANTED = HERE / 'data' / 'wanted.json'\nPLAIN = 'golden/plain.txt'\n"
    ),
    "tests/data/wanted.json": "[]",
    "support/cases.py": "import support.deep\nopen('support/table.csv')\n",
    "support/deep.py": "",
    "support/table.csv": "",
    "support/unused.py": "",
    "golden/plain.txt": "",
    "docs/prose.md": "",
    "CHANGELOG.md": "",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def frozen(manifest: PinManifest) -> set[str]:
    return {pin.path for pin in manifest.pins if pin.kind != "absent-guard"}


@pytest.mark.requirement("WORK-01")
def test_work_is_not_pinned_whatever_names_it(project: Path) -> None:
    command = "python3 -m pytest src/app/test_inside.py && python3 src/app/core.py"
    without = frozen(discovery.find(str(project), commands=[command]))
    manifest = discovery.find(str(project), commands=[command], work=["src/**"])
    assert {"src/app/core.py", "src/app/test_inside.py", "src/conftest.py"} <= without
    assert not any(path.startswith("src/") for path in frozen(manifest))
    assert any("--work '!src/app/test_inside.py'" in note for note in manifest.notes)
    assert compare(manifest, str(project)).is_intact


@pytest.mark.requirement("WORK-01")
def test_a_glob_takes_tests_out_of_the_work(project: Path) -> None:
    manifest = discovery.find(
        str(project), commands=["pytest"], work=["src/**", "!test_*.py", "!conftest.py"]
    )
    assert {"src/app/test_inside.py", "src/conftest.py"} <= frozen(manifest)
    assert "src/app/core.py" not in frozen(manifest)


@pytest.mark.requirement("WORK-01")
def test_a_module_in_the_work_that_hides_one_of_the_standard_library_is_tampering_all_the_same(
    project: Path,
) -> None:
    manifest = discovery.find(
        str(project), commands=["python3 check.py"], work=["src/**"], python_folders=["src"]
    )
    (project / "src" / "parts.py").write_text("")
    assert compare(manifest, str(project)).is_intact
    (project / "src" / "types.py").write_text("")
    assert compare(manifest, str(project)).added == ("src/types.py",)


@pytest.mark.requirement("WORK-02")
def test_what_pinned_files_import_or_read_is_pinned_where_the_work_is_named(project: Path) -> None:
    read = {
        "tests/data/wanted.json",
        "golden/plain.txt",
        "support/cases.py",
        "support/deep.py",
        "support/table.csv",
    }
    with_work = frozen(discovery.find(str(project), commands=["pytest tests"], work=["src/**"]))
    assert read <= with_work
    assert not with_work & {"docs/prose.md", "CHANGELOG.md", "support/unused.py"}


@pytest.mark.requirement("WORK-02")
def test_what_is_work_or_ignored_by_git_is_not_pinned_though_a_test_reads_it(project: Path) -> None:
    work = ["src/**", "golden/**"]
    assert "golden/plain.txt" not in frozen(
        discovery.find(str(project), commands=["pytest tests"], work=work)
    )


@pytest.mark.requirement("WORK-01")
@pytest.mark.parametrize("glob", ["src/app/core.py", "core.py", "src/app"])
def test_what_is_work_cannot_be_protected(project: Path, glob: str) -> None:
    with pytest.raises(MissionInvalid, match="contradict") as caught:
        discovery.find(str(project), commands=["pytest"], work=["src/**"], protect=[glob])
    assert "--work '!src/app/" in caught.value.next_step


def test_a_wider_glob_protects_everything_but_the_work(project: Path) -> None:
    manifest = discovery.find(str(project), commands=["pytest"], work=["src/**"], protect=["**"])
    assert frozen(manifest) == {name for name in FILES if not name.startswith("src/")}


@pytest.mark.requirement("WORK-03")
def test_each_file_of_a_project_has_one_class(project: Path) -> None:
    manifest = discovery.find(str(project), commands=["pytest tests"], work=["src/**"])
    classes = classes_of(project_files(str(project)), Work(["src/**"]), manifest)
    assert set(classes.work) == {name for name in FILES if name.startswith("src/")}
    assert set(classes.shown) == {"CHANGELOG.md", "docs/prose.md", "support/unused.py"}
    assert sorted((*classes.work, *classes.frozen, *classes.shown, *classes.unknown)) == sorted(FILES)
    assert classes_of([], Work(), discovery.find(str(project), commands=["true"])) == FileClasses()


@pytest.mark.requirement("WORK-04")
@pytest.mark.parametrize(
    ("files", "runners", "globs"),
    [
        (["src/a.py", "tests/test_a.py"], ["pytest"], ("src/**",)),
        (["mill/__init__.py", "mill/tests/test_a.py", "mill/grind.py"], ["pytest"], ("mill/**", "!tests")),
        (
            ["cmd/x/main.go", "internal/y/y.go", "internal/y/y_test.go"],
            ["go"],
            ("cmd/**", "internal/**", "!*_test.go"),
        ),
        (["crates/a/src/lib.rs", "crates/a/tests/t.rs"], ["cargo"], ("crates/**", "!tests")),
        (["src/a.ts", "src/a.test.ts"], ["npm"], ("src/**", "!*.test.ts")),
        (["check.sh", "answer.txt"], [], ()),
        (["tests/__init__.py", "tests/test_a.py", "a.py"], ["pytest"], ()),
    ],
)
def test_the_shape_of_a_project_proposes_its_work_without_its_tests(
    files: list[str], runners: list[str], globs: tuple[str, ...]
) -> None:
    assert proposed_work(files, runners) == globs
