"""What a checkout must be before an experiment may start, and what counts as moved afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.worktrees.checkout import (
    moved,
    open_repository,
    require_clean,
    shown_path,
    user_stamp,
)
from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.system.git import user_git
from tests.support.contents_on_disk import script
from tests.support.repositories import git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def start(path: Path) -> None:
    require_clean(open_repository(str(path)))


def _changed(repository: Path) -> Path:
    (repository / "a.py").write_text("two\n")
    return repository


def _staged(repository: Path) -> Path:
    (repository / "a.py").write_text("two\n")
    git(repository, "add", "-A")
    return repository


def _untracked(repository: Path) -> Path:
    (repository / "pkg" / "note é.txt").write_text("x")
    return repository


def _below(repository: Path) -> Path:
    return repository / "pkg"


def _bare(repository: Path) -> Path:
    git(repository, "clone", "-q", "--bare", ".", "../bare")
    return repository.parent / "bare"


def _no_repository(repository: Path) -> Path:
    (repository.parent / "plain").mkdir()
    return repository.parent / "plain"


def _unborn(repository: Path) -> Path:
    git(repository.parent, "init", "-q", "unborn")
    return repository.parent / "unborn"


def _merging(repository: Path) -> Path:
    git(repository, "checkout", "-qb", "other")
    git(repository, "commit", "-q", "--allow-empty", "-m", "other")
    git(repository, "checkout", "-q", "main")
    git(repository, "commit", "-q", "--allow-empty", "-m", "main")
    git(repository, "merge", "-q", "--no-commit", "--no-ff", "other")
    return repository


def _unmerged(repository: Path) -> Path:
    blob = git(repository, "rev-parse", "HEAD:a.py")
    lines = "".join(f"100644 {blob} {stage}\\ta.py\\n" for stage in (1, 2, 3))
    feed = script(repository.parent / "feed", f"printf '0 {'0' * 40}\\ta.py\\n{lines}'")
    import subprocess

    said = subprocess.run([str(feed)], capture_output=True, check=True).stdout
    subprocess.run(["git", "-C", str(repository), "update-index", "--index-info"], input=said, check=True)
    return repository


def _rebasing(repository: Path) -> Path:
    (repository / ".git" / "rebase-merge").mkdir()
    return repository


def _elsewhere(repository: Path) -> Path:
    git(repository, "config", "core.worktree", str(repository.parent))
    return repository


def _corrupt_index(repository: Path) -> Path:
    (repository / ".git" / "index").write_bytes(b"garbage, long enough to be looked at by git itself")
    return repository


def _missing(repository: Path) -> Path:
    return repository.parent / "gone"


@pytest.mark.requirement("TREE-08")
@pytest.mark.case("GIT-14")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_changed, "not clean: a.py"),
        (_staged, "not clean: a.py"),
        (_untracked, "not clean: pkg/note é.txt"),
        (_below, "inside the repository"),
        (_bare, "bare repository"),
        (_no_repository, "not a git repository"),
        (_unborn, "no commit yet"),
        (_merging, "a merge is under way"),
        (_rebasing, "a rebase is under way"),
        (_unmerged, "not clean: a.py"),
        (_elsewhere, "core.worktree"),
        (_corrupt_index, "index file"),
        (_missing, "not a folder"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_a_checkout_that_is_not_fit_is_a_fault_with_its_reason(
    repository: Path, make: Callable[[Path], Path], said: str
) -> None:
    path = make(repository)
    with pytest.raises(WorkspaceFault) as caught:
        start(path)
    assert said in caught.value.message
    assert caught.value.next_step


@pytest.mark.requirement("TREE-08")
def test_ignored_files_and_our_own_folder_do_not_make_a_checkout_dirty(repository: Path) -> None:
    (repository / "ignored").write_text("x")
    (repository / ".omx" / "specs").mkdir(parents=True)
    (repository / ".omx" / "specs" / "mission.md").write_text("x")
    start(repository)


@pytest.mark.requirement("TREE-08")
@pytest.mark.case("GIT-14")
def test_a_repository_that_git_distrusts_is_refused_in_gits_words(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(WorkspaceFault, match="dubious ownership"):
        start(repository)


@pytest.mark.requirement("TREE-08")
@pytest.mark.case("GIT-14")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 1", "status 1 and no message"),
        ("exit 0", "is not git"),
        ("echo git version 2.20.1", "version 2.20"),
        ('case "$*" in *version*) echo git version 2.40.1;; *) exit 1;; esac', "status 1 and no message"),
        ('case "$*" in *status*) exit 1;; *) exec /usr/bin/git "$@";; esac', "`git status` failed"),
    ],
)
def test_a_git_that_fails_is_never_a_clean_checkout(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    script(tmp_path / "bin" / "git", text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(WorkspaceFault, match=said):
        start(repository)


@pytest.mark.requirement("TREE-08")
@pytest.mark.case("GIT-12")
def test_git_variables_of_the_surroundings_redirect_nothing(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "decoy"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "decoy-index"))
    start(repository)
    assert user_stamp(str(repository)).head_ref == "refs/heads/main"
    assert not (tmp_path / "decoy-index").exists()


@pytest.mark.requirement("TREE-08")
def test_a_program_named_git_in_the_checkout_is_never_run(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(repository / ".venv" / "bin" / "git", "touch ran")
    monkeypatch.setenv("PATH", f"{repository}/.venv/bin:.venv/bin::/usr/bin:/bin")
    git_here = user_git(str(repository))
    assert git_here.program.startswith("/usr")
    assert git_here.environ["PATH"] == f"{repository}/.venv/bin:/usr/bin:/bin"


@pytest.mark.requirement("TREE-09")
def test_each_part_that_moved_is_named(repository: Path) -> None:
    before = user_stamp(str(repository))
    os.utime(repository / "a.py")
    assert moved(before, user_stamp(str(repository))) == ()
    (repository / "new").write_text("x")
    assert moved(before, user_stamp(str(repository))) == ("the work tree was changed: new",)
    git(repository, "add", "new")
    assert "the index was changed" in moved(before, user_stamp(str(repository)))
    git(repository, "commit", "-qm", "second")
    assert moved(before, user_stamp(str(repository)))[0].startswith("HEAD was refs/heads/main at")
    git(repository, "reset", "-q", "--hard", "HEAD~")
    assert moved(before, user_stamp(str(repository))) == ()
    git(repository, "checkout", "-qb", "other")
    assert "refs/heads/other" in moved(before, user_stamp(str(repository)))[0]


def test_paths_are_shown_without_control_characters() -> None:
    assert shown_path("a é.py") == "a é.py"
    assert shown_path("a\nb\x1b[1m") == "a\\nb\\x1b[1m"
    assert shown_path(os.fsdecode(b"\xff")) == "\\xff"
