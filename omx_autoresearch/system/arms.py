"""One arm of an experiment: a work tree with its submodules, its kept paths and its ``.git``, restored as one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import StepIllegal, StorageFailed, WorkspaceFault
from omx_autoresearch.system.checkpoints import Snapshot, TreeFault, take_snapshot
from omx_autoresearch.system.git_folder import make_git_folder
from omx_autoresearch.system.kept_paths import copy_linked, require_seal, seal_of
from omx_autoresearch.system.removal import remove
from omx_autoresearch.system.user_repository import named
from omx_autoresearch.system.work_tree import WorkTree
from omx_autoresearch.system.workspace_state import ArmState, load_arm, save_arm

if TYPE_CHECKING:
    from omx_autoresearch.system.object_store import ObjectStore
    from omx_autoresearch.system.workspace_state import WorkspaceState


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
        kept = (*state.keep, *state.link, *state.caches)
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
        """Make everything equal to a commit.

        Raises:
            WorkspaceFault: it cannot be done.
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
        """The content of the tree, compared with the commit that it was set to.

        Raises:
            StepIllegal: it stands at no commit; `set_to` first.
            WorkspaceFault: git or the file system fails.
        """
        base = self.commit
        if not base:
            raise StepIllegal(f"{self.root_path} was not restored to its end", next_step="restore it first")
        if self.is_lost():
            return TreeFault("workspace_lost", (self.root_path,), f"the work tree {self.root_path} is gone")
        return self._changed_submodules() or take_snapshot(self._tree, base, self._state.file_limit_bytes)

    def drift(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tracked paths that differ from the commit or were only touched, and what was added: the topmost of each.

        Raises:
            StepIllegal: nothing is known about the tree; restore it first.
            WorkspaceFault: the tree is gone; git or the file system fails.
        """
        if not self._tree.recall():
            raise StepIllegal(f"nothing is known about {self.root_path}", next_step="restore it first")
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
                taken = take_snapshot(tree, sub.commit, self._state.file_limit_bytes)
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
                    f"{source} was changed since the experiment began: its copies would differ",
                    next_step="start a new experiment",
                )
            remove(place)
            copy_linked(source, place)
            seals[path] = seal_of(place)
            copied.append(path)
        return tuple(dropped), tuple(copied)
