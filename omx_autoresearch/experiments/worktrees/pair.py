"""The two work trees of an experiment, their checkpoints, and the way back into the user's checkout.

*incumbent* holds the last accepted checkpoint, *candidate* what is judged against it. Both are independent of the
user's repository: our own one (`object_store`) keeps checkpoints and borrows the user's objects, and each tree has a
small ``.git`` of its own that is made anew whenever it is restored. So whatever an agent does with git in its tree
reaches neither the user's references, index, stash or configuration nor ours, and nothing it plants is run by us.

Theory of operation. A worktree is made equal to a checkpoint, never made anew: an index beside our repository says what
each file was, so git reads only files that changed, and a scan of the folders finds what no index has (`worktree`).
Making a checkpoint is the same look the other way: what differs goes into the index, the index into a tree, and what a
patch could not carry to the user is refused (`worktree.take_snapshot`). A killed process leaves a worktree whose state
names no commit (`load_arm`): it is restored before it is used. Ignored paths that a measurement needs are kept while
they are exactly what the set-up made of the incumbent. Only `acceptance` writes into the user's checkout.

One process at a time works on an experiment; who holds it is not decided here.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from omx_autoresearch.experiments.worktrees import acceptance, arm, object_store
from omx_autoresearch.experiments.worktrees.arm import Arm
from omx_autoresearch.experiments.worktrees.checkout import (
    UserRepository,
    UserStamp,
    find_submodules,
    open_repository,
    require_clean,
)
from omx_autoresearch.experiments.worktrees.worktree import TreeFault
from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal, WorkspaceFault
from omx_autoresearch.system.files import remove
from omx_autoresearch.system.git import wait_for_orphans

INCUMBENT, CANDIDATE = "incumbent", "candidate"
"""Names of the two folders, equally long: a path of another length can change what is measured."""
_STORE = "checkpoints"
Paths = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A candidate's work as a commit, and its tree equal to it.

    Attributes:
        commit: in our repository; the parent itself where nothing changed.
        changed: paths that differ from the parent; empty where nothing did.
    """

    commit: str
    changed: tuple[str, ...]


class WorktreePair:
    """The work trees of one experiment; made by `create`, found again by `open`."""

    def __init__(self, store: object_store.ObjectStore, state: arm.PairState) -> None:
        self._store = store
        self._state = state
        self._serial = 0
        self.incumbent, self.candidate = (Arm(name, store, state) for name in (INCUMBENT, CANDIDATE))
        self.arms = (self.incumbent, self.candidate)
        self.repository_path = state.repository_path
        self.stamp: UserStamp = state.stamp
        self.base_commit = state.stamp.head_commit

    @classmethod
    def create(
        cls, repository_path: str, folder_path: str, experiment_id: str, *, keep: Paths = (), link: Paths = ()
    ) -> Self:
        """Make both work trees at the commit that is checked out, from a clean checkout.

        Leftovers of an unfinished attempt in the folder are removed first.

        Args:
            repository_path: the root of the user's checkout.
            folder_path: a private folder for the trees, outside the checkout; made if missing.
            experiment_id: names the reference that keeps the base commit in the user's repository.
            keep: ignored paths that a setup command makes in each tree; they stay while they are as they were sealed.
            link: ignored paths of the user's checkout, copied into each tree; changed copies are made anew.

        Raises:
            WorkspaceFault: the checkout is not clean or not usable, and why; a submodule is missing; the folder lies
                in the checkout; git or the system fails.
            StepIllegal: the folder already holds work trees; `open` them.
        """
        repository = open_repository(repository_path)
        stamp = require_clean(repository)
        folder = _private_folder(folder_path, repository.root_path)
        store_path = os.path.join(folder, _STORE)
        if os.path.exists(os.path.join(store_path, arm.STATE_NAME)):
            raise StepIllegal(
                f"{store_path} already holds an experiment", next_step="resume or close that one first"
            )
        wait_for_orphans(store_path)
        _remove_leftovers(store_path, folder)
        arm.require_ignored(repository, (*keep, *link))
        seals = tuple(arm.require_seal(os.path.join(repository.root_path, path)) for path in link)
        submodules = find_submodules(repository, stamp.head_commit)
        settings = object_store.pinned(object_store.read_settings(repository.git), repository.root_path)
        objects = tuple(dict.fromkeys(sub.objects_path for sub in submodules if sub.objects_path))
        store = object_store.create_store(store_path, repository, settings, objects)
        object_store.make_template(os.path.join(store_path, "template"), repository, settings)
        _hold_base(repository, experiment_id, stamp.head_commit)
        state = arm.PairState(
            experiment_id=experiment_id,
            repository_path=repository.root_path,
            folder_path=folder,
            stamp=stamp,
            submodules=submodules,
            keep=keep,
            link=link,
            link_seals=seals,
        )
        arm.save_state(store_path, state)
        made = cls(store, state)
        try:
            for tree in made.arms:
                tree.set_to(made.base_commit)
        except AutoresearchError:
            made.close(forget=True)
            raise
        return made

    @classmethod
    def open(cls, folder_path: str) -> Self:
        """Find the work trees of an experiment again, in whatever state they are; `Arm.set_to` mends them.

        Raises:
            StateUntrusted: the folder holds no work trees, or they were never completed.
            WorkspaceFault: the user's repository, from which checkpoints borrow, is gone.
        """
        folder = os.path.realpath(folder_path)
        store_path = os.path.join(folder, _STORE)
        state = arm.load_state(store_path)
        if not os.path.isdir(state.repository_path):
            raise WorkspaceFault(
                f"the repository {state.repository_path} is gone, and checkpoints borrow objects from it",
                next_step="move it back",
            )
        # The folder may have been moved as a whole, with all that stands in it.
        state = replace(state, folder_path=folder)
        return cls(object_store.open_store(store_path, state.repository_path), state)

    def commit(self, tree: str, parent: str, message: str) -> str:
        """Make a checkpoint of a tree and hold it by a reference in our repository; returns the new commit.

        Args:
            tree: of a snapshot.
            parent: the checkpoint that it was made from.
            message: any text.

        Raises:
            WorkspaceFault: git cannot make it.
        """
        commit = self._store.commit(tree, parent, message)
        if not self._serial:
            self._serial = max((int(name) for name, _ in self._store.kept() if name.isdecimal()), default=0)
        self._serial += 1
        self._store.keep(str(self._serial), commit)
        self._store.remember(parent, commit, self._store.changes(parent, tree))
        self._store.remember(tree, commit, ())
        self._store.own(commit, parent)
        return commit

    def checkpoint(self, message: str) -> Checkpoint | TreeFault:
        """Take the candidate as a commit, and make its tree equal to that: what is measured is what a patch will carry.

        Ignored files that the agent left are removed, its ``.git`` is made anew at the new commit.

        Raises:
            StepIllegal: the tree was not restored completely.
            WorkspaceFault: git or the file system fails.
        """
        parent = self.candidate.commit
        taken = self.candidate.snapshot()
        if isinstance(taken, TreeFault):
            return taken
        commit = self.commit(taken.tree, parent, message) if taken.changed else parent
        self.candidate.settle(commit, taken.changed)
        return Checkpoint(commit, taken.changed)

    def changes(self, base: str, final: str) -> tuple[object_store.FileChange, ...]:
        """The changed files between two commits, for people.

        Raises:
            WorkspaceFault: there is no such commit.
        """
        return object_store.file_changes(self._store.git, base, final)

    def patch(self, base: str, final: str, to_path: str = "") -> bytes:
        """The whole patch from one commit to another; with ``to_path`` it is written there and not returned.

        Raises:
            WorkspaceFault: there is no such commit, or the file cannot be written.
        """
        return object_store.read_patch(self._store.git, base, final, to_path)

    def apply_to_user(self, final: str) -> acceptance.PatchAcceptance:
        """Bring a checkpoint into the user's checkout as it was when the experiment began; nothing is committed.

        Raises:
            WorkspaceFault: git cannot read the checkout, or a failed attempt could not be taken back.
        """
        return acceptance.apply_checkpoint(
            self._store, self.repository_path, self.stamp, self.base_commit, final
        )

    def reasons_against(self, final: str) -> tuple[str, ...]:
        """The reasons for which `apply_to_user` would refuse now."""
        return acceptance.reasons_against(self._store, self.repository_path, self.stamp, final)

    def branches(self, branches: Iterable[tuple[str, str]]) -> tuple[str, ...]:
        """Create new branches of the user's repository at checkpoints, all or none; none is checked out.

        Args:
            branches: names without ``refs/heads/``, and checkpoints.

        Raises:
            WorkspaceFault: a name is no branch name or is taken; nothing was created.
        """
        return acceptance.create_branches(self._store, self.repository_path, self.base_commit, branches)

    def close(self, *, forget: bool = False) -> None:
        """Remove both work trees. Checkpoints stay for patch, acceptance and branches unless they are forgotten, too.

        Args:
            forget: remove our repository and the reference in the user's as well.

        Raises:
            WorkspaceFault: something cannot be removed.
        """
        for tree in self.arms:
            tree.remove()
        if forget:
            if os.path.isdir(self.repository_path):
                let_base_go(self.repository_path, self._state.experiment_id)
            remove(self._store.path)

    def has_same_attributes(self, names: Sequence[str]) -> bool:
        """True when git writes these files in both trees alike: line ends, filters, encodings (gitattributes(5)).

        Raises:
            WorkspaceFault: git cannot read the trees.
        """
        stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
        args = ("check-attr", "-z", "--all", "--stdin")
        first, second = (tree.git.output(*args, stdin=stdin) for tree in self.arms)
        return first == second


def _private_folder(folder_path: str, root_path: str) -> str:
    """The folder for the trees, made if missing, outside the checkout."""
    folder = os.path.realpath(folder_path)
    if os.path.join(folder, "").startswith(os.path.join(root_path, "")):
        raise WorkspaceFault(
            f"{folder_path} lies in the checkout {root_path}; worktrees must be outside it",
            next_step="name another folder",
        )
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as fault:
        raise WorkspaceFault(
            f"{folder} cannot be made: {fault.strerror}", next_step=f"ls -ld {folder}"
        ) from fault
    return folder


def _remove_leftovers(store_path: str, folder: str) -> None:
    """Remove what an attempt that was killed left behind, and nothing that may belong to someone else."""
    paths = [os.path.join(folder, name) for name in (INCUMBENT, CANDIDATE)]
    if object_store.is_unfinished(store_path):
        paths.append(store_path)
    else:
        paths = [path for path in (*paths, store_path) if os.path.lexists(path)]
        if paths:
            raise WorkspaceFault(
                f"{paths[0]} is in the way and does not belong to this experiment",
                next_step="name another folder",
            )
    for path in paths:
        remove(path)


def _base_reference(experiment_id: str) -> str:
    return f"{object_store.REFERENCES}/{experiment_id}/base"


def _hold_base(repository: UserRepository, experiment_id: str, commit: str) -> None:
    """Keep the base commit, from which checkpoints borrow, from being pruned in the user's repository."""
    args = ("update-ref", _base_reference(experiment_id), commit)
    repository.git.checked(repository.git.when_unlocked(*args), args)


def held_experiments(repository_path: str) -> list[str]:
    """The ids of the experiments whose base commits are kept in a user's repository."""
    git = open_repository(repository_path).git
    listed = git.output("for-each-ref", "--format=%(refname)", object_store.REFERENCES).decode(
        "ascii", "replace"
    )
    return [name.removeprefix(f"{object_store.REFERENCES}/").removesuffix("/base") for name in listed.split()]


def let_base_go(repository_path: str, experiment_id: str) -> None:
    """Keep the base commit of an experiment in the user's repository no longer."""
    repository = open_repository(repository_path)
    args = ("update-ref", "-d", _base_reference(experiment_id))
    repository.git.checked(repository.git.when_unlocked(*args), args)
    for name in (f"{object_store.REFERENCES}/{experiment_id}", object_store.REFERENCES):
        with contextlib.suppress(OSError):  # not empty, or git has removed it
            os.rmdir(os.path.join(repository.common_dir, name))
