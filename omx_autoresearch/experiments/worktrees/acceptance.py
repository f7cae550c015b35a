"""The one act that changes the user's checkout: taking over what an experiment found, when its owner says so.

The checkout must stand where it stood at the start. Then git itself moves index and files from the base commit to the
checkpoint (a two-way ``read-tree``, so the result is the checkpoint's tree to the byte, whatever the line ends, filters
or the sparse checkout), and nothing is committed. No file that git does not track is overwritten. A failed attempt is
taken back; one that was killed is taken back by the next call.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from omx_autoresearch.experiments.worktrees import checkout
from omx_autoresearch.experiments.worktrees.object_store import ObjectStore, TreeChange, tree_changes
from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.system.files import kind_of, walk
from omx_autoresearch.system.git import is_locked

_MARK = "accepting"
_COMPARED_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class PatchAcceptance:
    """The result of taking a checkpoint into the checkout.

    Attributes:
        is_applied: index and work tree hold it now; nothing was committed.
        changed_paths: empty where it was refused or there was nothing to take over.
        warning: what the owner should know of what was taken over.
        reason_code: why it was refused: ``user_moved in_the_way locked git_refused``; else empty.
        reasons: what exactly, one sentence each.
    """

    is_applied: bool
    changed_paths: tuple[str, ...] = ()
    warning: str = ""
    reason_code: str = ""
    reasons: tuple[str, ...] = ()


def apply_checkpoint(
    store: ObjectStore, repository_path: str, stamp: checkout.UserStamp, base: str, final: str
) -> PatchAcceptance:
    """Bring a checkpoint into the checkout that still looks like its stamp.

    Raises:
        WorkspaceFault: git cannot read the checkout, or a failed attempt could not be taken back.
    """
    repository = checkout.open_repository(repository_path)
    changes = tree_changes(store.git, base, final)
    changed = tuple(change.path for change in changes)
    mark = os.path.join(store.path, _MARK)
    if changes and _has_ended(repository, final):  # an attempt was killed before its end could be recorded
        with suppress(FileNotFoundError):
            os.unlink(mark)
        return PatchAcceptance(True, changed)
    if os.path.exists(mark):
        _take_back(store, repository, stamp, _marked_changes(store, mark, base))
        os.unlink(mark)
    reasons = checkout.moved(stamp, checkout.user_stamp(repository)) or checkout.under_way(repository)
    if reasons:
        return _refused("user_moved", *reasons)
    in_the_way = _in_the_way(repository.root_path, changes)
    if in_the_way:
        said = f"files that git does not track would be overwritten: {checkout.named(in_the_way)}"
        return _refused("in_the_way", said)
    if not changes:
        return PatchAcceptance(is_applied=True)
    give_objects(store, repository, (final,), base)
    with open(mark, "w", encoding="ascii") as stream:
        stream.write(final)
    result = repository.git.when_unlocked("read-tree", "-m", "-u", base, final)
    if result.exit_status != 0:
        _take_back(store, repository, stamp, changes)
        os.unlink(mark)
        code = "locked" if is_locked(result) else "git_refused"
        return _refused(code, result.stderr)
    os.unlink(mark)
    return PatchAcceptance(True, changed)


def _refused(code: str, *reasons: str) -> PatchAcceptance:
    return PatchAcceptance(is_applied=False, reason_code=code, reasons=reasons)


def reasons_against(
    store: ObjectStore, repository_path: str, stamp: checkout.UserStamp, final: str
) -> tuple[str, ...]:
    """The reasons for which the checkout would refuse a checkpoint now, one sentence each; changes nothing.

    An attempt that was interrupted or has ended is left to `apply_checkpoint`, which ends it or takes it back.

    Raises:
        WorkspaceFault: git cannot read the checkout.
    """
    if os.path.exists(os.path.join(store.path, _MARK)):
        return ()
    repository = checkout.open_repository(repository_path)
    reasons = checkout.moved(stamp, checkout.user_stamp(repository)) or checkout.under_way(repository)
    return () if reasons and _has_ended(repository, final) else reasons


def create_branches(
    store: ObjectStore, repository_path: str, base: str, branches: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    """Create branches at checkpoints in the user's repository, all of them or none; none is checked out.

    Args:
        store: our repository.
        repository_path: the user's checkout.
        base: the commit that all checkpoints stand on.
        branches: names without ``refs/heads/``, and commits.

    Raises:
        WorkspaceFault: a name is no branch name or is taken; nothing was created.
    """
    repository = checkout.open_repository(repository_path)
    pairs = tuple(branches)
    for name, _ in pairs:
        if repository.git.run("check-ref-format", "--branch", name).exit_status != 0 or name.startswith("@"):
            raise WorkspaceFault(
                f"{name!r} is not a valid branch name", next_step="git help check-ref-format"
            )
    give_objects(store, repository, tuple(commit for _, commit in pairs), base)
    lines = ["start\n", *(f"create refs/heads/{name} {commit}\n" for name, commit in pairs), "commit\n"]
    result = repository.git.when_unlocked("update-ref", "--stdin", stdin=os.fsencode("".join(lines)))
    repository.git.checked(result, ("update-ref",))
    return tuple(name for name, _ in pairs)


def give_objects(
    store: ObjectStore, repository: checkout.UserRepository, commits: tuple[str, ...], base: str
) -> None:
    """Copy what commits need and their base does not have into the user's repository.

    Raises:
        WorkspaceFault: git cannot read or write them.
    """
    pack = os.path.join(store.path, "given.pack")
    wanted = "".join(f"{commit}\n" for commit in commits) + f"^{base}\n"
    store.git.output("pack-objects", "--revs", "--stdout", "-q", stdin=wanted.encode("ascii"), to_path=pack)
    try:
        repository.git.output("unpack-objects", "-q", from_path=pack)
    finally:
        os.unlink(pack)
    _give_large_files(os.path.join(store.path, "lfs", "objects"), repository.common_dir)


def _give_large_files(source: str, common_dir: str) -> None:
    """Copy what git-lfs stored beside our repository; files are named by their content."""
    if not os.path.isdir(source):
        return
    for name, entry in walk(source):
        path = os.path.join(common_dir, "lfs", "objects", name)
        if kind_of(entry) == "file" and not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(entry.path, f"{path}.part")
            os.replace(f"{path}.part", path)


def _in_the_way(root: str, changes: Iterable[TreeChange]) -> tuple[str, ...]:
    """Untracked things, ignored ones too, where a checkpoint has new files."""
    found = set()
    gone = {change.path for change in changes if change.status == "D"}
    for change in changes:
        if change.status != "A":
            continue
        folder = os.path.dirname(change.path)
        while folder and folder not in gone:
            path = os.path.join(root, folder)
            if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
                found.add(folder)
            folder = os.path.dirname(folder)
        if os.path.lexists(os.path.join(root, change.path)) and not _is_emptied(root, change.path, gone):
            found.add(change.path)
    return tuple(sorted(found))


def _is_emptied(root: str, path: str, gone: set[str]) -> bool:
    """A folder that the checkpoint turns into a file, and in which nothing but deleted files stands."""
    below = os.path.join(root, path)
    if os.path.islink(below) or not os.path.isdir(below):
        return False
    return all(kind_of(entry) == "folder" or os.path.join(path, name) in gone for name, entry in walk(below))


def _has_ended(repository: checkout.UserRepository, final: str) -> bool:
    """Everything is done already: index and files are the checkpoint's."""
    options = ("--quiet", "--ignore-submodules=none")
    staged = repository.git.run("diff-index", "--cached", *options, final).exit_status == 0
    return staged and repository.git.run("diff", *options).exit_status == 0


def _marked_changes(store: ObjectStore, mark: str, base: str) -> tuple[TreeChange, ...]:
    with open(mark, encoding="ascii") as stream:
        final = stream.read().strip()
    return tree_changes(store.git, base, final) if final else ()


def _take_back(
    store: ObjectStore,
    repository: checkout.UserRepository,
    stamp: checkout.UserStamp,
    changes: tuple[TreeChange, ...],
) -> None:
    """Undo what an attempt wrote before it failed: only files that it meant to change, and only what it wrote there.

    Raises:
        WorkspaceFault: something else was changed meanwhile; nothing more is touched.
    """
    now = checkout.user_stamp(repository)
    written = {change.path: change for change in changes}
    if now.head_commit != stamp.head_commit or now.index_digest != stamp.index_digest:
        return  # git writes the index last: the attempt ended, or the user went on from there
    foreign = tuple(
        path
        for path in now.dirty
        if path not in stamp.dirty and (path not in written or not _is_ours(store, repository, written[path]))
    )
    if foreign:
        raise WorkspaceFault(
            f"an acceptance was interrupted, and files have changed since: {checkout.named(foreign)}",
            next_step=f"git -C {shlex.quote(repository.root_path)} status",
        )
    for path in now.dirty:
        if path in written and written[path].status == "A":
            os.unlink(os.path.join(repository.root_path, path))
    tracked = [path for path in now.dirty if path in written and written[path].status != "A"]
    if tracked:
        names = b"".join(os.fsencode(path) + b"\0" for path in tracked)
        repository.git.output("checkout-index", "-f", "-u", "-z", "--stdin", stdin=names)


def _is_ours(store: ObjectStore, repository: checkout.UserRepository, change: TreeChange) -> bool:
    """True where the file is gone, or holds the beginning of the checkpoint's content."""
    path = os.path.join(repository.root_path, change.path)
    try:
        if os.path.islink(path):
            content = os.fsencode(os.readlink(path))
        else:
            with open(path, "rb") as stream:
                content = stream.read(_COMPARED_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    if change.status == "D":
        return False
    return store.git.output("cat-file", "blob", change.object_id).startswith(content)
