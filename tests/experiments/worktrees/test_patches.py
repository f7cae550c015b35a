"""A patch that carries everything, and the act that brings it into the user's checkout."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.worktrees.object_store import FileChange
from omx_autoresearch.experiments.worktrees.pair import Checkpoint, Workspaces
from omx_autoresearch.foundation.errors import WorkspaceFault
from tests.support.contents_on_disk import contents, everything, script
from tests.support.repositories import git

if TYPE_CHECKING:
    from collections.abc import Callable

ODD_SETTINGS = """
[diff]
    noprefix = true
    mnemonicPrefix = true
    external = false
    renames = copies
    context = 0
    interHunkContext = 9
    algorithm = patience
    colorMoved = zebra
    submodule = log
    orderFile = /dev/null
    suppressBlankEmpty = true
    wsErrorHighlight = all
[color]
    ui = always
[core]
    quotePath = true
    pager = false
    abbrev = 4
[apply]
    whitespace = error
"""


@pytest.fixture
def repository(repository: Path) -> Path:
    """One with a file of each kind."""
    (repository / "data.bin").write_bytes(bytes(range(256)) * 40)
    (repository / "gone.txt").write_text("gone\n")
    (repository / "old name.txt").write_text("".join(f"line {n}\n" for n in range(40)))
    (repository / "tool").write_text("#!/bin/sh\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "of each kind")
    return repository


@pytest.fixture
def workspaces(repository: Path, tmp_path: Path, home: Path) -> Workspaces:
    with open(home / ".gitconfig", "a", encoding="utf-8") as stream:
        stream.write(ODD_SETTINGS)
    return Workspaces.create(str(repository), str(tmp_path / "work"), "e1")


def change_everything(tree: Path) -> None:
    (tree / "data.bin").write_bytes(bytes(range(255, -1, -1)) * 40)
    (tree / "new.bin").write_bytes(random.Random(1).randbytes(5000))
    (tree / "gone.txt").unlink()
    (tree / "old name.txt").rename(tree / 'new näme "q".txt')
    (tree / "tool").chmod(0o755)
    (tree / "link").symlink_to("a.py")
    (tree / "empty").touch()
    (tree / "no newline").write_text("x")
    (tree / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    (tree / "a.py").write_text("two\n")
    (tree / "pkg" / "b.py").unlink()
    (tree / "pkg").rmdir()
    (tree / "pkg").write_text("a file now\n")
    for name in (b"\xff", b"tab\t", b"new\nline"):
        with open(os.path.join(os.fsencode(tree), name), "wb") as stream:
            stream.write(b"x\n")


def checkpoint(workspaces: Workspaces, change: Callable[[Path], None]) -> Checkpoint:
    change(Path(workspaces.candidate_path))
    made = workspaces.checkpoint(workspaces.candidate_path, "m")
    assert isinstance(made, Checkpoint), made
    return made


def applied_tree(repository: Path, base: str, patch: bytes) -> str:
    """The tree that a person gets who applies the patch in a clone of the base."""
    clone = repository.parent / "clone"
    git(repository.parent, "clone", "-q", "--no-checkout", str(repository), str(clone))
    git(clone, "checkout", "-q", base)
    (clone.parent / "final.patch").write_bytes(patch)
    git(clone, "apply", "--check", "--index", "--whitespace=nowarn", "../final.patch")
    git(clone, "apply", "--index", "--whitespace=nowarn", "../final.patch")
    return git(clone, "write-tree")


@pytest.mark.requirement("TREE-13")
@pytest.mark.case("GIT-15")
def test_a_patch_reproduces_the_exact_tree_and_so_does_an_acceptance(
    workspaces: Workspaces, repository: Path
) -> None:
    made = checkpoint(workspaces, change_everything)
    patch = workspaces.patch(workspaces.base_commit, made.commit)
    assert b"rename from old name.txt" in patch
    assert b"\x1b[" not in patch
    assert b"--- a/a.py" in patch
    assert applied_tree(repository, workspaces.base_commit, patch) == made.tree
    accepted = workspaces.apply_to_user(made.commit)
    assert accepted.is_applied
    assert accepted.changed_paths == made.changed
    assert git(repository, "write-tree") == made.tree
    assert git(repository, "diff", "--stat") == ""
    assert git(repository, "rev-parse", "HEAD") == workspaces.base_commit
    assert contents(repository) == contents(Path(workspaces.candidate_path))


@pytest.mark.requirement("TREE-13")
def test_a_patch_of_many_megabytes_is_whole(workspaces: Workspaces, repository: Path, tmp_path: Path) -> None:
    def change(tree: Path) -> None:
        (tree / "large.bin").write_bytes(random.Random(2).randbytes(3 << 20))
        (tree / "large.txt").write_text("".join(f"{n}\n" for n in range(400_000)))

    made = checkpoint(workspaces, change)
    patch = workspaces.patch(workspaces.base_commit, made.commit)
    assert len(patch) > 5 << 20
    assert workspaces.write_patch(workspaces.base_commit, made.commit, str(tmp_path / "p")) == len(patch)
    assert (tmp_path / "p").read_bytes() == patch
    assert applied_tree(repository, workspaces.base_commit, patch) == made.tree


@pytest.mark.requirement("TREE-13")
def test_changed_files_are_shown_with_their_lines(workspaces: Workspaces) -> None:
    made = checkpoint(workspaces, change_everything)
    shown = {change.path: change for change in workspaces.changes(workspaces.base_commit, made.commit)}
    assert shown["a.py"] == FileChange("a.py", "M", "", 1, 1)
    assert shown["data.bin"] == FileChange("data.bin", "M", "", None, None)
    assert shown["gone.txt"] == FileChange("gone.txt", "D", "", 0, 1)
    assert shown['new näme "q".txt'] == FileChange('new näme "q".txt', "R", "old name.txt", 0, 0)
    assert shown["link"].status == "A"
    assert "new\nline" in shown


def test_nothing_between_two_commits_is_an_empty_patch_and_no_act(
    workspaces: Workspaces, repository: Path
) -> None:
    before = everything(repository)
    assert workspaces.patch(workspaces.base_commit, workspaces.base_commit) == b""
    assert workspaces.apply_to_user(workspaces.base_commit).is_applied
    assert everything(repository) == before


def _commit(repository: Path) -> None:
    git(repository, "commit", "-q", "--allow-empty", "-m", "meanwhile")


def _branch(repository: Path) -> None:
    git(repository, "checkout", "-qb", "other")


def _edit(repository: Path) -> None:
    (repository / "tool").write_text("edited\n")


def _stage(repository: Path) -> None:
    (repository / "tool").write_text("edited\n")
    git(repository, "add", "tool")


def _untracked(repository: Path) -> None:
    (repository / "note").write_text("x")


def _merge(repository: Path) -> None:
    (repository / ".git" / "MERGE_HEAD").write_text(git(repository, "rev-parse", "HEAD") + "\n")


@pytest.mark.requirement("TREE-09")
@pytest.mark.parametrize(
    ("move", "said"),
    [
        (_commit, "HEAD was"),
        (_branch, "refs/heads/other"),
        (_edit, "changed: tool"),
        (_stage, "the index was changed"),
        (_untracked, "changed: note"),
        (_merge, "a merge is under way"),
    ],
)
def test_a_checkout_that_moved_is_refused_and_left_alone(
    workspaces: Workspaces, repository: Path, move: Callable[[Path], None], said: str
) -> None:
    made = checkpoint(workspaces, change_everything)
    move(repository)
    before = everything(repository)
    accepted = workspaces.apply_to_user(made.commit)
    assert not accepted.is_applied
    assert accepted.reason_code == "user_moved"
    assert any(said in reason for reason in accepted.reasons)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
@pytest.mark.case("GIT-14")
def test_a_corrupt_index_at_acceptance_is_a_fault(workspaces: Workspaces, repository: Path) -> None:
    made = checkpoint(workspaces, change_everything)
    (repository / ".git" / "index").write_bytes(b"garbage, long enough to be looked at by git itself")
    before = everything(repository)
    with pytest.raises(WorkspaceFault, match="index"):
        workspaces.apply_to_user(made.commit)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
def test_files_that_git_does_not_track_are_never_written_over(
    workspaces: Workspaces, repository: Path
) -> None:
    def change(tree: Path) -> None:
        (tree / ".gitignore").write_text("")
        (tree / "ignored").write_text("tracked now\n")

    made = checkpoint(workspaces, change)
    (repository / "ignored").write_text("the user's own")
    before = everything(repository)
    accepted = workspaces.apply_to_user(made.commit)
    assert (accepted.is_applied, accepted.reason_code) == (False, "in_the_way")
    assert "ignored" in accepted.reasons[0]
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
def test_a_lock_in_the_checkout_is_named(
    workspaces: Workspaces, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omx_autoresearch.system.git.LOCK_WAIT_SECONDS", 0.1)
    made = checkpoint(workspaces, change_everything)
    (repository / ".git" / "index.lock").touch()
    before = everything(repository)
    accepted = workspaces.apply_to_user(made.commit)
    assert (accepted.is_applied, accepted.reason_code) == (False, "locked")
    assert "index.lock" in accepted.reasons[0]
    assert everything(repository) == before
    (repository / ".git" / "index.lock").unlink()
    assert workspaces.apply_to_user(made.commit).is_applied


@pytest.mark.requirement("TREE-09")
def test_an_acceptance_that_fails_half_way_is_taken_back(
    repository: Path, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".gitattributes").write_text("*.zzz filter=maybe\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "filtered")
    flag = tmp_path / "broken"
    git(
        repository,
        "config",
        "filter.maybe.smudge",
        str(script(tmp_path / "maybe", f"test ! -e {flag} && cat")),
    )
    git(repository, "config", "filter.maybe.clean", "cat")
    git(repository, "config", "filter.maybe.required", "true")
    workspaces = Workspaces.create(str(repository), str(tmp_path / "work"), "e1")

    def change(tree: Path) -> None:
        change_everything(tree)
        (tree / "z.zzz").write_text("x\n")

    made = checkpoint(workspaces, change)
    flag.touch()
    before = contents(repository)
    accepted = workspaces.apply_to_user(made.commit)
    assert (accepted.is_applied, accepted.reason_code) == (False, "git_refused")
    assert "z.zzz" in accepted.reasons[0]
    assert contents(repository) == {
        name: found for name, found in before.items() if not name.startswith(".git/")
    }
    flag.unlink()
    assert workspaces.apply_to_user(made.commit).is_applied
    assert git(repository, "write-tree") == made.tree


_ACCEPTOR = """
import sys
from omx_autoresearch.experiments.worktrees.pair import Workspaces
Workspaces.open(sys.argv[1]).apply_to_user(sys.argv[2])
"""


@pytest.mark.requirement("TREE-09")
def test_an_acceptance_that_is_killed_is_taken_back_and_done_again(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspaces = Workspaces.create(str(repository), str(tmp_path / "work"), "e1")
    made = checkpoint(workspaces, change_everything)
    # a git that writes half of the files and then kills itself and whoever called it
    script(
        tmp_path / "bin" / "git",
        'case "$*" in *"read-tree -m"*)\n'
        f"cd {repository} && rm a.py gone.txt && printf tw > a.py && printf xx > new.bin.part\n"
        "rm new.bin.part; : > empty; chmod 755 tool; kill -9 $PPID; exit 1;;\n"
        'esac; exec /usr/bin/git "$@"',
    )
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    work = os.path.dirname(workspaces.candidate_path)
    done = subprocess.run([sys.executable, "-c", _ACCEPTOR, work, made.commit], env=env, check=False)
    assert done.returncode == -9
    assert git(repository, "status", "--porcelain") != ""
    accepted = Workspaces.open(work).apply_to_user(made.commit)
    assert accepted.is_applied, accepted
    assert git(repository, "write-tree") == made.tree
    assert contents(repository) == contents(Path(workspaces.candidate_path))


@pytest.mark.requirement("TREE-09")
def test_after_a_kill_nothing_is_taken_back_that_the_user_did_since(repository: Path, tmp_path: Path) -> None:
    workspaces = Workspaces.create(str(repository), str(tmp_path / "work"), "e1")
    made = checkpoint(workspaces, change_everything)
    with open(os.path.join(workspaces.store_path, "accepting"), "w", encoding="ascii") as stream:
        stream.write(made.commit)
    (repository / "a.py").write_text("the user's own edit\n")
    before = everything(repository)
    with pytest.raises(WorkspaceFault, match=r"interrupted.*a\.py"):
        workspaces.apply_to_user(made.commit)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
def test_an_acceptance_that_was_done_before_the_kill_is_done(repository: Path, tmp_path: Path) -> None:
    workspaces = Workspaces.create(str(repository), str(tmp_path / "work"), "e1")
    made = checkpoint(workspaces, change_everything)
    assert workspaces.apply_to_user(made.commit).is_applied
    with open(os.path.join(workspaces.store_path, "accepting"), "w", encoding="ascii") as stream:
        stream.write(made.commit)
    assert workspaces.apply_to_user(made.commit).is_applied
    assert workspaces.apply_to_user(made.commit).reason_code == "user_moved"


@pytest.mark.requirement("TREE-17")
def test_branches_are_created_all_or_none_and_none_is_checked_out(
    workspaces: Workspaces, repository: Path, tmp_path: Path
) -> None:
    first = checkpoint(workspaces, change_everything)
    second = checkpoint(workspaces, lambda tree: (tree / "a.py").unlink())
    before = contents(repository)
    git(repository, "branch", "taken/2")
    with pytest.raises(WorkspaceFault, match="taken/2"):
        workspaces.branches([("taken/1", first.commit), ("taken/2", second.commit)])
    for name in ("-x", "a..b", "@{-1}", "x y", "main"):
        with pytest.raises(WorkspaceFault):
            workspaces.branches([("fine", first.commit), (name, second.commit)])
    assert git(repository, "branch", "--list", "taken/1", "fine") == ""
    assert workspaces.branches([("tried/1", first.commit), ("tried/2", second.commit)]) == (
        "tried/1",
        "tried/2",
    )
    workspaces.close(forget=True)
    assert git(repository, "rev-parse", "tried/2") == second.commit
    assert git(repository, "rev-list", "--count", "main..tried/2") == "2"
    git(repository, "fsck", "--strict")
    assert contents(repository) == before
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.requirement("TREE-10")
def test_the_base_survives_a_user_who_prunes_it(workspaces: Workspaces, repository: Path) -> None:
    made = checkpoint(workspaces, change_everything)
    git(repository, "checkout", "-q", "--orphan", "anew")
    git(repository, "rm", "-rqf", ".")
    git(repository, "commit", "-q", "--allow-empty", "-m", "anew")
    git(repository, "branch", "-D", "main")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "-q", "--prune=now")
    workspaces.tree(workspaces.candidate_path).set_to(workspaces.base_commit)
    workspaces.tree(workspaces.candidate_path).set_to(made.commit)
    assert workspaces.patch(workspaces.base_commit, made.commit)


@pytest.mark.requirement("TREE-10")
@pytest.mark.parametrize("is_deletion", [False, True])
def test_a_checkpoint_survives_a_user_who_prunes_what_it_shares(
    workspaces: Workspaces, repository: Path, is_deletion: bool
) -> None:
    def change(tree: Path) -> None:
        if is_deletion:
            (tree / "gone.txt").unlink()
        else:
            (tree / "a.py").write_text("stashed by the user, then found by a candidate\n")

    change(repository)
    git(repository, "stash", "-q")
    made = checkpoint(workspaces, change)
    git(repository, "stash", "drop", "-q")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "-q", "--prune=now")
    workspaces.tree(workspaces.candidate_path).set_to(workspaces.base_commit)
    Workspaces.open(os.path.dirname(workspaces.candidate_path)).tree(workspaces.incumbent_path).set_to(
        made.commit
    )
    assert workspaces.patch(workspaces.base_commit, made.commit)
    assert workspaces.apply_to_user(made.commit).is_applied
