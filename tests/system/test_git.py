"""Git is asked without letting a repository run anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.freezing.tree import tree_state
from omx_autoresearch.system.git import (
    common_dir,
    find_root,
    git_dir,
    git_environment,
    head_commit,
    main_checkout,
    run_git,
)
from tests.support.repositories import git

if TYPE_CHECKING:
    from pathlib import Path


def digest(path: Path) -> str:
    return tree_state(str(path)).digest


# --- The environment -------------------------------------------------------------------------------------------------


@pytest.mark.case("GIT-12")
def test_no_git_variable_of_the_surroundings_reaches_git() -> None:
    environ = {
        "GIT_DIR": "/decoy",
        "GIT_INDEX_FILE": "/decoy/index",
        "GIT_CONFIG_PARAMETERS": "x",
        "HOME": "/h",
    }
    env = git_environment(environ)
    assert not any("decoy" in value for value in env.values())
    assert "GIT_CONFIG_PARAMETERS" not in env
    assert env["HOME"] == "/h"  # safe.directory and ignore rules of the user
    assert (env["GIT_OPTIONAL_LOCKS"], env["GIT_TERMINAL_PROMPT"], env["LC_ALL"]) == ("0", "0", "C")


@pytest.mark.case("GIT-12")
def test_a_decoy_repository_in_the_environment_changes_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_state(str(repository))
    decoy = tmp_path / "decoy"
    decoy.mkdir()
    git(decoy, "init", "-q")
    for name, value in (
        ("DIR", ".git"),
        ("INDEX_FILE", ".git/index"),
        ("WORK_TREE", ""),
        ("COMMON_DIR", ".git"),
    ):
        monkeypatch.setenv(f"GIT_{name}", str(decoy / value))
    assert tree_state(str(repository)) == before
    assert run_git(["rev-parse", "--show-toplevel"], cwd=str(repository)).stdout.decode().strip() == str(
        repository
    )


def test_what_git_refuses_is_a_value_with_its_message(repository: Path) -> None:
    result = run_git(["rev-parse", "--verify", "no-such-branch"], cwd=str(repository))
    assert (result.exit_status, result.stdout) == (128, b"")
    assert "fatal" in result.stderr


def test_output_larger_than_a_pipe_on_both_streams_is_whole(repository: Path) -> None:
    both = "alias.both=!head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"
    result = run_git(["-c", both, "both"], cwd=str(repository))
    assert (len(result.stdout), len(result.stderr)) == (300000, 300000)


def test_git_that_does_not_answer_is_a_fault(repository: Path) -> None:
    with pytest.raises(WorkspaceFault, match="did not end within"):
        run_git(["-c", "alias.wait=!sleep 60", "wait"], cwd=str(repository), timeout_seconds=0.3)


def test_a_machine_without_git_is_told_so(repository: Path) -> None:
    with pytest.raises(WorkspaceFault, match="could not be started"):
        run_git(["status"], cwd=str(repository), environ={"PATH": "/nonexistent"})


# --- Where a repository is -------------------------------------------------------------------------------------------


def test_the_root_is_found_from_below_and_not_from_outside(repository: Path, tmp_path: Path) -> None:
    assert find_root(str(repository / "pkg")) == str(repository)
    assert find_root(str(repository / "pkg" / "b.py")) == str(repository)
    assert find_root(str(tmp_path)) is None
    assert (git_dir(str(tmp_path)), common_dir(str(tmp_path)), main_checkout(str(tmp_path))) == (
        None,
        None,
        None,
    )


def test_an_empty_git_folder_is_no_repository(repository: Path) -> None:
    (repository / "pkg" / ".git").mkdir()
    assert find_root(str(repository / "pkg")) == str(repository)


def test_a_linked_work_tree_knows_its_main_checkout(repository: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked))
    assert find_root(str(linked / "pkg")) == str(linked)
    assert git_dir(str(linked)) == str(repository / ".git" / "worktrees" / "linked")
    assert common_dir(str(linked)) == common_dir(str(repository)) == str(repository / ".git")
    assert main_checkout(str(linked / "pkg")) == str(repository)
    assert main_checkout(str(repository / "pkg")) == str(repository)
    assert head_commit(str(linked)) == head_commit(str(repository))
    assert digest(linked) == digest(repository)


def test_a_work_tree_of_a_bare_repository_has_no_main_checkout(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repository), "bare.git")
    git(tmp_path / "bare.git", "worktree", "add", "-q", str(tmp_path / "linked"), "main")
    assert main_checkout(str(tmp_path / "linked")) is None
    assert common_dir(str(tmp_path / "linked")) == str(tmp_path / "bare.git")


def test_head_is_read_loose_packed_detached_and_unborn(repository: Path, tmp_path: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert head_commit(str(repository)) == commit
    git(repository, "pack-refs", "--all")
    assert head_commit(str(repository)) == commit
    git(repository, "checkout", "-q", "--detach")
    assert head_commit(str(repository)) == commit
    git(tmp_path, "init", "-q", "unborn")
    assert head_commit(str(tmp_path / "unborn")) == ""
    with pytest.raises(WorkspaceFault, match="no git repository"):
        head_commit(str(tmp_path))
