"""Two work trees: made, restored exactly from any state, and lost without anybody else's tree being taken."""

from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.worktrees.pair import Checkpoint, WorktreePair
from omx_autoresearch.experiments.worktrees.worktree import Snapshot, TreeFault
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal, WorkspaceFault
from omx_autoresearch.system.git import LOCK_WAIT_SECONDS
from tests.support.contents_on_disk import contents
from tests.support.repositories import git, store_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def worktrees(repository: Path, tmp_path: Path) -> WorktreePair:
    return WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")


@pytest.fixture
def candidate(worktrees: WorktreePair, tmp_path: Path) -> Path:
    return tmp_path / "work" / "candidate"


def accept(worktrees: WorktreePair, message: str = "better") -> Checkpoint:
    """What stands in the candidate becomes a checkpoint."""
    made = worktrees.checkpoint(message)
    assert isinstance(made, Checkpoint), made
    return made


@pytest.mark.requirement("TREE-01")
def test_both_trees_hold_the_commit_that_is_checked_out_under_equally_long_paths(
    worktrees: WorktreePair, repository: Path, tmp_path: Path
) -> None:
    assert worktrees.base_commit == git(repository, "rev-parse", "HEAD")
    assert len(worktrees.incumbent.root_path) == len(worktrees.candidate.root_path)
    for name in ("incumbent", "candidate"):
        assert contents(tmp_path / "work" / name) == contents(repository)
    assert {tree.commit for tree in worktrees.arms} == {worktrees.base_commit}


def test_an_agent_can_use_git_in_its_tree(worktrees: WorktreePair, repository: Path, candidate: Path) -> None:
    git(repository, "tag", "later")
    (candidate / "a.py").write_text("two\n")
    assert git(candidate, "status", "--porcelain") == "M a.py"
    assert "first" in git(candidate, "log", "--format=%s", "main")
    git(candidate, "checkout", "-qb", "mine")
    git(candidate, "commit", "-qam", "an agent's own")
    git(candidate, "stash", "list")
    git(candidate, "gc", "-q")
    assert accept(worktrees).changed == ("a.py",)


def _plain_new_files(candidate: Path) -> None:
    (candidate / "new.txt").write_text("x")
    (candidate / "d").mkdir()
    (candidate / "d" / "e.txt").write_text("x")
    (candidate / "ignored").write_text("x")


def _edits(candidate: Path) -> None:
    (candidate / "a.py").write_text("two\n")
    (candidate / "pkg" / "b.py").unlink()


def _edit_under_the_same_size_and_time(candidate: Path) -> None:
    path = candidate / "a.py"
    before = path.stat()
    path.write_text("eno\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _nested_repository(candidate: Path) -> None:
    git(candidate, "init", "-q", "nest")
    (candidate / "nest" / "f").write_text("x")


def _repository_around_tracked_files(candidate: Path) -> None:
    git(candidate / "pkg", "init", "-q")


def _folder_for_a_file(candidate: Path) -> None:
    (candidate / "a.py").unlink()
    (candidate / "a.py").mkdir()
    (candidate / "a.py" / "x").write_text("x")


def _file_for_a_folder(candidate: Path) -> None:
    shutil.rmtree(candidate / "pkg")
    (candidate / "pkg").write_text("x")


def _link_for_a_folder(candidate: Path) -> None:
    shutil.move(candidate / "pkg", candidate / "elsewhere")
    (candidate / "pkg").symlink_to("elsewhere")


def _no_permissions(candidate: Path) -> None:
    (candidate / "deep" / "er").mkdir(parents=True)
    (candidate / "deep" / "er" / "f").write_text("x")
    (candidate / "deep" / "er").chmod(0)
    (candidate / "a.py").chmod(0)
    (candidate / "pkg").chmod(0)


def _read_only_folder(candidate: Path) -> None:
    (candidate / "pkg" / "c.py").write_text("x")
    (candidate / "pkg").chmod(0o555)


def _executable(candidate: Path) -> None:
    (candidate / "a.py").chmod(0o755)


def _special_files(candidate: Path) -> None:
    os.mkfifo(candidate / "pkg" / "pipe")
    (candidate / "a.py").unlink()
    os.mkfifo(candidate / "a.py")


def _odd_names(candidate: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", b'"quoted"', b"-rf", b" ", b"a.py\\", b":(top)x", b"[ab]*"):
        with open(os.path.join(os.fsencode(candidate), name), "wb") as stream:
            stream.write(b"x")


def _empty_folders(candidate: Path) -> None:
    (candidate / "empty" / "er").mkdir(parents=True)


def _case_only_rename(candidate: Path) -> None:
    (candidate / "a.py").rename(candidate / "A.py")


def _git_gone(candidate: Path) -> None:
    shutil.rmtree(candidate / ".git")
    (candidate / "a.py").write_text("two\n")


def _git_is_a_file(candidate: Path) -> None:
    shutil.rmtree(candidate / ".git")
    (candidate / ".git").write_text("gitdir: /nonexistent\n")


def _excludes_everything(candidate: Path) -> None:
    (candidate / ".git" / "info" / "exclude").write_text("*\n")
    (candidate / ".gitignore").write_text("*\n")
    (candidate / "hidden").write_text("x")


def _own_commits(candidate: Path) -> None:
    (candidate / "hidden").write_text("x")
    git(candidate, "add", "-A")
    git(candidate, "commit", "-qm", "mine")


def _gone(candidate: Path) -> None:
    shutil.rmtree(candidate)


def _empty(candidate: Path) -> None:
    shutil.rmtree(candidate)
    candidate.mkdir()


def _no_permission_at_all(candidate: Path) -> None:
    candidate.chmod(0)


MISCHIEF = (
    _plain_new_files,
    _edits,
    _edit_under_the_same_size_and_time,
    _nested_repository,
    _repository_around_tracked_files,
    _folder_for_a_file,
    _file_for_a_folder,
    _link_for_a_folder,
    _no_permissions,
    _read_only_folder,
    _executable,
    _special_files,
    _odd_names,
    _empty_folders,
    _case_only_rename,
    _git_gone,
    _git_is_a_file,
    _excludes_everything,
    _own_commits,
    _gone,
    _empty,
    _no_permission_at_all,
)


@pytest.mark.slow
@pytest.mark.requirement("TREE-02")
@pytest.mark.case("GIT-01")
@pytest.mark.case("GIT-04")
@pytest.mark.parametrize("mischief", MISCHIEF, ids=lambda act: act.__name__.strip("_"))
@pytest.mark.parametrize("is_reopened", [False, True], ids=["same process", "another process"])
def test_whatever_a_candidate_did_the_tree_is_the_checkpoint_again(
    worktrees: WorktreePair, candidate: Path, mischief: Callable[[Path], None], is_reopened: bool
) -> None:
    before, before_git = contents(candidate), contents(candidate / ".git", without=("index",))
    mischief(candidate)
    if is_reopened:
        worktrees = WorktreePair.open(str(candidate.parent))
    worktrees.candidate.set_to(worktrees.base_commit)
    assert contents(candidate) == before
    assert contents(candidate / ".git", without=("index",)) == before_git
    assert worktrees.candidate.drift() == ()


@pytest.mark.requirement("TREE-02")
def test_many_trials_in_a_row_leave_what_was_accepted_and_nothing_else(
    worktrees: WorktreePair, candidate: Path
) -> None:
    best = worktrees.base_commit
    expected = contents(candidate)
    for number in range(6):
        (candidate / "pkg" / f"n{number}" / "x").mkdir(parents=True)
        (candidate / "pkg" / f"n{number}" / "x" / "f.py").write_text(str(number))
        (candidate / "a.py").write_text(str(number))
        (candidate / "ignored").write_text("left")
        made = accept(worktrees)
        assert "ignored" not in contents(candidate)
        if number % 2:
            best, expected = made.commit, contents(candidate)
            worktrees.incumbent.set_to(best)
        worktrees.candidate.set_to(best)
        assert contents(candidate) == expected
    assert contents(candidate.parent / "incumbent") == expected


@pytest.mark.requirement("TREE-02")
@pytest.mark.parametrize("what", ["garbage", "empty", "gone"])
def test_an_index_that_a_crash_broke_is_made_anew(
    worktrees: WorktreePair, candidate: Path, what: str
) -> None:
    before = contents(candidate)
    index = os.path.join(store_of(worktrees), "index-candidate")
    os.unlink(index)
    if what != "gone":
        with open(index, "wb") as stream:
            stream.write(b"garbage" if what == "garbage" else b"")
    (candidate / "a.py").write_text("two\n")
    (candidate / "left").write_text("x")
    worktrees = WorktreePair.open(str(candidate.parent))
    worktrees.candidate.set_to(worktrees.base_commit)
    assert contents(candidate) == before


@pytest.mark.requirement("TREE-02")
def test_a_lock_that_a_killed_git_left_is_waited_for_and_removed(
    worktrees: WorktreePair, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omx_autoresearch.system.git.LOCK_WAIT_SECONDS", LOCK_WAIT_SECONDS / 50)
    with open(os.path.join(store_of(worktrees), "index-candidate.lock"), "w"):
        (candidate / "a.py").write_text("two\n")
    assert accept(worktrees).changed == ("a.py",)


@pytest.mark.requirement("TREE-03")
def test_what_is_checkpointed_is_what_stands_in_the_tree_without_ignored_files(
    worktrees: WorktreePair, candidate: Path
) -> None:
    _odd_names(candidate)
    (candidate / "ignored").write_text("x")
    (candidate / "a.py").unlink()
    made = accept(worktrees)
    assert set(made.changed) == {
        "a.py", "new\nline", os.fsdecode(b"\xff\xfe"), '"quoted"', "-rf", " ", "a.py\\", ":(top)x", "[ab]*"
    }  # fmt: skip
    assert git(candidate, "rev-parse", "HEAD") == made.commit
    assert git(candidate, "status", "--porcelain", "--ignored") == ""
    worktrees.incumbent.set_to(made.commit)
    assert contents(candidate.parent / "incumbent") == contents(candidate)


@pytest.mark.requirement("TREE-03")
def test_several_hundred_changed_files_are_one_snapshot(worktrees: WorktreePair, candidate: Path) -> None:
    for number in range(300):
        (candidate / f"n{number}").write_text("x")
    (candidate / ".gitignore").unlink()
    (candidate / "a.py").unlink()
    (candidate / "a.py").mkdir()
    (candidate / "a.py" / "inside").write_text("x")
    made = accept(worktrees)
    assert len(made.changed) == 303
    assert worktrees.candidate.drift() == ()


@pytest.mark.requirement("TREE-03")
def test_a_tree_that_nobody_changed_is_no_new_checkpoint(worktrees: WorktreePair, candidate: Path) -> None:
    (candidate / "a.py").touch()
    made = accept(worktrees)
    assert (made.commit, made.changed) == (worktrees.base_commit, ())


@pytest.mark.requirement("TREE-04")
@pytest.mark.case("GIT-23")
@pytest.mark.parametrize("has_commit", [False, True])
def test_a_nested_repository_is_refused_by_name(
    worktrees: WorktreePair, candidate: Path, has_commit: bool
) -> None:
    _nested_repository(candidate)
    if has_commit:
        git(candidate / "nest", "add", "-A")
        git(candidate / "nest", "commit", "-qm", "inner")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("nested_repository", ("nest",))
    assert "nested repository" in fault.detail
    worktrees.candidate.set_to(worktrees.base_commit)
    assert not (candidate / "nest").exists()


@pytest.mark.requirement("TREE-04")
@pytest.mark.case("GIT-23")
def test_a_repository_around_tracked_files_is_refused_by_name(
    worktrees: WorktreePair, candidate: Path
) -> None:
    _repository_around_tracked_files(candidate)
    (candidate / "pkg" / "b.py").write_text("edited\n")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("nested_repository", ("pkg",))


@pytest.mark.requirement("TREE-04")
def test_a_repository_in_an_ignored_folder_is_nobodys_concern(
    worktrees: WorktreePair, candidate: Path
) -> None:
    git(candidate, "init", "-q", "ignored")
    assert accept(worktrees).changed == ()
    assert not (candidate / "ignored").exists()


@pytest.mark.requirement("TREE-04")
def test_pipes_and_sockets_are_refused_by_name(worktrees: WorktreePair, candidate: Path) -> None:
    os.mkfifo(candidate / "pkg" / "pipe")
    (candidate / "new").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(candidate / "new" / "s"))
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, set(fault.paths)) == ("special_file", {"pkg/pipe", "new/s"})


@pytest.mark.requirement("TREE-03", "TREE-13")
def test_a_folder_that_became_a_link_is_a_checkpoint_and_can_be_taken_back(
    worktrees: WorktreePair, repository: Path, candidate: Path
) -> None:
    (candidate / "pkg").rename(candidate / "package")
    (candidate / "pkg").symlink_to("package")
    made = accept(worktrees)
    assert set(made.changed) == {"pkg", "pkg/b.py", "package/b.py"}
    assert (candidate / "pkg").is_symlink()
    worktrees.candidate.set_to(worktrees.base_commit)
    assert contents(candidate) == contents(repository)
    worktrees.incumbent.set_to(made.commit)
    assert os.readlink(os.path.join(worktrees.incumbent.root_path, "pkg")) == "package"


@pytest.mark.requirement("TREE-04")
@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../incumbent/a.py", "pkg/../../x", ".git/hooks", "pkg/../.GIT/config", "pkg/up/.."],
)
def test_a_link_out_of_the_tree_is_refused_by_name(
    worktrees: WorktreePair, candidate: Path, target: str
) -> None:
    (candidate / "inside").symlink_to("pkg/b.py")
    (candidate / "pkg" / "up").symlink_to("..")
    (candidate / "outside").symlink_to(target)
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("link_outside", ("outside",))


@pytest.mark.requirement("TREE-04")
def test_a_file_too_large_is_refused_before_it_is_read(repository: Path, tmp_path: Path) -> None:
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    with open(os.path.join(worktrees.candidate.root_path, "huge"), "wb") as stream:
        stream.truncate(1 << 40)
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert (fault.reason_code, fault.paths) == ("file_too_large", ("huge",))


@pytest.mark.requirement("TREE-04")
def test_what_git_cannot_take_is_a_value_in_gits_words(worktrees: WorktreePair, candidate: Path) -> None:
    (candidate / ".gitattributes").write_text("*.py working-tree-encoding=no-such-encoding\n")
    (candidate / "a.py").write_text("two\n")
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert fault.reason_code == "not_addable"
    assert "no-such-encoding" in fault.detail
    worktrees.candidate.set_to(worktrees.base_commit)
    assert isinstance(worktrees.candidate.snapshot(), Snapshot)


@pytest.mark.requirement("TREE-05")
@pytest.mark.case("GIT-22")
@pytest.mark.parametrize(
    "message",
    [
        "$(touch pwn)",
        "`touch pwn`",
        "-F /etc/passwd",
        "two\nlines",
        "nul\0inside",
        "x" * 2**20,
        "🎉",
        "\ud800",
        "",
        "#c",
    ],
    ids=[
        "shell",
        "backquotes",
        "option",
        "lines",
        "nul",
        "megabyte",
        "emoji",
        "surrogate",
        "empty",
        "comment",
    ],
)
def test_a_message_is_text_and_the_commit_is_the_one_named(
    worktrees: WorktreePair, candidate: Path, message: str
) -> None:
    (candidate / "a.py").write_text("two\n")
    made = accept(worktrees, message)
    assert git(candidate, "rev-parse", "HEAD") == made.commit
    said = git(candidate, "log", "-1", "--format=%an <%ae>%n%B")
    assert said.startswith("omx-autoresearch <omx-autoresearch@localhost>")
    if message in {"$(touch pwn)", "-F /etc/passwd", "🎉", "two\nlines", "#c"}:
        assert said.endswith(message)
    assert len(said) < 20_000
    assert not list(candidate.parent.rglob("pwn"))


@pytest.mark.requirement("TREE-06")
@pytest.mark.case("GIT-19")
def test_a_lost_tree_is_a_value_and_is_made_anew(worktrees: WorktreePair, candidate: Path) -> None:
    before = contents(candidate)
    shutil.rmtree(candidate)
    assert worktrees.candidate.is_lost()
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert fault.reason_code == "workspace_lost"
    worktrees.candidate.set_to(worktrees.base_commit)
    assert contents(candidate) == before


@pytest.mark.requirement("TREE-06")
@pytest.mark.case("GIT-19")
def test_a_link_in_the_place_of_a_tree_is_never_followed(
    worktrees: WorktreePair, candidate: Path, repository: Path
) -> None:
    before = contents(repository, without=())
    shutil.rmtree(candidate)
    candidate.symlink_to(repository)
    fault = worktrees.candidate.snapshot()
    assert isinstance(fault, TreeFault)
    assert fault.reason_code == "workspace_lost"
    worktrees.candidate.set_to(worktrees.base_commit)
    assert not candidate.is_symlink()
    assert contents(repository, without=()) == before


@pytest.mark.requirement("TREE-07")
@pytest.mark.case("GIT-19")
def test_what_a_killed_start_left_is_no_hindrance(repository: Path, tmp_path: Path) -> None:
    WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    os.unlink(tmp_path / "work" / "checkpoints" / "worktrees.json")
    for name in os.listdir(tmp_path / "work" / "checkpoints"):
        if name.startswith("index") or name.endswith(".json"):
            os.unlink(tmp_path / "work" / "checkpoints" / name)
    with pytest.raises(StateUntrusted, match=r"worktrees\.json"):
        WorktreePair.open(str(tmp_path / "work"))
    worktrees = WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    assert isinstance(worktrees.candidate.snapshot(), Snapshot)


def test_a_folder_of_somebody_else_is_not_taken(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "work" / "candidate").mkdir(parents=True)
    (tmp_path / "work" / "candidate" / "mine").write_text("x")
    with pytest.raises(WorkspaceFault, match="does not belong"):
        WorktreePair.create(str(repository), str(tmp_path / "work"), "e1")
    assert (tmp_path / "work" / "candidate" / "mine").exists()


def test_an_experiment_is_not_made_twice_in_one_folder(worktrees: WorktreePair, repository: Path) -> None:
    with pytest.raises(StepIllegal, match="already"):
        WorktreePair.create(str(repository), os.path.dirname(worktrees.candidate.root_path), "e2")


def test_a_tree_in_the_middle_of_a_restoration_is_no_candidate(
    worktrees: WorktreePair, candidate: Path
) -> None:
    (candidate / ".git").chmod(0o700)
    with pytest.raises(WorkspaceFault):
        worktrees.candidate.set_to("0" * 40)
    with pytest.raises(StepIllegal, match="restore it first"):
        worktrees.candidate.snapshot()
    worktrees.candidate.set_to(worktrees.base_commit)
    assert isinstance(worktrees.candidate.snapshot(), Snapshot)


@pytest.mark.requirement("TREE-07")
def test_a_folder_that_was_moved_as_a_whole_serves(
    worktrees: WorktreePair, candidate: Path, tmp_path: Path
) -> None:
    (candidate / "a.py").write_text("two\n")
    made = accept(worktrees)
    candidate.parent.rename(tmp_path / "moved")
    worktrees = WorktreePair.open(str(tmp_path / "moved"))
    (tmp_path / "moved" / "candidate" / "b").write_text("x")
    worktrees.candidate.set_to(made.commit)
    assert git(tmp_path / "moved" / "candidate", "status", "--porcelain") == ""
    assert git(tmp_path / "moved" / "candidate", "rev-parse", "HEAD") == made.commit


@pytest.mark.requirement("TREE-02")
def test_two_processes_in_turn_do_not_mislead_each_other(worktrees: WorktreePair, candidate: Path) -> None:
    before = contents(candidate)
    other = WorktreePair.open(str(candidate.parent))
    for number in range(3):
        (candidate / f"n{number}").write_text("x")
        (candidate / "a.py").write_text(str(number))
        taken = other.candidate.snapshot()
        assert isinstance(taken, Snapshot)
        assert taken.changed == ("a.py", f"n{number}")
        assert accept(worktrees).changed == taken.changed
        worktrees.candidate.set_to(worktrees.base_commit)
        assert contents(candidate) == before
        assert other.candidate.drift() == ()


@pytest.mark.requirement("TREE-06")
def test_drift_names_what_changed_and_is_a_fault_where_the_tree_is_gone(
    worktrees: WorktreePair, candidate: Path
) -> None:
    (candidate / "a.py").write_text("other, and longer\n")
    (candidate / "ignored").write_text("x")
    assert set(worktrees.candidate.drift()) == {"a.py", "ignored"}
    assert set(WorktreePair.open(str(candidate.parent)).candidate.drift()) == {"a.py", "ignored"}
    shutil.rmtree(candidate)
    with pytest.raises(WorkspaceFault, match="could not be started"):
        worktrees.candidate.drift()


@pytest.mark.requirement("TREE-07")
def test_closing_removes_the_trees_and_forgetting_everything(
    worktrees: WorktreePair, candidate: Path, repository: Path
) -> None:
    before = git(repository, "worktree", "list")
    (candidate / "a.py").write_text("two\n")
    made = accept(worktrees)
    worktrees.close()
    assert not candidate.exists()
    again = WorktreePair.open(str(candidate.parent))
    assert b"+two" in again.patch(again.base_commit, made.commit)
    again.close(forget=True)
    assert os.listdir(candidate.parent) == []
    assert git(repository, "worktree", "list") == before
    assert "omx" not in git(repository, "for-each-ref")
