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
from omx_autoresearch.experiments.worktrees.pair import Checkpoint, WorktreePair
from omx_autoresearch.foundation.errors import WorkspaceFault
from tests.support.contents_on_disk import contents, everything, script
from tests.support.repositories import git, store_of, tree_of

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
def worktrees(repository: Path, tmp_path: Path, home: Path) -> WorktreePair:
    with open(home / ".gitconfig", "a", encoding="utf-8") as stream:
        stream.write(ODD_SETTINGS)
    return WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")


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


def checkpoint(worktrees: WorktreePair, change: Callable[[Path], None]) -> Checkpoint:
    change(Path(worktrees.candidate.root_path))
    made = worktrees.checkpoint("m")
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
    worktrees: WorktreePair, repository: Path
) -> None:
    made = checkpoint(worktrees, change_everything)
    patch = worktrees.patch(worktrees.base_commit, made.commit)
    assert b"rename from old name.txt" in patch
    assert b"\x1b[" not in patch
    assert b"--- a/a.py" in patch
    assert applied_tree(repository, worktrees.base_commit, patch) == tree_of(worktrees, made.commit)
    accepted = worktrees.apply_to_user(made.commit)
    assert accepted.is_applied
    assert accepted.changed_paths == made.changed
    assert git(repository, "write-tree") == tree_of(worktrees, made.commit)
    assert git(repository, "diff", "--stat") == ""
    assert git(repository, "rev-parse", "HEAD") == worktrees.base_commit
    assert contents(repository) == contents(Path(worktrees.candidate.root_path))


@pytest.mark.requirement("TREE-13")
def test_a_patch_of_many_megabytes_is_whole(
    worktrees: WorktreePair, repository: Path, tmp_path: Path
) -> None:
    def change(tree: Path) -> None:
        (tree / "large.bin").write_bytes(random.Random(2).randbytes(3 << 20))
        (tree / "large.txt").write_text("".join(f"{n}\n" for n in range(400_000)))

    made = checkpoint(worktrees, change)
    patch = worktrees.patch(worktrees.base_commit, made.commit)
    assert len(patch) > 5 << 20
    worktrees.patch(worktrees.base_commit, made.commit, to_path=str(tmp_path / "p"))
    assert (tmp_path / "p").read_bytes() == patch
    assert applied_tree(repository, worktrees.base_commit, patch) == tree_of(worktrees, made.commit)


@pytest.mark.requirement("TREE-13")
def test_changed_files_are_shown_with_their_lines(worktrees: WorktreePair) -> None:
    made = checkpoint(worktrees, change_everything)
    shown = {change.path: change for change in worktrees.changes(worktrees.base_commit, made.commit)}
    assert shown["a.py"] == FileChange("a.py", "M", "", 1, 1)
    assert shown["data.bin"] == FileChange("data.bin", "M", "", None, None)
    assert shown["gone.txt"] == FileChange("gone.txt", "D", "", 0, 1)
    assert shown['new näme "q".txt'] == FileChange('new näme "q".txt', "R", "old name.txt", 0, 0)
    assert shown["link"].status == "A"
    assert "new\nline" in shown


def test_nothing_between_two_commits_is_an_empty_patch_and_no_act(
    worktrees: WorktreePair, repository: Path
) -> None:
    before = everything(repository)
    assert worktrees.patch(worktrees.base_commit, worktrees.base_commit) == b""
    assert worktrees.apply_to_user(worktrees.base_commit).is_applied
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
    worktrees: WorktreePair, repository: Path, move: Callable[[Path], None], said: str
) -> None:
    made = checkpoint(worktrees, change_everything)
    move(repository)
    before = everything(repository)
    accepted = worktrees.apply_to_user(made.commit)
    assert not accepted.is_applied
    assert accepted.reason_code == "user_moved"
    assert any(said in reason for reason in accepted.reasons)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
@pytest.mark.case("GIT-14")
def test_a_corrupt_index_at_acceptance_is_a_fault(worktrees: WorktreePair, repository: Path) -> None:
    made = checkpoint(worktrees, change_everything)
    (repository / ".git" / "index").write_bytes(b"garbage, long enough to be looked at by git itself")
    before = everything(repository)
    with pytest.raises(WorkspaceFault, match="index"):
        worktrees.apply_to_user(made.commit)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
def test_files_that_git_does_not_track_are_never_written_over(
    worktrees: WorktreePair, repository: Path
) -> None:
    def change(tree: Path) -> None:
        (tree / ".gitignore").write_text("")
        (tree / "ignored").write_text("tracked now\n")

    made = checkpoint(worktrees, change)
    (repository / "ignored").write_text("the user's own")
    before = everything(repository)
    accepted = worktrees.apply_to_user(made.commit)
    assert (accepted.is_applied, accepted.reason_code) == (False, "in_the_way")
    assert "ignored" in accepted.reasons[0]
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
def test_a_lock_in_the_checkout_is_named(
    worktrees: WorktreePair, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omx_autoresearch.system.git.LOCK_WAIT_SECONDS", 0.1)
    made = checkpoint(worktrees, change_everything)
    (repository / ".git" / "index.lock").touch()
    before = everything(repository)
    accepted = worktrees.apply_to_user(made.commit)
    assert (accepted.is_applied, accepted.reason_code) == (False, "locked")
    assert "index.lock" in accepted.reasons[0]
    assert everything(repository) == before
    (repository / ".git" / "index.lock").unlink()
    assert worktrees.apply_to_user(made.commit).is_applied


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
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")

    def change(tree: Path) -> None:
        change_everything(tree)
        (tree / "z.zzz").write_text("x\n")

    made = checkpoint(worktrees, change)
    flag.touch()
    before = contents(repository)
    accepted = worktrees.apply_to_user(made.commit)
    assert (accepted.is_applied, accepted.reason_code) == (False, "git_refused")
    assert "z.zzz" in accepted.reasons[0]
    assert contents(repository) == {
        name: found for name, found in before.items() if not name.startswith(".git/")
    }
    flag.unlink()
    assert worktrees.apply_to_user(made.commit).is_applied
    assert git(repository, "write-tree") == tree_of(worktrees, made.commit)


_ACCEPTOR = """
import sys
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
WorktreePair.open(sys.argv[1]).apply_to_user(sys.argv[2])
"""


@pytest.mark.requirement("TREE-09")
def test_an_acceptance_that_is_killed_is_taken_back_and_done_again(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    made = checkpoint(worktrees, change_everything)
    # a git that writes half of the files and then kills itself and whoever called it
    script(
        tmp_path / "bin" / "git",
        'case "$*" in *"read-tree -m"*)\n'
        f"cd {repository} && rm a.py gone.txt && printf tw > a.py && printf xx > new.bin.part\n"
        "rm new.bin.part; : > empty; chmod 755 tool; kill -9 $PPID; exit 1;;\n"
        'esac; exec /usr/bin/git "$@"',
    )
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    work = os.path.dirname(worktrees.candidate.root_path)
    done = subprocess.run([sys.executable, "-c", _ACCEPTOR, work, made.commit], env=env, check=False)
    assert done.returncode == -9
    assert git(repository, "status", "--porcelain") != ""
    accepted = WorktreePair.open(work).apply_to_user(made.commit)
    assert accepted.is_applied, accepted
    assert git(repository, "write-tree") == tree_of(worktrees, made.commit)
    assert contents(repository) == contents(Path(worktrees.candidate.root_path))


@pytest.mark.requirement("TREE-09")
def test_after_a_kill_nothing_is_taken_back_that_the_user_did_since(repository: Path, tmp_path: Path) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    made = checkpoint(worktrees, change_everything)
    with open(os.path.join(store_of(worktrees), "accepting"), "w", encoding="ascii") as stream:
        stream.write(made.commit)
    (repository / "a.py").write_text("the user's own edit\n")
    before = everything(repository)
    with pytest.raises(WorkspaceFault, match=r"interrupted.*a\.py"):
        worktrees.apply_to_user(made.commit)
    assert everything(repository) == before


@pytest.mark.requirement("TREE-09")
@pytest.mark.parametrize("is_marked", [True, False], ids=["before the mark is gone", "before it is recorded"])
def test_an_acceptance_that_was_done_before_the_kill_is_done(
    repository: Path, tmp_path: Path, is_marked: bool
) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    made = checkpoint(worktrees, change_everything)
    assert worktrees.apply_to_user(made.commit).is_applied
    mark = Path(store_of(worktrees), "accepting")
    if is_marked:
        mark.write_text(made.commit, encoding="ascii")
    assert worktrees.reasons_against(made.commit) == ()
    accepted = worktrees.apply_to_user(made.commit)
    assert accepted.is_applied
    assert accepted.changed_paths == made.changed
    assert not mark.exists()
    (repository / "tool").write_text("the user's own edit\n")
    assert worktrees.reasons_against(made.commit)
    assert worktrees.apply_to_user(made.commit).reason_code == "user_moved"


@pytest.mark.requirement("TREE-17")
def test_branches_are_created_all_or_none_and_none_is_checked_out(
    worktrees: WorktreePair, repository: Path, tmp_path: Path
) -> None:
    first = checkpoint(worktrees, change_everything)
    second = checkpoint(worktrees, lambda tree: (tree / "a.py").unlink())
    before = contents(repository)
    git(repository, "branch", "taken/2")
    with pytest.raises(WorkspaceFault, match="taken/2"):
        worktrees.branches([("taken/1", first.commit), ("taken/2", second.commit)])
    for name in ("-x", "a..b", "@{-1}", "x y", "main"):
        with pytest.raises(WorkspaceFault):
            worktrees.branches([("fine", first.commit), (name, second.commit)])
    assert git(repository, "branch", "--list", "taken/1", "fine") == ""
    assert worktrees.branches([("tried/1", first.commit), ("tried/2", second.commit)]) == (
        "tried/1",
        "tried/2",
    )
    worktrees.close(forget=True)
    assert git(repository, "rev-parse", "tried/2") == second.commit
    assert git(repository, "rev-list", "--count", "main..tried/2") == "2"
    git(repository, "fsck", "--strict")
    assert contents(repository) == before
    assert git(repository, "symbolic-ref", "HEAD") == "refs/heads/main"


@pytest.mark.requirement("TREE-10")
def test_the_base_survives_a_user_who_prunes_it(worktrees: WorktreePair, repository: Path) -> None:
    made = checkpoint(worktrees, change_everything)
    git(repository, "checkout", "-q", "--orphan", "anew")
    git(repository, "rm", "-rqf", ".")
    git(repository, "commit", "-q", "--allow-empty", "-m", "anew")
    git(repository, "branch", "-D", "main")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "-q", "--prune=now")
    worktrees.candidate.set_to(worktrees.base_commit)
    worktrees.candidate.set_to(made.commit)
    assert worktrees.patch(worktrees.base_commit, made.commit)


@pytest.mark.requirement("TREE-10")
@pytest.mark.parametrize("is_deletion", [False, True])
def test_a_checkpoint_survives_a_user_who_prunes_what_it_shares(
    worktrees: WorktreePair, repository: Path, is_deletion: bool
) -> None:
    def change(tree: Path) -> None:
        if is_deletion:
            (tree / "gone.txt").unlink()
        else:
            (tree / "a.py").write_text("stashed by the user, then found by a candidate\n")

    change(repository)
    git(repository, "stash", "-q")
    made = checkpoint(worktrees, change)
    git(repository, "stash", "drop", "-q")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "-q", "--prune=now")
    worktrees.candidate.set_to(worktrees.base_commit)
    WorktreePair.open(os.path.dirname(worktrees.candidate.root_path)).incumbent.set_to(made.commit)
    assert worktrees.patch(worktrees.base_commit, made.commit)
    assert worktrees.apply_to_user(made.commit).is_applied
