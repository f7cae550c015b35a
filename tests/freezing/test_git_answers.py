"""A check that asks git: what changes git's answers is tampering, and honest work with git is not."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing import discovery, pins
from omx_autoresearch.freezing.git_answers import asked_of_git

if TYPE_CHECKING:
    from pathlib import Path

    from omx_autoresearch.freezing.manifest import PinManifest

CHECK = "#!/bin/sh\ngit diff --quiet start -- api.h && git merge-base --is-ancestor origin/main HEAD\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "check.sh").write_text(CHECK)
    (root / "api.h").write_text("int f(void);\n")
    (root / "work.c").write_text("\n")
    git(root, "init -q -b main")
    git(root, "add -A")
    git(root, "commit -q -m x")
    git(root, "tag start")
    git(root, "update-ref refs/remotes/origin/main HEAD")
    return root


def git(root: Path, line: str) -> None:
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *line.split()]
    subprocess.run(words, cwd=root, check=True, capture_output=True)


def frozen(root: Path) -> PinManifest:
    return discovery.find(str(root), commands=["sh check.sh"], is_told_by_git=True)


CHEATS = {
    "assume-unchanged": (["update-index --assume-unchanged api.h"], "git: flags of the index"),
    "skip-worktree": (["update-index --skip-worktree api.h"], "git: flags of the index"),
    "a moved tag": (["commit -q --allow-empty -m y", "tag -f start"], "git: ref start"),
    "a deleted tag": (["tag -d start"], "git: ref start"),
    "a moved branch of the remote": (
        ["commit -q --allow-empty -m y", "update-ref refs/remotes/origin/main HEAD"],
        "git: ref origin/main",
    ),
    "a filter": (["config filter.x.clean true"], "git: filters and attributes"),
    "a driver of differences": (["config diff.external true"], "git: filters and attributes"),
    "modes that do not count": (["config core.fileMode false"], "git: filters and attributes"),
    "a replaced commit": (["commit -q --allow-empty -m y", "replace HEAD~1 HEAD"], "git: replaced objects"),
}


@pytest.mark.requirement("DONE-57")
@pytest.mark.parametrize("cheat", CHEATS)
def test_what_changes_the_answers_of_git_is_named(project: Path, cheat: str) -> None:
    lines, named = CHEATS[cheat]
    manifest = frozen(project)
    for line in lines:
        git(project, line)
    assert named in pins.compare(manifest, str(project)).changed


@pytest.mark.requirement("DONE-57")
def test_attributes_of_the_repository_and_of_the_workspace_are_kept(project: Path) -> None:
    manifest = frozen(project)
    (project / ".git/info").mkdir(exist_ok=True)
    (project / ".git/info/attributes").write_text("api.h -diff\n")
    (project / ".gitattributes").write_text("api.h -diff\n")
    check = pins.compare(manifest, str(project))
    assert (check.changed, check.added) == (("git: filters and attributes",), (".gitattributes",))


@pytest.mark.requirement("DONE-15")
def test_honest_work_with_git_is_no_tampering(project: Path) -> None:
    manifest = frozen(project)
    (project / "work.c").write_text("int f(void) { return 42; }\n")
    for line in (
        "add -A",
        "commit -q -m work",
        "tag v1",
        "switch -q -c topic",
        "config user.name me",
        "remote add origin elsewhere",
        "config branch.topic.remote origin",
        "stash",
        "gc -q",
    ):
        git(project, line)
    assert pins.compare(manifest, str(project)).is_intact


def test_a_check_that_does_not_ask_git_keeps_nothing_of_it(project: Path) -> None:
    (project / "check.sh").write_text("#!/bin/sh\ngit add x\ngrep -q start api.h\n")
    assert frozen(project).facts == ()


def test_the_owner_is_told_what_is_kept(project: Path) -> None:
    (note,) = [note for note in frozen(project).notes if "asks git" in note]
    assert "ref origin/main, ref start" in note


@pytest.mark.requirement("DONE-26")
def test_a_copy_without_a_repository_is_compared_without_git(project: Path, tmp_path: Path) -> None:
    manifest = frozen(project)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "check.sh").write_text(CHECK)
    assert pins.compare(manifest, str(copy)).is_intact


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("git -C sub -c a=b diff --quiet", ("diff",)),
        ('subprocess.run(["git", "ls-files", "-z"])', ("ls-files",)),
        ("git add x && git commit -m diff", ()),
        ("digit diff", ()),
        ("git --no-pager show HEAD:a", ("show",)),
    ],
)
def test_what_is_asked_of_git(text: str, found: tuple[str, ...]) -> None:
    assert asked_of_git([text]) == found
