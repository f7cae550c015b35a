"""Ignored paths that a measurement needs: they are there again, and carry nothing from one trial into the next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.worktrees.pair import Checkpoint, WorktreePair
from omx_autoresearch.foundation.errors import WorkspaceFault
from tests.support.contents_on_disk import contents, everything
from tests.support.repositories import git

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(repository: Path) -> Path:
    """One that ignores what is kept and linked."""
    (repository / ".gitignore").write_text("ignored\n.venv/\nbuild/\n/node_modules\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "ignore")
    (repository / "node_modules" / "lib").mkdir(parents=True)
    (repository / "node_modules" / "lib" / "index.js").write_text("module\n")
    (repository / "node_modules" / ".bin").mkdir()
    (repository / "node_modules" / ".bin" / "lib").symlink_to("../lib/index.js")
    return repository


def create(repository: Path, work: Path) -> WorktreePair:
    return WorktreePair.create(
        str(repository), str(work), "e1", keep=(".venv", "build/deps"), link=("node_modules",)
    )


def set_up(tree: Path) -> None:
    """What a setup command makes."""
    (tree / ".venv" / "bin").mkdir(parents=True)
    (tree / ".venv" / "ok").write_text("ok")
    (tree / "build" / "deps").mkdir(parents=True)
    (tree / "build" / "deps" / "lib.a").write_text("lib")


@pytest.mark.requirement("TREE-16")
@pytest.mark.case("GIT-03")
def test_what_the_setup_made_is_there_for_every_trial(repository: Path, tmp_path: Path) -> None:
    worktrees = create(repository, tmp_path / "work")
    candidate = tmp_path / "work" / "candidate"
    set_up(candidate)
    worktrees.candidate.seal()
    for number in range(3):
        (candidate / "a.py").write_text(str(number))
        (candidate / "build" / "other").write_text("left")
        made = worktrees.checkpoint("m")
        assert isinstance(made, Checkpoint)
        assert made.changed == ("a.py",)
        if number == 1:
            worktrees = WorktreePair.open(str(tmp_path / "work"))
        assert worktrees.candidate.set_to(worktrees.base_commit) == ()
        assert (candidate / ".venv" / "ok").read_text() == "ok"
        assert sorted(os.listdir(candidate / "build")) == ["deps"]


@pytest.mark.requirement("TREE-16")
@pytest.mark.case("GIT-03")
@pytest.mark.parametrize(
    "act", ["edit", "edit back in time", "add", "delete", "link", "mode", "no permission"]
)
def test_a_kept_path_that_a_candidate_changed_is_dropped_and_named(
    repository: Path, tmp_path: Path, act: str
) -> None:
    worktrees = create(repository, tmp_path / "work")
    candidate = tmp_path / "work" / "candidate"
    set_up(candidate)
    worktrees.candidate.seal()
    kept = candidate / ".venv" / "ok"
    status = kept.stat()
    if act.startswith("edit"):
        kept.write_text("no")
        if act != "edit":
            os.utime(kept, ns=(status.st_atime_ns, status.st_mtime_ns))
    elif act == "add":
        (candidate / ".venv" / "bin" / "python").write_text("x")
    elif act == "delete":
        kept.unlink()
    elif act == "mode":
        kept.chmod(0o755)
    elif act == "no permission":
        (candidate / ".venv" / "bin").chmod(0)
    else:
        (candidate / ".venv").rename(candidate / "elsewhere")
        (candidate / ".venv").symlink_to("elsewhere")
    assert worktrees.candidate.set_to(worktrees.base_commit) == (".venv",)
    assert not (candidate / ".venv").exists()
    assert (candidate / "build" / "deps" / "lib.a").exists()


@pytest.mark.requirement("TREE-16")
def test_what_nobody_sealed_does_not_stay(repository: Path, tmp_path: Path) -> None:
    worktrees = create(repository, tmp_path / "work")
    set_up(tmp_path / "work" / "candidate")
    assert worktrees.candidate.set_to(worktrees.base_commit) == (".venv", "build/deps")


@pytest.mark.requirement("TREE-16")
@pytest.mark.case("GIT-02")
def test_a_linked_path_is_a_copy_and_made_anew_when_it_changed(repository: Path, tmp_path: Path) -> None:
    before = everything(repository)
    worktrees = create(repository, tmp_path / "work")
    linked = tmp_path / "work" / "candidate" / "node_modules"
    assert contents(linked) == contents(repository / "node_modules")
    (linked / "lib" / "index.js").write_text("cheat\n")
    worktrees.candidate.set_to(worktrees.base_commit)
    made_anew = linked.stat().st_ino
    assert contents(linked) == contents(repository / "node_modules")
    worktrees.candidate.set_to(worktrees.base_commit)
    assert linked.stat().st_ino == made_anew
    assert everything(repository) == before


@pytest.mark.requirement("TREE-16")
def test_copies_of_two_different_states_are_not_compared(repository: Path, tmp_path: Path) -> None:
    worktrees = create(repository, tmp_path / "work")
    (repository / "node_modules" / "lib" / "index.js").write_text("later\n")
    (tmp_path / "work" / "candidate" / "node_modules" / "lib" / "index.js").write_text("cheat\n")
    with pytest.raises(WorkspaceFault, match="changed since the experiment began"):
        worktrees.candidate.set_to(worktrees.base_commit)


@pytest.mark.requirement("TREE-16")
def test_a_candidate_that_no_longer_ignores_a_kept_path_checkpoints_none_of_it(
    repository: Path, tmp_path: Path
) -> None:
    worktrees = create(repository, tmp_path / "work")
    candidate = tmp_path / "work" / "candidate"
    (candidate / ".gitignore").write_text("")
    for number in range(300):
        (candidate / f"n{number}").write_text("x")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert not [path for path in made.changed if path.startswith("node_modules")]


@pytest.mark.requirement("TREE-16")
@pytest.mark.parametrize("kind", ["keep", "link"])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("pkg", "tracked files"),
        ("/tmp", "inside the checkout"),
        ("../x", "inside"),
        (".", "inside"),
        ("open", "ignored"),
    ],
)
def test_only_ignored_paths_inside_the_checkout_can_be_kept(
    repository: Path, tmp_path: Path, kind: str, path: str, said: str
) -> None:
    with pytest.raises(WorkspaceFault, match=said):
        WorktreePair.create(str(repository), str(tmp_path / "work"), "e1", **{kind: (path,)})


@pytest.mark.requirement("TREE-16")
def test_a_linked_path_that_is_not_there_is_named(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceFault, match="ignored is not there"):
        WorktreePair.create(str(repository), str(tmp_path / "work"), "e1", link=("ignored",))
