"""What happens to pinned paths while a command runs, and is undone before anybody looks again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery
from omx_autoresearch.freezing.meanwhile import Meanwhile
from omx_autoresearch.freezing.pins import compare
from omx_autoresearch.system.commands import shell_argv
from omx_autoresearch.system.sandbox import Limits, run_limited
from tests.support.boxes import BOXES, take_box

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of what happens in folders")


def write(root: Path, name: str, text: str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    write(root, "tests/test_a.py", "def test(): pass\n")
    write(root, "check.py", "import json\n")
    return root


COMMAND = "python check.py && pytest -q tests && cargo test"


def seen_of(
    root: Path, act: Callable[[], object], *, is_mounted: bool = True, protect: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """What is seen of something that happens, and that a later look no longer finds."""
    manifest = discovery.find(str(root), commands=[COMMAND], protect=protect)
    meanwhile = Meanwhile(manifest, str(root), is_mounted=is_mounted)
    act()
    seen = meanwhile.moved(is_mounted=is_mounted)
    assert not meanwhile.unseen
    meanwhile.close()
    assert compare(manifest, str(root)).is_intact
    return seen


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.parametrize(
    "name",
    ["pytest.ini", "conftest.py", "tests/conftest.py", "tests/pytest.ini", "sitecustomize.py", "json.py",
     "tests/test_a.pyc", "json/__init__.py", "pytest/__init__.py", ".cargo/config.toml"],
)  # fmt: skip
def test_what_must_not_be_there_is_seen_though_it_stands_there_for_a_moment(
    work: Path, name: str, is_mounted: bool
) -> None:
    def act() -> None:
        path = write(work, name)
        path.unlink()
        if path.parent.name in ("json", "pytest", ".cargo"):
            path.parent.rmdir()

    *_, seen = seen_of(work, act, is_mounted=is_mounted)
    assert name.startswith(seen.rstrip("/"))


@pytest.mark.requirement("DONE-14")
def test_a_folder_that_is_moved_here_with_what_must_not_be_in_it_is_seen(work: Path, tmp_path: Path) -> None:
    write(tmp_path, "aside/config.toml")

    manifest = discovery.find(str(work), commands=[COMMAND])
    meanwhile = Meanwhile(manifest, str(work), is_mounted=True)
    (tmp_path / "aside").rename(work / ".cargo")
    meanwhile.watch.read()
    (work / ".cargo").rename(tmp_path / "aside")
    assert ".cargo/config.toml" in meanwhile.moved(is_mounted=True)
    meanwhile.close()


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.parametrize("moved", ["tests", "", ".."])
def test_a_folder_that_was_moved_away_and_back_is_seen_though_an_entry_was_made_in_it(
    work: Path, tmp_path_factory: pytest.TempPathFactory, moved: str, is_mounted: bool
) -> None:
    aside, folder = tmp_path_factory.mktemp("aside") / "folder", Path(os.path.normpath(work / moved))

    def act() -> None:
        folder.rename(aside)
        write(folder, "tests/test_a.py" if not moved else "test_a.py", "lenient\n")
        folder.rename(aside.with_name("lenient"))
        aside.rename(folder)
        write(work, "tests/entry").unlink()

    assert any(
        path.endswith("/") or os.path.isabs(path) for path in seen_of(work, act, is_mounted=is_mounted)
    )


@pytest.mark.requirement("DONE-14")
def test_a_pinned_file_that_was_moved_away_and_back_is_seen(work: Path) -> None:
    path = work / "tests" / "test_a.py"

    def act() -> None:
        path.rename(work / "kept")
        path.write_text("lenient\n")
        (work / "kept").rename(path)

    assert seen_of(work, act) == ("tests/test_a.py",)


@pytest.mark.requirement("DONE-14")
def test_a_pinned_file_that_was_written_and_put_back_is_seen(work: Path) -> None:
    path = work / "tests" / "test_a.py"
    content = path.read_text()

    def act() -> None:
        path.write_text("lenient\n")
        path.write_text(content)

    assert seen_of(work, act) == ("tests/test_a.py",)


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("way", ["touch", "link", "read", "mode"])
def test_what_changes_no_content_counts_only_where_the_run_sees_the_file_itself(work: Path, way: str) -> None:
    path = work / "tests" / "test_a.py"

    def act() -> None:
        if way == "touch":
            os.utime(path)
        elif way == "link":
            os.link(path, work / "other")
        elif way == "mode":
            path.chmod(0o640)
        else:
            path.read_text()

    assert seen_of(work, act) == ()
    if way != "read":
        (work / "other").unlink(missing_ok=True)
        assert seen_of(work, act, is_mounted=False) == ("tests/test_a.py",)


@pytest.mark.requirement("DONE-14", "DONE-15")
def test_what_runners_and_people_leave_beside_the_tests_is_nothing(work: Path) -> None:
    beside = ("__pycache__/test_a.cpython-311.pyc", "test_b.py", "data/answer.json")
    elsewhere = (".pytest_cache/v/cache", "target/debug/x", "src/json.rs", ".test_a.py.swp")
    named_like_a_module = ("site/index.html", "profile/out", "trace", "token")
    names = (*(f"tests/{name}" for name in beside), *elsewhere, *named_like_a_module)

    def act() -> None:
        for name in names:
            write(work, name).unlink()

    assert seen_of(work, act) == ()


@pytest.mark.requirement("DONE-15")
def test_a_file_that_the_check_itself_makes_can_be_taken_out_of_the_search(work: Path) -> None:
    def act() -> None:
        for name in ("conftest.py", "pytest.ini"):
            write(work, name).unlink()

    assert seen_of(work, act, protect=("!conftest.py", "!pytest.ini")) == ()
    manifest = discovery.find(str(work), commands=[COMMAND], protect=("!conftest.py",))
    write(work, "conftest.py")
    assert compare(manifest, str(work)).is_intact


@pytest.mark.requirement("DONE-14")
@pytest.mark.parametrize("kind", BOXES)
def test_what_a_boxed_command_makes_for_a_moment_is_seen_through_the_mounts_of_its_box(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    take_box(monkeypatch, kind)
    (tmp_path / "scratch").mkdir()
    manifest = discovery.find(str(work), commands=[COMMAND])
    meanwhile = Meanwhile(manifest, str(work), is_mounted=True)
    result = run_limited(
        shell_argv("mkdir out && : > conftest.py && rm conftest.py && rmdir out"),
        Limits(str(work), str(tmp_path / "scratch")),
        cwd=str(work),
        env={"PATH": os.environ["PATH"]},
        timeout_seconds=20.0,
        output_path=str(tmp_path / "output"),
        watch=meanwhile.watch,
    )
    assert result.exit_status == 0
    assert meanwhile.moved(is_mounted=True) == ("conftest.py",)
    meanwhile.close()
