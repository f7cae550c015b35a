"""The user's checkout as an experiment finds it: what must hold before one starts, and what it looked like then.

Nothing here changes the checkout. Git is asked where it stands, so that its owner's ``safe.directory``, ignore rules
and filters count; a git that refuses is a fault in git's own words, never a clean tree.
"""

from __future__ import annotations

import os
import shlex
from hashlib import sha256

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import escaped
from omx_autoresearch.system.git import Git, common_dir, find_root, git_dir, user_git

GITLINK = "160000"
"""The mode of a submodule in a tree."""
SHOWN_NAMES = 10
"""A message names at most so many paths."""

_UNDER_WAY = {
    "MERGE_HEAD": ("a merge", "git merge --continue (or --abort)"),
    "rebase-merge": ("a rebase", "git rebase --continue (or --abort)"),
    "rebase-apply": ("a rebase or am", "git rebase --continue (or --abort)"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick --continue (or --abort)"),
    "REVERT_HEAD": ("a revert", "git revert --continue (or --abort)"),
}
_STATUS_FIELDS = {b"1": 8, b"2": 9, b"u": 10}  # fields before the path, git-status(1), porcelain v2


@dataclass(frozen=True, slots=True)
class UserRepository:
    """The parts of a user's repository.

    Attributes:
        root_path: the top folder of the checkout.
        git_dir: the git directory of this checkout.
        common_dir: the one that all its work trees share; objects and references stand there.
        object_format: ``sha1`` or ``sha256``.
        git: how git is called there.
    """

    root_path: str
    git_dir: str
    common_dir: str
    object_format: str
    git: Git


@dataclass(frozen=True, slots=True)
class UserStamp:
    """A fingerprint of a checkout; `moved` compares two.

    Attributes:
        head_ref: the branch, as a full reference name; empty where HEAD is detached.
        head_commit: the commit that is checked out.
        index_digest: of names, modes, ids and flags in the index, not of its times.
        dirty: changed tracked files, and untracked ones that are not ignored; ``.omx`` does not count.
    """

    head_ref: str
    head_commit: str
    index_digest: str
    dirty: tuple[str, ...]


def open_repository(repository_path: str) -> UserRepository:
    """The user's repository, given the root of a checkout.

    Raises:
        WorkspaceFault: no repository, a bare one, a folder inside one, or git refuses it (dubious ownership).
    """
    path = os.path.realpath(repository_path)
    if not os.path.isdir(path):
        raise WorkspaceFault(
            f"{repository_path} is not a folder", next_step=f"ls -ld {shlex.quote(repository_path)}"
        )
    root = find_root(path)
    if root is not None and os.path.realpath(root) != path:
        raise WorkspaceFault(
            f"{path} is a folder inside the repository {root}; an experiment needs the root",
            next_step=f"cd {shlex.quote(root)}",
        )
    git = user_git(path)
    said = git.output("rev-parse", "--is-bare-repository", "--show-object-format").decode().split()
    if said[0] == "true":
        raise WorkspaceFault(
            f"{path} is a bare repository; an experiment needs a checkout",
            next_step=f"git -C {shlex.quote(path)} worktree add ../checkout",
        )
    inside = git.word("rev-parse", "--is-inside-work-tree")
    own, shared = git_dir(path), common_dir(path)
    if inside != "true" or own is None or shared is None or git.output("rev-parse", "--show-prefix").strip():
        raise WorkspaceFault(
            f"{path} is not the root of its own work tree (core.worktree names another one)",
            next_step=f"git -C {shlex.quote(path)} config core.worktree",
        )
    return UserRepository(path, own, shared, said[1], git)


def require_clean(repository: UserRepository) -> UserStamp:
    """The stamp of a checkout from which an experiment may start.

    Raises:
        WorkspaceFault: it has no commit, something is under way or unmerged, files are changed or untracked (they are
            named); git refuses.
    """
    git = repository.git
    if git.run("rev-parse", "--quiet", "--verify", "HEAD^{commit}").exit_status != 0:
        git.output("rev-parse", "--git-dir")
        raise WorkspaceFault(
            f"{repository.root_path} has no commit yet: there is nothing to measure against",
            next_step=f"cd {shlex.quote(repository.root_path)} && git add -A && git commit",
        )
    going_on = under_way(repository)
    if going_on:
        raise WorkspaceFault(f"{repository.root_path}: {going_on[0]}", next_step="finish or abort it first")
    stamp = user_stamp(repository)
    if stamp.dirty:
        raise WorkspaceFault(
            f"{repository.root_path} is not clean: {named(stamp.dirty)}",
            next_step="commit, stash or ignore these files, then start again",
        )
    return stamp


def under_way(repository: UserRepository) -> tuple[str, ...]:
    """Operations under way in the checkout (a merge, a rebase), each as a sentence with its cure."""
    return tuple(
        f"{what} is under way: `{cure}`"
        for name, (what, cure) in _UNDER_WAY.items()
        if os.path.lexists(os.path.join(repository.git_dir, name))
    )


def user_stamp(repository: UserRepository | str) -> UserStamp:
    """The stamp of the checkout as it is now.

    Raises:
        WorkspaceFault: git refuses to read it, in git's own words.
    """
    if isinstance(repository, str):
        repository = open_repository(repository)
    git = repository.git
    head = git.run("symbolic-ref", "--quiet", "HEAD")
    entries = git.output("ls-files", "--stage", "-v", "-z")
    return UserStamp(
        head_ref=os.fsdecode(head.stdout).strip(),
        head_commit=git.word("rev-parse", "--verify", "HEAD^{commit}"),
        index_digest=sha256(entries).hexdigest(),
        dirty=_dirty(git),
    )


def ignored_folders(path: str) -> tuple[str, ...]:
    """Folders at the top of a checkout that git ignores, such as an environment; caches of Python are left out.

    Raises:
        WorkspaceFault: git cannot read the checkout.
    """
    said = user_git(path).output(
        "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"
    )
    names = [os.fsdecode(name) for name in said.split(b"\0") if name.endswith(b"/")]
    return tuple(name[:-1] for name in names if "/" not in name[:-1] and not name.endswith("cache__/"))


def moved(before: UserStamp, now: UserStamp) -> tuple[str, ...]:
    """The differences between two stamps, one sentence each."""
    found = []
    if (before.head_ref, before.head_commit) != (now.head_ref, now.head_commit):
        was = f"{before.head_ref or 'detached'} at {before.head_commit[:12]}"
        found.append(f"HEAD was {was} and is {now.head_ref or 'detached'} at {now.head_commit[:12]}")
    if before.index_digest != now.index_digest:
        found.append("the index was changed")
    if before.dirty != now.dirty:
        changed = tuple(sorted(set(before.dirty) ^ set(now.dirty)))
        found.append(f"the work tree was changed: {named(changed)}")
    return tuple(found)


def named(paths: tuple[str, ...]) -> str:
    """The first paths of several, for a message."""
    rest = len(paths) - SHOWN_NAMES
    shown = ", ".join(shown_path(path) for path in paths[:SHOWN_NAMES])
    return f"{shown} and {rest} more" if rest > 0 else shown


def shown_path(path: str) -> str:
    r"""A path for people and for JSON: control characters and bytes that are no UTF-8 as ``\xNN``."""
    return path if path.isprintable() else escaped(os.fsencode(path).decode("utf-8", "backslashreplace"))


def _dirty(git: Git) -> tuple[str, ...]:
    """Changed, unmerged and untracked paths, by git's own look."""
    status = (
        "status",
        "--porcelain=v2",
        "-z",
        "--untracked-files=all",
        "--ignore-submodules=none",
        "--no-renames",
    )
    said = git.output(*status, "--", ".", ":(exclude).omx")
    paths = []
    for entry in said.split(b"\0"):
        kind = entry[:1]
        if kind == b"?":
            paths.append(entry[2:])
        elif kind in _STATUS_FIELDS:
            paths.append(entry.split(b" ", _STATUS_FIELDS[kind])[-1])
    return tuple(sorted(os.fsdecode(path) for path in paths))


# --- submodules

# The submodules of a checkout: their commits, and the folders of their objects, without any network.
#
# Work trees of an experiment get the files of each submodule from the user's checkout. A submodule that the checkout
# lacks is a fault with its name, unless its owner declared that it stays empty (``submodule.NAME.update none``).


_NESTING_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Submodule:
    """One submodule at the base commit.

    Attributes:
        path: relative to the root of the checkout, also for one inside another.
        commit: the one that the repository around it names.
        objects_path: where its objects are; empty where it stays empty.
    """

    path: str
    commit: str
    objects_path: str


def find_submodules(repository: UserRepository, commit: str) -> tuple[Submodule, ...]:
    """All submodules of a commit, those inside others after them.

    Raises:
        WorkspaceFault: one is not there, or lacks the commit; it is named.
    """
    return tuple(_below(repository, repository.git, commit, "", 0))


def _below(repository: UserRepository, git: Git, commit: str, prefix: str, depth: int) -> list[Submodule]:
    if depth > _NESTING_LIMIT:
        raise WorkspaceFault(f"submodules are nested more than {_NESTING_LIMIT} deep at {prefix}")
    found = []
    for name, linked in _gitlinks(git, commit):
        path = os.path.join(prefix, name)
        git_dir = _git_dir(repository, path)
        if not git_dir:
            if not _stays_empty(git, commit, name):
                raise _missing(repository, path, "is missing")
            found.append(Submodule(path, linked, ""))
            continue
        inner = repository.git.at(repository.root_path, GIT_DIR=git_dir)
        if inner.run("cat-file", "-e", f"{linked}^{{tree}}").exit_status != 0:
            raise _missing(repository, path, f"lacks the commit {linked[:12]}")
        found.append(Submodule(path, linked, os.path.join(git_dir, "objects")))
        found += _below(repository, inner, linked, path, depth + 1)
    return found


def _gitlinks(git: Git, commit: str) -> list[tuple[str, str]]:
    """Paths and commits of the submodules that a commit names."""
    found = []
    for entry in git.output("ls-tree", "-r", "-z", commit).split(b"\0"):
        if entry.startswith(GITLINK.encode("ascii")):
            facts, _, name = entry.partition(b"\t")
            found.append((os.fsdecode(name), facts.split()[2].decode("ascii")))
    return found


def _git_dir(repository: UserRepository, path: str) -> str:
    """The git directory of a submodule that is checked out; empty where it is not."""
    checkout = os.path.join(repository.root_path, path)
    if find_root(checkout) != checkout:
        return ""
    return common_dir(checkout) or ""


def _stays_empty(git: Git, commit: str, path: str) -> bool:
    """The owner said, in the configuration or in .gitmodules, that this one is not to be filled."""
    names = git.run(
        "config", "--blob", f"{commit}:.gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$"
    )
    for entry in names.stdout.split(b"\0"):
        key, _, value = os.fsdecode(entry).partition("\n")
        if value == path:
            name = key.removeprefix("submodule.").removesuffix(".path")
            said = git.run("config", f"submodule.{name}.update").stdout.strip()
            said = (
                said
                or git.run("config", "--blob", f"{commit}:.gitmodules", f"submodule.{name}.update").stdout
            )
            active = git.run("config", "--type=bool", f"submodule.{name}.active").stdout.strip()
            return said.strip() == b"none" or active == b"false"
    return False


def _missing(repository: UserRepository, path: str, what: str) -> WorkspaceFault:
    return WorkspaceFault(
        f"the submodule {path} of {repository.root_path} {what}, and an experiment downloads nothing",
        next_step=f"git -C {shlex.quote(repository.root_path)} submodule update --init --recursive -- "
        f"{shlex.quote(path)}"
        f" (or `git config submodule.{path}.update none` to leave it empty)",
    )
