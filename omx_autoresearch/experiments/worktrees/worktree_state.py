"""What the two work trees of an experiment were made from, on disk beside our repository.

Only this module writes the files: one for the experiment, and a small one for each tree that says at which commit it
stands. A tree without one is in the middle of something, and is restored before it is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.worktrees.checkout import Submodule, UserRepository, UserStamp
from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.contents import entries_below
from omx_autoresearch.system.removal import remove

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


_NAME = "workspaces.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """The facts that never change while an experiment lasts.

    Attributes:
        experiment_id: whose trees these are.
        repository_path: the root of the user's checkout.
        folder_path: where the work trees are.
        stamp: how the checkout looked when the experiment began.
        submodules: at the base commit.
        keep: ignored paths made by the setup command.
        link: ignored paths copied from the checkout.
        caches: ignored paths that nobody checks.
        link_seals: what stood at each path of ``link`` in the checkout.
        file_limit_bytes: the largest file of a checkpoint.
    """

    experiment_id: str
    repository_path: str
    folder_path: str
    stamp: UserStamp
    submodules: tuple[Submodule, ...]
    keep: tuple[str, ...]
    link: tuple[str, ...]
    caches: tuple[str, ...]
    link_seals: tuple[str, ...]
    file_limit_bytes: int


@dataclass(frozen=True, slots=True)
class ArmState:
    """Where one work tree stands.

    Attributes:
        commit: the one that it was set to; empty in the middle of that.
        seals: from kept and linked paths to what stood there.
    """

    commit: str
    seals: dict[str, str]


def save_state(store_path: str, state: WorkspaceState) -> None:
    """Write the facts of an experiment, durably.

    Raises:
        StorageFailed: the system refused.
    """
    facts = {name: getattr(state, name) for name in WorkspaceState.__slots__}
    facts["stamp"] = {name: getattr(state.stamp, name) for name in UserStamp.__slots__}
    facts["submodules"] = [[sub.path, sub.commit, sub.objects_path] for sub in state.submodules]
    _replace(os.path.join(store_path, _NAME), facts | {"version": _VERSION}, is_durable=True)


def load_state(store_path: str) -> WorkspaceState:
    """Read the facts of an experiment.

    Raises:
        StateUntrusted: they are missing, unreadable or of a later version.
    """
    path = os.path.join(store_path, _NAME)
    facts = _load(path)
    if facts is None or facts.pop("version", None) != _VERSION:
        raise StateUntrusted(f"{path} is missing or cannot be read", next_step=f"ls -la {store_path}")
    try:
        stamp = facts["stamp"]
        facts["stamp"] = UserStamp(**{**stamp, "dirty": tuple(stamp["dirty"])})
        facts["submodules"] = tuple(Submodule(*words) for words in facts["submodules"])
        for name in ("keep", "link", "caches", "link_seals"):
            facts[name] = tuple(facts[name])
        return WorkspaceState(**facts)
    except (KeyError, TypeError) as fault:
        raise StateUntrusted(f"{path} lacks {fault}", next_step=f"ls -la {store_path}") from fault


def has_state(store_path: str) -> bool:
    """An experiment was made here to its end."""
    return os.path.exists(os.path.join(store_path, _NAME))


def save_arm(path: str, arm: ArmState) -> None:
    """Write where one work tree stands.

    Raises:
        StorageFailed: the system refused.
    """
    _replace(path, {"commit": arm.commit, "seals": arm.seals}, is_durable=False)


def load_arm(path: str) -> ArmState:
    """Read where one work tree stands; nowhere, where nothing can be read."""
    facts = _load(path) or {}
    commit, seals = facts.get("commit"), facts.get("seals")
    if not isinstance(commit, str) or not isinstance(seals, dict):
        return ArmState("", {})
    return ArmState(commit, seals)


def _load(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as stream:
            facts = json.loads(stream.read())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _replace(path: str, facts: dict[str, Any], *, is_durable: bool) -> None:
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as stream:
            json.dump(facts, stream)
            stream.flush()
            if is_durable:
                os.fsync(stream.fileno())
        os.replace(f"{path}.new", path)
    except OSError as fault:
        raise StorageFailed(
            f"{path} cannot be written: {fault.strerror}", next_step=f"df -h {os.path.dirname(path)}"
        ) from fault


# --- kept paths

# Ignored paths that a measurement needs and that no checkpoint has: dependencies, environments, build caches.
#
# Three kinds, each with its answer to "can it carry something from one trial into the next?"
#
# - *kept*: made by a setup command in each work tree. It stays while it is exactly what was there when the
# tree was sealed; a changed one is removed and named, so that the setup command runs again. - *linked*:
# copied once from the user's checkout (sharing blocks where the file system can), so that no agent writes
# into the user's. A changed copy is made anew. - *cache*: stays whatever is in it. It can carry over, and its
# owner said so by naming it.
#
# What a path is told by names, sizes, inodes and times of everything below it; no process can set a ctime.


UNREADABLE = "unreadable"
"""The seal of what cannot be read; no other equals it."""

_FICLONE = 0x40049409  # linux/fs.h


def require_ignored(repository: UserRepository, paths: Iterable[str]) -> None:
    """Every path is relative, inside the checkout, ignored by git and holds no tracked file.

    Raises:
        WorkspaceFault: one is not; it is named.
    """
    for path in paths:
        normal = os.path.normpath(path)
        if os.path.isabs(path) or normal.startswith("..") or normal in {".", ".git"} or "\0" in path:
            raise WorkspaceFault(
                f"{path!r} is no path inside the checkout", next_step="name it relative to the root"
            )
        git = repository.git.at(repository.root_path, GIT_LITERAL_PATHSPECS="1")
        if git.output("ls-files", "-z", "--", normal):
            raise WorkspaceFault(
                f"{path} holds tracked files, which checkpoints restore; only ignored paths can be kept",
                next_step=f"git -C {shlex.quote(repository.root_path)} ls-files -- {shlex.quote(path)}",
            )
        ignored = repository.git.run("check-ignore", "--quiet", "--", normal).exit_status == 0
        if not ignored and repository.git.run("check-ignore", "--quiet", "--", f"{normal}/").exit_status != 0:
            exclude = os.path.join(repository.common_dir, "info", "exclude")
            raise WorkspaceFault(
                f"{path} is not ignored by git, so it would count as a change of every candidate",
                next_step=f"echo {shlex.quote('/' + normal)} >> {shlex.quote(exclude)}",
            )


def seal_of(path: str) -> str:
    """What stands at a path, as one digest; empty where there is nothing, `UNREADABLE` where it cannot be told."""
    hashed = hashlib.sha256()
    root = os.fsencode(path)
    try:
        top = os.lstat(root)
    except OSError:
        return ""
    hashed.update(_facts(b"", top))
    if not stat.S_ISDIR(top.st_mode):
        return hashed.hexdigest()
    unreadable: list[bytes] = []
    try:
        for _, entry in entries_below(root, on_fault=lambda name, _: unreadable.append(name)):
            hashed.update(_facts(entry.path, entry.stat(follow_symlinks=False)))
    except OSError:
        return UNREADABLE
    return UNREADABLE if unreadable else hashed.hexdigest()


def require_seal(path: str) -> str:
    """As `seal_of`, of something that must be there and readable.

    Raises:
        WorkspaceFault: it is not there or cannot be read.
    """
    seal = seal_of(path)
    if seal in {"", UNREADABLE}:
        what = "cannot be read" if seal else "is not there"
        raise WorkspaceFault(f"{path} {what}", next_step=f"ls -la {os.path.dirname(path)}")
    return seal


def copy_linked(source: str, target: str) -> None:
    """Copy a path of the user's checkout into a work tree, links as links, with modes and times.

    Raises:
        WorkspaceFault: it is not there, or cannot be copied.
    """
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(source) and not os.path.islink(source):
            shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)
        else:
            _copy_file(source, target)
    except (OSError, shutil.Error) as fault:
        remove(target)
        raise WorkspaceFault(f"{source} cannot be copied: {fault}", next_step=f"ls -la {source}") from fault


def _facts(path: bytes, status: os.stat_result) -> bytes:
    if stat.S_ISDIR(status.st_mode):  # its times change when something below was made and taken away again
        return b"%b\0%o\n" % (path, status.st_mode)
    return b"%b\0%o %d %d %d %d\n" % (
        path,
        status.st_mode,
        status.st_size,
        status.st_ino,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _copy_file(source: str, target: str, *, follow_symlinks: bool = False) -> str:
    """Copy one file, sharing its blocks where the file system can; special files are left out."""
    mode = os.lstat(source).st_mode
    if not stat.S_ISREG(mode):
        if stat.S_ISLNK(mode):
            shutil.copy2(source, target, follow_symlinks=follow_symlinks)
        return target
    with open(source, "rb") as original, open(target, "wb") as copy:
        if not _clone(original.fileno(), copy.fileno()):
            shutil.copyfileobj(original, copy, 1 << 20)
    shutil.copystat(source, target)
    return target


def _clone(source: int, target: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True
