"""Sparse checkouts, submodules, linked work trees, shallow clones and other object formats."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.worktrees.pair import Checkpoint, WorktreePair
from omx_autoresearch.experiments.worktrees.worktree import TreeFault
from omx_autoresearch.foundation.errors import WorkspaceFault
from tests.support.contents_on_disk import contents
from tests.support.repositories import git, tree_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sparse(repository: Path) -> Path:
    """A checkout of `in` alone, of a repository that has `in` and `out`."""
    for name in ("in", "out"):
        (repository / name).mkdir()
        (repository / name / "f").write_text("x\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "in and out")
    git(repository, "sparse-checkout", "set", "--cone", "in")
    return repository


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


def create(repository: Path, work: Path) -> WorktreePair:
    return WorktreePair.create(str(repository), str(work), "e1")


@pytest.mark.requirement("TREE-14")
@pytest.mark.case("GIT-17")
@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_sparse_checkout_stays_sparse(sparse: Path, work: Path, is_reopened: bool) -> None:
    worktrees = create(sparse, work)
    candidate = work / "candidate"
    assert contents(candidate) == contents(sparse)
    assert not (candidate / "out").exists()
    (candidate / "in" / "c").write_text("new\n")
    if is_reopened:
        worktrees = WorktreePair.open(str(work))
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert made.changed == ("in/c",)
    assert git(candidate, "status", "--porcelain") == ""
    worktrees.incumbent.set_to(made.commit)
    assert b"out/" not in worktrees.patch(worktrees.base_commit, made.commit)
    assert worktrees.apply_to_user(made.commit).is_applied
    assert git(sparse, "diff", "--cached", "--name-status") == "A\tin/c"
    assert not (sparse / "out").exists()
    assert contents(sparse) == contents(candidate) == contents(work / "incumbent")


@pytest.mark.requirement("TREE-14")
@pytest.mark.case("GIT-17")
@pytest.mark.parametrize("name", ["out/f", "out/new", "other/deep/new"])
def test_a_path_outside_a_sparse_checkout_is_refused_by_name(sparse: Path, work: Path, name: str) -> None:
    worktrees = create(sparse, work)
    path = work / "candidate" / name
    path.parent.mkdir(parents=True)
    path.write_text("edited\n")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("outside_sparse_checkout", (name,))
    worktrees.candidate.set_to(worktrees.base_commit)
    assert contents(work / "candidate") == contents(sparse)


@pytest.fixture
def parent(repository: Path, tmp_path: Path) -> Path:
    """A repository with a submodule that has one of its own."""
    for name, inner in (("inmost", ""), ("inner", "inmost")):
        git(tmp_path, "init", "-q", name)
        (tmp_path / name / "f").write_text(f"{name}\n")
        if inner:
            git(tmp_path / name, "submodule", "add", "-q", str(tmp_path / inner), "nested")
        git(tmp_path / name, "add", "-A")
        git(tmp_path / name, "commit", "-qm", name)
    git(repository, "submodule", "add", "-q", str(tmp_path / "inner"), "libs/sub")
    git(repository, "submodule", "update", "-q", "--init", "--recursive")
    git(repository, "commit", "-qm", "with a submodule")
    return repository


@pytest.mark.requirement("TREE-15")
@pytest.mark.case("GIT-06")
def test_submodules_are_filled_from_the_checkout_without_a_network(
    parent: Path, work: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "inner")
    shutil.rmtree(tmp_path / "inmost")
    before = contents(parent)
    worktrees = create(parent, work)
    for name in ("incumbent", "candidate"):
        assert (work / name / "libs" / "sub" / "f").read_text() == "inner\n"
        assert (work / name / "libs" / "sub" / "nested" / "f").read_text() == "inmost\n"
    (work / "candidate" / "a.py").write_text("two\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert made.changed == ("a.py",)
    assert git(work / "candidate", "status", "--porcelain") == ""
    assert worktrees.apply_to_user(made.commit).is_applied
    git(parent, "reset", "-q", "--hard")
    assert contents(parent) == before


@pytest.mark.requirement("TREE-15")
@pytest.mark.parametrize("name", ["libs/sub/f", "libs/sub/new", "libs/sub/nested/f", "libs/sub/nested/new"])
def test_a_changed_submodule_is_refused_by_name_and_restored(parent: Path, work: Path, name: str) -> None:
    worktrees = create(parent, work)
    before = contents(work / "candidate")
    (work / "candidate" / name).write_text("edited\n")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("submodule_changed", (os.path.dirname(name),))
    worktrees.candidate.set_to(worktrees.base_commit)
    assert contents(work / "candidate") == before


@pytest.mark.requirement("TREE-15")
def test_a_submodule_that_is_gone_or_a_link_is_refused_and_restored(parent: Path, work: Path) -> None:
    worktrees = create(parent, work)
    before = contents(work / "candidate")
    for is_link in (False, True):
        shutil.rmtree(work / "candidate" / "libs")
        if is_link:
            (work / "candidate" / "libs").symlink_to(parent / "libs")
        fault = worktrees.candidate.snapshot()
        assert isinstance(fault, TreeFault)
        assert fault.reason_code == "submodule_changed"
        worktrees.candidate.set_to(worktrees.base_commit)
        assert contents(work / "candidate") == before
    assert (parent / "libs" / "sub" / "f").exists()


@pytest.mark.requirement("TREE-15")
@pytest.mark.case("GIT-06")
def test_a_submodule_that_is_not_there_is_named_unless_it_stays_empty(
    parent: Path, work: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(parent), "clone")
    clone = tmp_path / "clone"
    with pytest.raises(WorkspaceFault, match="the submodule libs/sub") as caught:
        create(clone, work)
    assert "submodule update --init" in caught.value.next_step
    git(clone, "config", "submodule.libs/sub.update", "none")
    worktrees = create(clone, work)
    sub = work / "candidate" / "libs" / "sub"
    assert os.listdir(sub) == []
    (sub / "x").write_text("x")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert fault.reason_code == "submodule_changed"
    worktrees.candidate.set_to(worktrees.base_commit)
    assert os.listdir(sub) == []


@pytest.mark.requirement("TREE-01")
def test_a_linked_work_tree_of_the_user_is_a_checkout_like_any(repository: Path, work: Path) -> None:
    git(repository, "worktree", "add", "-q", "../linked", "-b", "linked")
    linked = repository.parent / "linked"
    worktrees = create(linked, work)
    (work / "candidate" / "a.py").write_text("two\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert worktrees.apply_to_user(made.commit).is_applied
    assert git(linked, "diff", "--cached", "--name-only") == "a.py"
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.requirement("TREE-01")
@pytest.mark.parametrize("option", ["--depth=1", "--shared"])
def test_shallow_and_borrowing_clones_serve(repository: Path, work: Path, option: str) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "second")
    source = f"file://{repository}" if option.startswith("--depth") else str(repository)
    git(repository.parent, "clone", "-q", option, source, "clone")
    worktrees = create(repository.parent / "clone", work)
    (work / "candidate" / "a.py").write_text("two\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert git(work / "candidate", "log", "-1", "--format=%s", "HEAD~") == "second"
    assert worktrees.apply_to_user(made.commit).is_applied
    assert git(repository.parent / "clone", "write-tree") == tree_of(worktrees, made.commit)


@pytest.mark.requirement("TREE-01")
def test_a_repository_of_sha256_serves(tmp_path: Path, work: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", "long")
    (tmp_path / "long" / "a.py").write_text("one\n")
    git(tmp_path / "long", "add", "-A")
    git(tmp_path / "long", "commit", "-qm", "first")
    worktrees = create(tmp_path / "long", work)
    (work / "candidate" / "a.py").write_text("two\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint)
    assert len(made.commit) == 64
    worktrees.candidate.set_to(worktrees.base_commit)
    assert (work / "candidate" / "a.py").read_text() == "one\n"
    assert worktrees.apply_to_user(made.commit).is_applied


@pytest.mark.requirement("TREE-01")
@pytest.mark.parametrize("name", ["with space", "new\nline", "#hash", '"quoted"', "$(x)", "é", "%f;:"])
def test_odd_names_of_the_checkout_and_of_the_folder_serve(
    repository: Path, tmp_path: Path, name: str
) -> None:
    odd = tmp_path / name / "repo"
    odd.parent.mkdir()
    repository.rename(odd)
    git(odd, "config", "filter.same.clean", "cat")
    git(odd, "config", "filter.same.smudge", "cat")
    worktrees = create(odd, tmp_path / name / "work")
    candidate = tmp_path / name / "work" / "candidate"
    (candidate / ".gitattributes").write_text("*.py filter=same\n")
    (candidate / "a.py").write_text("two\n")
    made = worktrees.checkpoint("m")
    assert isinstance(made, Checkpoint), made
    assert made.changed == (".gitattributes", "a.py")
    assert "first" in git(candidate, "log", "--format=%s")
    assert worktrees.apply_to_user(made.commit).is_applied
    worktrees.close(forget=True)
