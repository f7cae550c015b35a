"""One arm of an experiment: a worktree with its submodules, its kept paths and its ``.git``, restored as one.

What both worktrees were made from stands on disk beside our repository: one file for the experiment, and a small one
for each worktree that says at which commit it stands. A worktree without one is in the middle of something, and is
restored before it is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable

from omx_autoresearch.experiments.worktrees.checkout import Submodule, UserRepository, UserStamp, named
from omx_autoresearch.experiments.worktrees.object_store import ObjectStore, make_git_folder
from omx_autoresearch.experiments.worktrees.worktree import Snapshot, TreeFault, WorkTree, take_snapshot
from omx_autoresearch.foundation.errors import StateUntrusted, StepIllegal, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import ShapeError, dataclass, field, from_plain, nested, to_plain
from omx_autoresearch.journal.safe_files import load_json, replace_file
from omx_autoresearch.system.files import remove, walk
from omx_autoresearch.system.git import Git

STATE_NAME = "worktrees.json"


@dataclass(frozen=True, slots=True)
class PairState:
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
    stamp: UserStamp = nested(UserStamp)
    submodules: tuple[Submodule, ...] = nested(Submodule, default=())
    keep: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    link_seals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ArmState:
    """The commit and the kept paths of one work tree.

    Attributes:
        commit: the one that it was set to; empty in the middle of that.
        seals: from kept and linked paths to what stood there.
    """

    commit: str = ""
    seals: dict[str, str] = field(default_factory=dict)


def save_state(store_path: str, state: PairState) -> None:
    """Write the facts of an experiment, durably.

    Raises:
        StorageFailed: the system refused.
    """
    replace_file(os.path.join(store_path, STATE_NAME), encode(to_plain(state)))


def load_state(store_path: str) -> PairState:
    """Read the facts of an experiment.

    Raises:
        StateUntrusted: they are missing or cannot be read.
    """
    path = os.path.join(store_path, STATE_NAME)
    try:
        state: PairState = from_plain(PairState, load_json(path))
    except (FileNotFoundError, ShapeError) as fault:
        raise StateUntrusted(f"{path} cannot be read: {fault}", next_step=f"ls -la {store_path}") from fault
    return state


def save_arm(path: str, arm: ArmState) -> None:
    """Write where one work tree stands.

    Raises:
        StorageFailed: the system refused.
    """
    replace_file(path, encode(to_plain(arm)), is_durable=False)


def _load_arm(path: str) -> ArmState:
    """Read the state of one work tree; the empty state where nothing can be read."""
    try:
        arm: ArmState = from_plain(ArmState, load_json(path))
    except (FileNotFoundError, StateUntrusted, ShapeError):
        return ArmState()
    return arm


# --- kept paths

# Ignored paths that a measurement needs and that no checkpoint has: dependencies and environments.
#
# There are two kinds. Neither can carry anything from one trial into the next:
#
# - *kept*: made by a setup command in each work tree. It stays while it is exactly what it was when the tree was
#   sealed. A changed one is removed and named, so that the setup command runs again.
# - *linked*: copied once from the user's checkout (sharing blocks where the file system can), so that no agent writes
#   into the user's. A changed copy is made anew.
#
# The seal of a path covers names, sizes, inodes and times of everything below it; no process can set a ctime.


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
    """A digest of everything at a path; empty where nothing exists, `UNREADABLE` where it cannot be read."""
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
    """The seal of a path that must exist and be readable.

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


def _copy_file(source: str, target: str) -> str:
    """Copy one file, sharing its blocks where the file system can; special files are left out."""
    mode = os.lstat(source).st_mode
    if not stat.S_ISREG(mode):
        if stat.S_ISLNK(mode):
            shutil.copy2(source, target, follow_symlinks=False)
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


class Arm:
    """A work tree and all that belongs to it.

    Args:
        name: ``incumbent`` or ``candidate``.
        store: our repository.
        state: what the experiment was made from.
    """

    def __init__(self, name: str, store: ObjectStore, state: PairState) -> None:
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
        return _load_arm(self._state_path).commit

    def is_lost(self) -> bool:
        """The folder is gone, or something else stands in its place."""
        return self._tree.is_lost()

    @property
    def git(self) -> Git:
        """Git over the files of the tree with the configuration of our own repository, never with the tree's own."""
        above = os.path.dirname(self.root_path)
        return self._store.git.at(self.root_path, GIT_WORK_TREE=self.root_path, GIT_CEILING_DIRECTORIES=above)

    def set_to(self, commit: str) -> tuple[str, ...]:
        """Make the tree equal to a commit, whatever was done to it; kept paths stay as `WorktreePair.create` says.

        Returns:
            Kept paths that had changed and were removed: the setup command must run again, then `seal`.

        Raises:
            WorkspaceFault: it cannot be done: no such commit, a full disk, a failing filter, files of another user.
        """
        seals = self._begin_anew()
        self._tree.set_to(commit)
        return self._end(commit, seals)

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

    def drift(self) -> tuple[str, ...]:
        """Paths changed, added or only touched since the tree was set to its commit. Raises as `differences`."""
        return sum(self.differences(), ())

    def differences(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tracked paths that differ from the commit or were only touched, and what was added: the topmost of each.

        Raises:
            StepIllegal: nothing is known about the tree; restore it first.
            WorkspaceFault: the tree is gone; git or the file system fails.
        """
        if not self._tree.recall():
            raise StepIllegal(f"there is no record of {self.root_path}", next_step="restore it first")
        look = self._tree.look()
        return tuple(map(os.fsdecode, look.modified)), tuple(os.fsdecode(extra.path) for extra in look.extras)

    def settle(self, commit: str, changed: tuple[str, ...]) -> None:
        """Make the tree, just taken as a snapshot, equal to the commit of it: no ignored file stays.

        Args:
            commit: the commit of the snapshot.
            changed: its changed paths, which are written as the commit has them (line ends, modes).

        Raises:
            WorkspaceFault: it cannot be done.
        """
        seals = self._begin()
        self._tree.settle(os.fsencode(path) for path in changed)
        self._tree.remove_extras()
        self._end(commit, seals)

    def seal(self) -> None:
        """Take the kept paths, as they are now, for those that may stay.

        Raises:
            WorkspaceFault: one cannot be read.
        """
        arm = _load_arm(self._state_path)
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
        """Paths that the tree below a prefix leaves alone: its submodules, its kept paths and ``.git``."""
        paths = [sub.path for sub in self._state.submodules] + [os.path.normpath(path) for path in kept]
        inside = {path.removeprefix(prefix) for path in paths if path.startswith(prefix)}
        return frozenset({b".git", *(os.fsencode(path) for path in inside if path)})

    def _begin(self) -> dict[str, str]:
        """From here to `_end` the tree stands at no commit."""
        arm = _load_arm(self._state_path)
        save_arm(self._state_path, ArmState("", arm.seals))
        return arm.seals

    def _begin_anew(self) -> dict[str, str]:
        """As `_begin`, for a tree whose content is to be replaced: that very content may fill the disk."""
        try:
            return self._begin()
        except StorageFailed:
            self.shed()
            return self._begin()

    def _end(self, commit: str, seals: dict[str, str]) -> tuple[str, ...]:
        """Restore all but the tree's own files, and note the commit; returns the kept paths that were removed."""
        for sub in self._state.submodules:
            self._set_submodule(sub.path, sub.commit)
        dropped = self._drop_changed(seals)
        self._copy_linked(seals)
        template = os.path.join(self._store.path, "template")
        make_git_folder(self.root_path, template, self._store, commit, self._tree.index_path)
        save_arm(self._state_path, ArmState(commit, seals))
        return dropped

    def _set_submodule(self, path: str, commit: str) -> None:
        folder = os.path.join(self.root_path, path)
        if (tree := self._submodules.get(path)) is not None:
            tree.set_to(commit)
        elif not os.path.isdir(folder) or os.path.islink(folder) or os.listdir(folder):
            remove(folder)
            os.makedirs(folder)

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

    def _drop_changed(self, seals: dict[str, str]) -> tuple[str, ...]:
        """Remove the kept paths that changed since they were sealed, and return them."""
        places = {path: os.path.join(self.root_path, path) for path in self._state.keep}
        changed = tuple(path for path, place in places.items() if seal_of(place) != seals.get(path, ""))
        for path in changed:
            remove(places[path])
            seals.pop(path, None)
        return changed

    def _copy_linked(self, seals: dict[str, str]) -> None:
        """Copy the linked paths again whose copies changed."""
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
