"""One arm of an experiment: a worktree with its submodules, its kept paths and its ``.git``, restored as one.

What both worktrees were made from stands on disk beside our repository: one file for the experiment, and a small one
for each worktree that says at which commit it stands. A worktree without one is in the middle of something, and is
restored before it is used.
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
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from omx_autoresearch.experiments.worktrees.checkout import Submodule, UserRepository, UserStamp, named
from omx_autoresearch.experiments.worktrees.object_store import ObjectStore, make_git_folder
from omx_autoresearch.experiments.worktrees.worktree import Snapshot, TreeFault, WorkTree, take_snapshot
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal, StorageFailed, WorkspaceFault
from omx_autoresearch.system.files import remove, walk

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
        link_seals: what stood at each path of ``link`` in the checkout.
    """

    experiment_id: str
    repository_path: str
    folder_path: str
    stamp: UserStamp
    submodules: tuple[Submodule, ...]
    keep: tuple[str, ...]
    link: tuple[str, ...]
    link_seals: tuple[str, ...]


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
    facts = asdict(state)
    facts["submodules"] = [astuple(sub) for sub in state.submodules]
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
        for name in ("keep", "link", "link_seals"):
            facts[name] = tuple(facts[name])
        return WorkspaceState(**{fact.name: facts[fact.name] for fact in fields(WorkspaceState)})
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

# Ignored paths that a measurement needs and that no checkpoint has: dependencies and environments.
#
# Two kinds, each with its answer to "can it carry something from one trial into the next?"
#
# - *kept*: made by a setup command in each work tree. It stays while it is exactly what was there when the
#   tree was sealed; a changed one is removed and named, so that the setup command runs again.
# - *linked*: copied once from the user's checkout (sharing blocks where the file system can), so that no agent
#   writes into the user's. A changed copy is made anew.
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
                f"{path!r} is not a path inside the checkout", next_step="give it relative to the root"
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
                f"{path} is not ignored by git, so every candidate would seem to change it",
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
        for _, entry in walk(root, on_fault=lambda name, _: unreadable.append(name)):
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


@dataclass(frozen=True, slots=True)
class Restored:
    """What making a work tree equal to a commit took.

    Attributes:
        touched: paths that were removed or written again.
        dropped: kept paths that had changed and were removed: the setup command must run again, then `seal`.
        copied: linked paths that had changed and were copied anew.
        was_lost: the folder was gone and was made anew.
    """

    touched: tuple[str, ...]
    dropped: tuple[str, ...]
    copied: tuple[str, ...]
    was_lost: bool


class Arm:
    """A work tree and all that belongs to it.

    Args:
        name: ``incumbent`` or ``candidate``.
        store: our repository.
        state: what the experiment was made from.
    """

    def __init__(self, name: str, store: ObjectStore, state: WorkspaceState) -> None:
        self.root_path = os.path.join(state.folder_path, name)
        self._store = store
        self._state = state
        self._state_path = os.path.join(store.path, f"{name}.json")
        kept = (*state.keep, *state.link)
        prefix = os.path.join(store.path, f"index-{name}")
        self._tree = WorkTree(store, self.root_path, prefix, self._opaque("", kept))
        self._submodules: dict[str, WorkTree] = {
            sub.path: WorkTree(
                store,
                os.path.join(self.root_path, sub.path),
                f"{prefix}-{number}",
                self._opaque(f"{sub.path}/", kept) - {b".git"},
            )
            for number, sub in enumerate(state.submodules)
            if sub.objects_path
        }

    @property
    def commit(self) -> str:
        """The commit that the tree was set to; empty in the middle of that."""
        return load_arm(self._state_path).commit

    def is_lost(self) -> bool:
        """The folder is gone, or something else stands in its place."""
        return self._tree.is_lost()

    def set_to(self, commit: str) -> Restored:
        """Make the tree equal to a commit, whatever was done to it; kept paths stay as `Workspaces.create` says.

        Raises:
            WorkspaceFault: it cannot be done: no such commit, a full disk, a failing filter, files of another user.
        """
        was_lost = self.is_lost()
        seals = self._begin_anew()
        touched = self._tree.set_to(commit)
        for sub in self._state.submodules:
            touched += self._set_submodule(sub.path, sub.commit)
        dropped, copied = self._restore_kept(seals)
        self._end(commit, seals)
        return Restored(touched, dropped, copied, was_lost)

    def snapshot(self) -> Snapshot | TreeFault:
        """The content of the tree beside the commit that it was set to, or why no checkpoint can be made of it.

        Commits that an agent made in the tree are nothing special: what counts are the files.

        Raises:
            StepIllegal: it stands at no commit; `set_to` first.
            WorkspaceFault: git or the file system fails.
        """
        base = self.commit
        if not base:
            raise StepIllegal(f"{self.root_path} was not restored completely", next_step="restore it first")
        if self.is_lost():
            return TreeFault("workspace_lost", (self.root_path,), f"the work tree {self.root_path} is gone")
        return self._changed_submodules() or take_snapshot(self._tree, base)

    def drift(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tracked paths that differ from the commit or were only touched, and what was added: the topmost of each.

        Raises:
            StepIllegal: nothing is known about the tree; restore it first.
            WorkspaceFault: the tree is gone; git or the file system fails.
        """
        if not self._tree.recall():
            raise StepIllegal(f"there is no record of {self.root_path}", next_step="restore it first")
        look = self._tree.look()
        return tuple(map(os.fsdecode, look.modified)), tuple(os.fsdecode(extra.path) for extra in look.extras)

    def settle(self, commit: str, changed: tuple[str, ...]) -> Restored:
        """Make the tree, just taken as a snapshot, equal to the commit of it: no ignored file stays.

        Args:
            commit: the commit of the snapshot.
            changed: its changed paths, which are written as the commit has them (line ends, modes).

        Raises:
            WorkspaceFault: it cannot be done.
        """
        seals = self._begin()
        self._tree.settle(os.fsencode(path) for path in changed)
        touched = self._tree.remove_extras()
        for sub in self._state.submodules:
            touched += self._set_submodule(sub.path, sub.commit)
        dropped, copied = self._restore_kept(seals)
        self._end(commit, seals)
        return Restored(touched, dropped, copied, was_lost=False)

    def seal(self) -> None:
        """Take the kept paths, as they are now, for those that may stay.

        Raises:
            WorkspaceFault: one cannot be read.
        """
        arm = load_arm(self._state_path)
        kept = {path: os.path.join(self.root_path, path) for path in self._state.keep}
        seals = arm.seals | {
            path: require_seal(place) for path, place in kept.items() if os.path.lexists(place)
        }
        save_arm(self._state_path, ArmState(arm.commit, seals))

    def shed(self) -> None:
        """Give back the room that a candidate took, before a restoration; nothing is written.

        Raises:
            WorkspaceFault: something cannot be read or removed.
        """
        if not self.is_lost() and self._tree.recall():
            self._tree.shed()

    def remove(self) -> None:
        """Remove the tree.

        Raises:
            WorkspaceFault: something in it cannot be removed.
        """
        remove(self._state_path)
        remove(self.root_path)

    def _opaque(self, prefix: str, kept: tuple[str, ...]) -> frozenset[bytes]:
        """What the tree below a prefix leaves alone: its submodules and kept paths, and ``.git``."""
        paths = [sub.path for sub in self._state.submodules] + [os.path.normpath(path) for path in kept]
        inside = {path.removeprefix(prefix) for path in paths if path.startswith(prefix)}
        return frozenset({b".git", *(os.fsencode(path) for path in inside if path)})

    def _begin(self) -> dict[str, str]:
        """From here to `_end` the tree stands at no commit."""
        arm = load_arm(self._state_path)
        save_arm(self._state_path, ArmState("", arm.seals))
        return arm.seals

    def _begin_anew(self) -> dict[str, str]:
        """As `_begin`, for a tree whose content goes: what fills the disk may be that very content."""
        try:
            return self._begin()
        except StorageFailed:
            self.shed()
            return self._begin()

    def _end(self, commit: str, seals: dict[str, str]) -> None:
        template = os.path.join(self._store.path, "template")
        make_git_folder(self.root_path, template, self._store, commit, self._tree.index_path)
        save_arm(self._state_path, ArmState(commit, seals))

    def _set_submodule(self, path: str, commit: str) -> tuple[str, ...]:
        tree = self._submodules.get(path)
        if tree is not None:
            return tuple(os.path.join(path, name) for name in tree.set_to(commit))
        folder = os.path.join(self.root_path, path)
        if os.path.isdir(folder) and not os.path.islink(folder) and not os.listdir(folder):
            return ()
        remove(folder)
        os.makedirs(folder)
        return (path,)

    def _changed_submodules(self) -> TreeFault | None:
        """Submodules that a candidate worked in: no patch of the repository around them can carry that."""
        changed = []
        for sub in self._state.submodules:
            folder = os.path.join(self.root_path, sub.path)
            if os.path.realpath(folder) != folder or not os.path.isdir(folder):
                changed.append(sub.path)
                continue
            tree = self._submodules.get(sub.path)
            if tree is None:
                if os.listdir(folder):
                    changed.append(sub.path)
            elif os.path.lexists(os.path.join(folder, ".git")):
                changed.append(sub.path)  # git is not asked: what it would run there is the agent's
            else:
                taken = take_snapshot(tree, sub.commit)
                if isinstance(taken, TreeFault) or taken.changed:
                    changed.append(sub.path)
        if not changed:
            return None
        paths = tuple(changed)
        return TreeFault("submodule_changed", paths, f"a submodule was changed: {named(paths)}")

    def _restore_kept(self, seals: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Remove kept paths that changed, copy linked ones that changed; both are returned."""
        dropped, copied = [], []
        for path in self._state.keep:
            place = os.path.join(self.root_path, path)
            seal, found = seals.get(path, ""), seal_of(place)
            if found != seal:
                remove(place)
                seals.pop(path, None)
                dropped.append(path)
        for path, expected in zip(self._state.link, self._state.link_seals, strict=True):
            place = os.path.join(self.root_path, path)
            if seals.get(path) and seal_of(place) == seals[path]:
                continue
            source = os.path.join(self._state.repository_path, path)
            if seal_of(source) != expected:
                raise WorkspaceFault(
                    f"{source} has changed since the experiment began: its copies would differ",
                    next_step="start a new experiment",
                )
            remove(place)
            copy_linked(source, place)
            seals[path] = seal_of(place)
            copied.append(path)
        return tuple(dropped), tuple(copied)
