"""The digest of a work tree is its content, whatever a repository says about itself."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.freezing import tree
from omx_autoresearch.freezing.tree import tree_state
from omx_autoresearch.system import files
from omx_autoresearch.system.git import head_commit
from tests.support.repositories import OLD_NS, git, settle

if TYPE_CHECKING:
    from pathlib import Path


def digest(path: Path) -> str:
    return tree_state(str(path)).digest


# --- The digest ------------------------------------------------------------------------------------------------------


def test_the_state_of_a_repository_at_rest_is_stable(repository: Path) -> None:
    state = tree_state(str(repository))
    assert (state.head, state.is_git, state.file_count) == (git(repository, "rev-parse", "HEAD"), True, 3)
    assert tree_state(str(repository)) == state
    assert tree_state(str(repository / "pkg")) == state


def test_the_index_spares_reading_what_did_not_change(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(repository)
    monkeypatch.setattr(files, "_read_whole", lambda _: pytest.fail("a file was read"))
    assert digest(repository) == before


def test_device_and_owner_in_the_index_do_not_count(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(repository)
    listed = tree._list_files(str(repository))
    mixed = re.sub(rb"  dev: \d+", b"  dev: 9", listed, count=1)
    mixed = re.sub(rb"(?s)(.*  uid: )\d+", rb"\g<1>4711", mixed)  # of the last one
    assert mixed != listed
    monkeypatch.setattr(tree, "_list_files", lambda _: mixed)
    monkeypatch.setattr(files, "_read_whole", lambda _: pytest.fail("a file was read"))
    assert digest(repository) == before


def test_touching_adding_and_committing_change_no_content(repository: Path) -> None:
    (repository / "a.py").write_text("changed\n")
    (repository / "new.py").write_text("new\n")
    changed = digest(repository)
    git(repository, "add", "-A")
    assert digest(repository) == changed
    git(repository, "commit", "-qm", "second")
    assert digest(repository) == changed
    settle(repository)
    assert digest(repository) == changed
    os.utime(repository / "a.py")
    assert digest(repository) == changed
    (repository / ".git" / "index").unlink()
    assert digest(repository) == changed


@pytest.mark.parametrize("edit", ["changed", "new", "deleted", "mode", "link", "renamed", "empty"])
def test_every_kind_of_edit_is_seen_and_undoing_it_too(repository: Path, edit: str) -> None:
    before = digest(repository)
    path = repository / "a.py"
    if edit == "changed":
        path.write_text("two\n")
    elif edit == "new":
        (repository / "new").write_text("")
    elif edit == "deleted":
        path.unlink()
    elif edit == "mode":
        path.chmod(0o755)
    elif edit == "link":
        path.unlink()
        path.symlink_to("one\n")  # a link whose target is the content
    elif edit == "renamed":
        path.rename(repository / "c.py")
    else:
        path.write_text("")
    assert digest(repository) != before
    git(repository, "clean", "-fdq")
    git(repository, "checkout", "-q", "-f", "HEAD", "--", ".")
    assert digest(repository) == before


def test_an_edit_of_the_same_size_with_its_old_mtime_is_seen(repository: Path) -> None:
    before = digest(repository)
    (repository / "a.py").write_text("eno\n")
    os.utime(repository / "a.py", ns=(OLD_NS, OLD_NS))
    git(repository, "config", "core.trustctime", "false")
    git(repository, "config", "core.checkStat", "minimal")
    assert git(repository, "status", "--porcelain") == ""  # this is what makes git blind
    assert digest(repository) != before


def test_a_file_as_young_as_the_index_is_read(repository: Path) -> None:
    before = digest(repository)
    path = repository / "a.py"
    path.write_text("eno\n")
    git(repository, "add", "a.py")  # the index knows times and size of the second content ...
    known = os.lstat(path)
    (repository / ".git" / "index").touch()
    os.utime(repository / ".git" / "index", ns=(known.st_mtime_ns, known.st_mtime_ns))
    read: list[int] = []

    def reading(descriptor: int) -> bytes:
        read.append(descriptor)
        return b""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_read_whole", reading)
        assert digest(repository) != before
    assert read  # ... and is not believed, for it is not older than the index


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_flag_that_hides_an_edit_from_git_hides_nothing(repository: Path, flag: str) -> None:
    before = digest(repository)
    git(repository, "update-index", flag, "a.py")
    (repository / "a.py").write_text("hidden\n")
    assert git(repository, "status", "--porcelain") == ""
    assert digest(repository) != before


@pytest.mark.case("GIT-17")
def test_files_that_a_sparse_checkout_leaves_out_are_not_there(repository: Path) -> None:
    git(repository, "sparse-checkout", "set", "--no-cone", "/a.py", "/.gitignore")
    assert tree_state(str(repository)).file_count == 2


def test_names_with_quotes_newlines_tabs_and_foreign_bytes_are_read(repository: Path) -> None:
    names = [b'q"uote', b"new\nline", b"tab\tname", b"\xff\xfe", b"H 100644 00 0\tname", b"? a", "é".encode()]
    digests = {digest(repository)}
    for name in names:
        with open(os.path.join(os.fsencode(repository), name), "wb") as stream:
            stream.write(b"x")
        digests.add(digest(repository))
    git(repository, "add", "-A")
    assert digest(repository) in digests
    assert tree_state(str(repository)).file_count == 3 + len(names)
    assert len(digests) == 1 + len(names)


def test_our_own_folder_ignored_files_and_caches_do_not_count(repository: Path) -> None:
    before = digest(repository)
    for name in (".omx", "__pycache__", ".pytest_cache", "pkg/__pycache__"):
        (repository / name).mkdir()
        (repository / name / "file").write_text("x")
    (repository / "ignored").write_text("x")
    assert digest(repository) == before
    (repository / ".omx2").write_text("x")
    assert digest(repository) != before


def test_our_own_folder_does_not_count_when_it_is_tracked_or_in_a_lower_workspace(repository: Path) -> None:
    for folder in (".omx", "pkg/.omx"):
        (repository / folder).mkdir()
        (repository / folder / "state").write_text("x")
    git(repository, "add", "-f", ".omx")
    before = tree_state(str(repository / "pkg")).digest
    (repository / ".omx" / "state").write_text("y")
    (repository / "pkg" / ".omx" / "state").write_text("y")
    assert tree_state(str(repository / "pkg")).digest == before
    assert tree_state(str(repository / "pkg"), exclude=()).digest != before


def test_a_repository_without_a_commit_has_a_state(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    empty = tree_state(str(tmp_path))
    assert (empty.head, empty.is_git, empty.file_count) == ("", True, 0)
    (tmp_path / "a").write_text("x")
    assert tree_state(str(tmp_path)).digest != empty.digest


def test_a_link_is_its_target_and_is_not_followed(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("one")
    (repository / "link").symlink_to(tmp_path / "outside")
    before = digest(repository)
    (tmp_path / "outside").write_text("two")
    assert digest(repository) == before


def test_a_fifo_is_never_opened(repository: Path) -> None:
    (repository / "a.py").unlink()
    os.mkfifo(repository / "a.py")
    assert tree_state(str(repository)).file_count == 3


def test_a_folder_in_the_place_of_a_tracked_file_is_its_files(repository: Path) -> None:
    (repository / "a.py").unlink()
    (repository / "a.py").mkdir()
    (repository / "a.py" / "inner").touch()
    assert tree_state(str(repository)).file_count == 3
    (repository / "a.py" / "inner").unlink()
    assert tree_state(str(repository)).file_count == 2


def test_a_repository_with_sha256_ids_is_read_alike(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    (tmp_path / "a").write_text("x")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "first")
    settle(tmp_path)
    before = tree_state(str(tmp_path))
    assert len(before.head) == 64
    os.utime(tmp_path / "a")
    assert tree_state(str(tmp_path)) == before


def test_a_conflict_is_read_as_it_stands_on_disk(repository: Path) -> None:
    git(repository, "checkout", "-qb", "other")
    (repository / "a.py").write_text("theirs\n")
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "main")
    (repository / "a.py").write_text("ours\n")
    git(repository, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    before = tree_state(str(repository))
    assert before.file_count == 3
    (repository / "a.py").write_text("resolved\n")
    resolved = digest(repository)
    assert resolved != before.digest
    git(repository, "add", "a.py")
    assert digest(repository) == resolved


def test_an_edit_in_a_submodule_is_seen(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "library")
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "library"), "lib")
    before = digest(repository)
    (repository / "lib" / "a.py").write_text("edited\n")
    edited = digest(repository)
    assert edited != before
    git(repository / "lib", "commit", "-qam", "edit")
    git(repository, "commit", "-qam", "move the submodule")
    assert digest(repository) == edited


def test_a_submodule_that_was_never_fetched_hides_no_files(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "library")
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "library"), "lib")
    git(repository, "commit", "-qam", "add")
    git(tmp_path, "clone", "-q", str(repository), "fresh")
    before = digest(tmp_path / "fresh")
    (tmp_path / "fresh" / "lib" / "conftest.py").write_text("x")
    assert digest(tmp_path / "fresh") != before


@pytest.mark.case("GIT-23")
def test_a_nested_repository_hides_no_edit(repository: Path) -> None:
    (repository / "nest").mkdir()
    git(repository / "nest", "init", "-q")
    before = digest(repository)
    (repository / "nest" / "f").write_text("x")
    assert digest(repository) != before


# --- Faults and hostile repositories ---------------------------------------------------------------------------------


@pytest.mark.case("GIT-14")
def test_a_corrupt_index_is_a_fault_with_gits_message(repository: Path) -> None:
    (repository / ".git" / "index").write_bytes(b"garbage, long enough to be looked at by git itself")
    with pytest.raises(WorkspaceFault, match="index") as caught:
        tree_state(str(repository))
    assert "git -C" in caught.value.next_step


@pytest.mark.case("GIT-14")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository to somebody else")
def test_a_repository_of_somebody_else_is_a_fault(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    for path in (repository, repository / ".git"):
        os.chown(path, 65534, 65534)
    with pytest.raises(WorkspaceFault, match="dubious ownership"):
        tree_state(str(repository))


@pytest.mark.case("GIT-14")
def test_a_git_that_fails_silently_is_not_read_as_clean(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = tmp_path / "bin" / "git"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:/usr/bin:/bin")
    with pytest.raises(WorkspaceFault, match="status 1"):
        tree_state(str(repository))


@pytest.mark.case("GIT-19")
def test_a_work_tree_whose_repository_is_gone_is_a_fault_and_not_its_parent(repository: Path) -> None:
    git(repository, "worktree", "add", "-q", str(repository / "linked"))
    subprocess.run(["rm", "-rf", str(repository / ".git" / "worktrees")], check=True)
    with pytest.raises(WorkspaceFault, match="not a git repository"):
        tree_state(str(repository / "linked"))


@pytest.mark.case("GIT-14")
def test_a_broken_repository_is_a_fault_and_not_the_one_around_it(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / ".git" / "HEAD").write_text("garbage")
    with pytest.raises(WorkspaceFault, match="not a git repository"):
        tree_state(str(inner))


def test_a_missing_workspace_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceFault, match="not a folder"):
        tree_state(str(tmp_path / "gone"))


@pytest.mark.case("GIT-08")
def test_nothing_that_a_repository_names_is_run(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    plant = f"touch {marker}; cat"
    for name, value in {
        "core.fsmonitor": plant,
        "core.hooksPath": str(repository / "hooks"),
        "core.pager": plant,
        "core.sshCommand": plant,
        "diff.external": plant,
        "filter.evil.clean": plant,
        "filter.evil.process": plant,
        "filter.evil.required": "true",
        "alias.ls-files": f"!{plant}",
    }.items():
        git(repository, "config", name, value)
    (repository / "hooks").mkdir()
    (repository / "hooks" / "post-index-change").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (repository / "hooks" / "post-index-change").chmod(0o755)
    (repository / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (repository / "a.py").write_text("changed\n")
    tree_state(str(repository))
    head_commit(str(repository))
    assert not marker.exists()


@pytest.mark.parametrize(("name", "value"), [("core.worktree", "../../elsewhere"), ("core.bare", "true")])
def test_a_configuration_that_points_elsewhere_is_not_followed(
    repository: Path, name: str, value: str
) -> None:
    (repository.parent / "elsewhere").mkdir()
    before = digest(repository)
    git(repository, "config", name, value)
    assert digest(repository) == before
    (repository / "new.py").write_text("new\n")
    assert digest(repository) != before


def test_objects_that_are_missing_are_not_fetched_by_a_planted_program(
    repository: Path, tmp_path: Path
) -> None:
    for name in ("in", "out"):
        (repository / name).mkdir()
        (repository / name / "file").write_text(name)
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "folders")
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    source = f"file://{repository}"
    git(
        tmp_path,
        "clone",
        "-q",
        "--no-local",
        "--no-checkout",
        "--filter=tree:0",
        "--sparse",
        source,
        "partial",
    )
    partial = tmp_path / "partial"
    git(partial, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
    git(partial, "checkout", "-q", "main")
    forget_objects(partial, git(repository, "rev-parse", "HEAD:out"))
    git(partial, "config", "remote.origin.uploadpack", f"touch {tmp_path}/ran; git-upload-pack")
    tree_state(str(partial))
    assert not (tmp_path / "ran").exists()
    git(partial, "ls-files", "-s")
    assert (tmp_path / "ran").exists()  # what git does by itself


def forget_objects(repository: Path, *names: str) -> None:
    """Take objects out of a repository, as if it had never fetched them."""
    packs = repository / ".git" / "objects" / "pack"
    away = packs.rename(repository / ".git" / "packs")
    for pack in away.glob("*.pack"):
        with pack.open("rb") as stream:
            words = ["git", "-C", str(repository), "unpack-objects", "-q"]
            subprocess.run(words, stdin=stream, check=True, capture_output=True)
    for name in names:
        (repository / ".git" / "objects" / name[:2] / name[2:]).unlink(missing_ok=True)


# --- Without git -----------------------------------------------------------------------------------------------------


def test_a_folder_without_git_is_walked_by_content(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\n")
    for name in (".omx", "node_modules", "__pycache__", ".venv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    before = tree_state(str(tmp_path))
    assert (before.head, before.is_git, before.file_count) == ("", False, 1)
    os.utime(tmp_path / "src" / "a.py", ns=(OLD_NS, OLD_NS))
    assert tree_state(str(tmp_path)) == before
    (tmp_path / "src" / "a.py").write_text("two\n")
    assert digest(tmp_path) != before.digest


def test_links_in_a_circle_and_fifos_do_not_hold_a_walk(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert tree_state(str(tmp_path)).file_count == 2


def test_a_folder_with_too_many_files_is_a_fault_with_a_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILE_LIMIT", 2)
    for name in "abc":
        (tmp_path / name).touch()
    with pytest.raises(WorkspaceFault, match="more than 2 files") as caught:
        tree_state(str(tmp_path))
    assert ".gitignore" in caught.value.next_step


def test_a_very_large_file_counts_by_size_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGE_FILE_BYTES", 10)
    (tmp_path / "model.bin").write_bytes(b"0" * 10)
    before = digest(tmp_path)
    with open(tmp_path / "model.bin", "ab") as stream:
        stream.write(b"1")
    assert digest(tmp_path) != before
