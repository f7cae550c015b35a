"""The submodules of a checkout: which commits they stand at, and where their objects are, without any network.

Work trees of an experiment get the files of each submodule from what the user's checkout has. One that the checkout
does not have is a fault with its name, unless its owner said that it stays empty (``submodule.NAME.update none``).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.system.git import common_dir, find_root
from omx_autoresearch.system.patches import GITLINK

if TYPE_CHECKING:
    from omx_autoresearch.system.git_calls import Git
    from omx_autoresearch.system.user_repository import UserRepository

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
                raise _missing(repository, path, "is not there")
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
        f"the submodule {path} of {repository.root_path} {what}, and an experiment fetches nothing",
        next_step=f"git -C {repository.root_path} submodule update --init --recursive -- {path}"
        f" (or `git config submodule.{path}.update none` to leave it empty)",
    )
