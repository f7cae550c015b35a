"""One worktree of an experiment: made equal to a checkpoint whatever was done to it, or taken as the next checkpoint.

The index that says what each file was stands beside our repository, out of the agent's reach, and is kept between calls
so that git reads only files that changed. The tree is looked at once (git at every file, `FolderScan` at folders that
changed), and only what differs is removed or written again.

Files that git ignores do not count: they are in no checkpoint and are gone before anything is measured. What no patch
could carry to the user is refused with its paths: nested repositories, changed submodules, pipes and sockets, links out
of the tree, files too large, paths outside a sparse checkout.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omx_autoresearch.experiments.worktrees.checkout import GITLINK, named
from omx_autoresearch.experiments.worktrees.folder_scan import Extra, FolderScan, FreshFiles
from omx_autoresearch.experiments.worktrees.object_store import LINK, ObjectStore, TreeChange
from omx_autoresearch.foundation.errors import StepIllegal, WorkspaceFault
from omx_autoresearch.system.files import kind_of, remove, walk
from omx_autoresearch.system.git import Git, GitResult, find_root, is_locked, wait_for_orphans

_NOTHING = "0"
_DIFFERENCES = ("diff-files", "-z", "--ignore-submodules=all")


@dataclass(frozen=True, slots=True)
class Look:
    """How a work tree differs from its index.

    Attributes:
        modified: tracked files that are changed, gone or of another type (or only touched).
        extras: what the index does not have, the topmost of each; ignored files too.
    """

    modified: tuple[bytes, ...]
    extras: tuple[Extra, ...]


class WorkTree:
    """A folder, the index that describes it, and what is known about both.

    Args:
        store: our repository.
        root_path: the folder.
        index_path: the index file, beside the repository.
        opaque: paths in it that are no concern of this tree: its ``.git``, kept ones and submodules.
    """

    def __init__(
        self, store: ObjectStore, root_path: str, index_path: str, opaque: frozenset[bytes] = frozenset()
    ) -> None:
        self.store = store
        self.root_path = root_path
        self.index_path = index_path
        self.is_sparse = os.path.exists(os.path.join(store.path, "info", "sparse-checkout"))
        self.has_opaque = len(opaque) > 1
        self._fresh = FreshFiles(root_path, f"{index_path}.fresh")
        self._scan = FolderScan(os.fsencode(root_path), opaque)
        self._written = (0, 0, 0)
        self._is_alone = False  # no git of a killed process writes here any more
        self._tree = ""  # what the index holds, a tree or a commit; empty if unknown

    @property
    def git(self) -> Git:
        """Git for this folder and index."""
        return self.store.git.at(self.root_path, GIT_WORK_TREE=self.root_path, GIT_INDEX_FILE=self.index_path)

    def is_lost(self) -> bool:
        """The folder is gone, or something else stands in its place."""
        try:
            return not stat.S_ISDIR(os.lstat(self.root_path).st_mode)
        except OSError:
            return True

    def set_to(self, commit: str) -> None:
        """Make the folder equal to a commit.

        Raises:
            WorkspaceFault: it cannot be done: no such commit, a full disk, a failing filter, foreign files.
        """
        self._make_folder()
        self._aim(commit)
        look = self.look()
        self._remove(extra.path for extra in look.extras)
        self.write(look.modified)
        if look.extras:
            self._require_no_extras()

    def look(self) -> Look:
        """How the folder differs from its index.

        Raises:
            WorkspaceFault: it cannot be read.
        """
        git = self.git
        process = git.start(*_DIFFERENCES)
        try:
            extras = self._scan.look()
        except OSError as fault:
            git.abandon(process)
            raise _unreadable(self.root_path, fault) from fault
        said = git.checked(git.finish(process, *_DIFFERENCES), _DIFFERENCES)
        if self._scan.has_mended:  # git could not look into a folder that has its permissions back now
            said = git.output(*_DIFFERENCES)
        modified = dict.fromkeys(said.split(b"\0")[1::2])
        modified.update(dict.fromkeys(self._fresh.changed()))
        return Look(tuple(modified), tuple(extras))

    def write(self, paths: Iterable[bytes]) -> None:
        """Write tracked files as the index has them, whatever stands there now.

        Raises:
            WorkspaceFault: git cannot: a full disk, a failing filter.
        """
        written = tuple(paths)
        if written:
            for path in written:  # git would let a file be that looks right to the second
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(os.fsencode(self.root_path), path))
            names = b"".join(path + b"\0" for path in written)
            self.update("checkout-index", "-f", "-u", "-z", "--stdin", stdin=names)
            self._fresh.note(written)

    def settle(self, changed: Iterable[bytes]) -> None:
        """Files just taken into the index become what a fresh checkout would have.

        Most are already. Where line ends or filters may change what is written, or permissions are odd, they are
        written again.

        Raises:
            WorkspaceFault: git cannot write them.
        """
        usual = {0o666 & ~self._scan.umask, 0o777 & ~self._scan.umask}
        has_conversions = self.store.has_conversions or self._scan.has_name(b".gitattributes")
        root = os.fsencode(self.root_path)
        again, noted = [], []
        for path in changed:
            try:
                status = os.lstat(os.path.join(root, path))
            except (FileNotFoundError, NotADirectoryError):
                continue
            if stat.S_ISREG(status.st_mode) and (
                has_conversions or stat.S_IMODE(status.st_mode) not in usual
            ):
                again.append(path)
            elif not stat.S_ISDIR(status.st_mode):
                noted.append(path)
        self._fresh.note(noted)
        self.write(again)

    def remove_extras(self) -> None:
        """Remove everything that the index does not have.

        Raises:
            WorkspaceFault: something cannot be removed.
        """
        try:
            extras = self._scan.look()
        except OSError as fault:
            raise _unreadable(self.root_path, fault) from fault
        self._remove(extra.path for extra in extras)
        if extras:
            self._require_no_extras()

    def shed(self) -> None:
        """Remove what a restoration would remove or write again; nothing is written, so it helps on a full disk.

        Raises:
            WorkspaceFault: it cannot be read, or something cannot be removed.
        """
        look = self.look()
        self._remove((*(extra.path for extra in look.extras), *look.modified))

    def _remove(self, paths: Iterable[bytes]) -> None:
        for path in paths:
            remove(os.path.join(os.fsencode(self.root_path), path))

    def take_over(self, tree: str, changes: Sequence[TreeChange]) -> None:
        """The index was changed to hold this tree, by these changes."""
        self._tree = tree
        self._fresh.drop(os.fsencode(change.path) for change in changes)
        for change in sorted(changes, key=_deleted_first):  # a file may take the place of a folder
            path = os.fsencode(change.path)
            if change.status == "D":
                self._scan.discard(path)
            elif change.status == "A":
                self._scan.add(path)

    def recall(self) -> bool:
        """Take over the index where another process wrote it last; False where nothing can be known from it."""
        if not self._is_alone:
            wait_for_orphans(self.store.path)
            self._is_alone = True
        self._open_root()
        if self._stamp() != self._written:
            self._tree = ""
        if not self._tree and os.path.exists(self.index_path):
            self._learn()
        return bool(self._tree)

    def forget(self) -> None:
        """The index may hold anything; the next `set_to` makes it anew."""
        self._tree = ""
        remove(self.index_path)

    def update(self, *args: str, stdin: bytes = b"") -> bytes:
        """The output of a command that writes the index.

        A lock that a killed git left behind is waited for, then removed.

        Raises:
            WorkspaceFault: git refused; the index counts as unknown.
        """
        tree, self._tree = self._tree, ""
        result = self.attempt(*args, stdin=stdin)
        output = self.git.checked(result, args)
        self._tree = tree
        return output

    def attempt(self, *args: str, stdin: bytes = b"", is_literal: bool = False) -> GitResult:
        """As `update`, with git's refusal as a value."""
        git = self.git.at(self.root_path, GIT_LITERAL_PATHSPECS="1") if is_literal else self.git
        result = git.when_unlocked(*args, stdin=stdin)
        if result.exit_status != 0 and is_locked(result):
            remove(f"{self.index_path}.lock")  # the experiment is held by us alone, so its owner is dead
            result = git.run(*args, stdin=stdin)
        self._written = self._stamp()
        return result

    def _aim(self, commit: str) -> None:
        """Make the index hold a commit, with what is known of files that stay the same."""
        if not self.recall():
            self._rebuild(commit)
        changes = self.store.changes(self._tree, commit)
        lines = [_index_line(change) for change in sorted(changes, key=_deleted_first)]
        if lines:
            self.update("update-index", "-z", "--index-info", stdin=b"".join(lines))
        self.take_over(commit, changes)

    def _learn(self) -> None:
        """Take over an index that another process left; an unusable one is forgotten."""
        result = self.git.run("write-tree")
        if result.exit_status != 0:
            self.forget()
            return
        self._expect()
        self._tree = result.stdout.decode("ascii").strip()
        self._written = self._stamp()

    def _rebuild(self, commit: str) -> None:
        """Begin anew: an empty folder (but for what is kept), a new index, every file written."""
        self.forget()
        remove(f"{self.index_path}.lock")
        self._scan.expect(())
        self.remove_extras()
        self.update("read-tree", "--reset", "-u", commit)
        self._fresh.note(self._expect())
        self._tree = commit

    def _stamp(self) -> tuple[int, int, int]:
        """Which index file this is; git writes a new one each time."""
        try:
            status = os.stat(self.index_path)
        except OSError:
            return (0, 0, 0)
        return (status.st_ino, status.st_mtime_ns, status.st_size)

    def _expect(self) -> list[bytes]:
        """Tell the scan which files are there, and return them; those outside a sparse checkout (tag S) are not."""
        said = self.git.output("ls-files", "-t", "-z")
        paths = [entry[2:] for entry in said.split(b"\0") if entry and not entry.startswith(b"S")]
        self._scan.expect(paths)
        return paths

    def _make_folder(self) -> None:
        if self.is_lost():
            remove(self.root_path)
        try:
            os.makedirs(self.root_path, exist_ok=True)
        except OSError as fault:
            raise _unreadable(self.root_path, fault) from fault
        if os.path.realpath(self.root_path) != self.root_path:
            raise WorkspaceFault(
                f"{self.root_path} leads to another folder: {os.path.realpath(self.root_path)}",
                next_step=f"ls -ld {os.path.dirname(self.root_path)}",
            )

    def _open_root(self) -> None:
        """Give the folder itself its permissions back: no process can start in it without them."""
        try:
            mode = os.lstat(self.root_path).st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(self.root_path, 0o777 & ~self._scan.umask)
        except FileNotFoundError:
            return
        except OSError as fault:
            raise _unreadable(self.root_path, fault) from fault

    def _require_no_extras(self) -> None:
        rest = self._scan.look()
        if rest:
            self.forget()
            raise WorkspaceFault(
                f"{self.root_path} keeps changing: {os.fsdecode(rest[0].path)} reappeared during the restore",
                next_step=f"fuser -v {self.root_path}",
            )


def _deleted_first(change: TreeChange) -> bool:
    return change.status != "D"


def _index_line(change: TreeChange) -> bytes:
    mode = _NOTHING if change.status == "D" else change.mode
    return f"{mode} {change.object_id}\t".encode("ascii") + os.fsencode(change.path) + b"\0"


def _unreadable(path: str, fault: OSError) -> WorkspaceFault:
    return WorkspaceFault(
        f"{fault.filename or path!r} cannot be used: {fault.strerror}", next_step=f"ls -la {path}"
    )


# --- the next checkpoint

FILE_LIMIT_BYTES = 1024**3
"""The largest file that a checkpoint takes."""

_BARRED = ("..", ".git")
"""The first parts of paths, from the root, to which no link of a checkpoint may lead."""
_NAMED_PATHS = 200
"""More than these are not named to git one by one: it then looks at the whole tree itself."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The content of a work tree.

    Attributes:
        tree: its id in our repository.
        changed: paths that differ from the checkpoint, a renamed file as both of its names.
    """

    tree: str
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TreeFault:
    """The reason that a work tree cannot become a checkpoint.

    Attributes:
        reason_code: ``nested_repository``, ``submodule_changed``, ``special_file``, ``link_outside``,
            ``file_too_large``, ``outside_sparse_checkout``, ``not_addable`` or ``workspace_lost``.
        paths: where.
        detail: a sentence for people.
    """

    reason_code: str
    paths: tuple[str, ...]
    detail: str


def take_snapshot(work_tree: WorkTree, base: str) -> Snapshot | TreeFault:
    """The tree of a folder that was set to ``base`` before and has been worked on since.

    Raises:
        StepIllegal: nothing is known about the tree; restore it first.
        WorkspaceFault: git or the file system fails.
    """
    if work_tree.is_lost():
        return _fault("workspace_lost", (work_tree.root_path,), "the work tree is gone")
    if not work_tree.recall():
        raise StepIllegal(
            f"the index of {work_tree.root_path} is gone, so its changes cannot be determined",
            next_step="restore the tree first",
        )
    look = work_tree.look()
    fault = _nested_in_tracked(work_tree, look.extras) or _special(work_tree, look.extras)
    if fault is not None:
        return fault
    new = _untracked(work_tree, look.extras)
    nested = tuple(os.fsdecode(path.rstrip(b"/")) for path in new if path.endswith(b"/"))
    if nested:
        return _nested(nested)
    paths = sorted({*look.modified, *new})
    fault = _too_large(work_tree, paths)
    if fault is None and paths:
        fault = _add(work_tree, paths)
    if fault is not None:
        work_tree.forget()
        return fault
    return _tree(work_tree, base)


def _tree(work_tree: WorkTree, base: str) -> Snapshot | TreeFault:
    """The tree that the index holds, and whether a patch can carry it."""
    tree = work_tree.update("write-tree").decode("ascii").strip()
    changes = work_tree.store.changes(base, tree)
    links = tuple(change.path for change in changes if change.mode == LINK and _leaves(work_tree, change))
    gitlinks = tuple(change.path for change in changes if GITLINK in (change.mode, change.old_mode))
    fault = None
    if gitlinks:
        added = tuple(change.path for change in changes if change.mode == GITLINK and change.status == "A")
        fault = (
            _nested(added)
            if added
            else _fault("submodule_changed", gitlinks, "a submodule points to another commit or is gone")
        )
    elif links:
        fault = _fault("link_outside", links, "a link leads out of the tree")
    if fault is not None:
        work_tree.forget()
        return fault
    work_tree.take_over(tree, changes)
    return Snapshot(tree, tuple(change.path for change in changes))


def _untracked(work_tree: WorkTree, extras: Iterable[Extra]) -> list[bytes]:
    """Files among the extras that git does not ignore; a nested repository as a folder with a slash."""
    names = [os.fsdecode(extra.path) for extra in extras if extra.kind != "special"]
    if not names:
        return []
    args = ["ls-files", "-o", "-z", "--exclude-standard"]
    if len(names) <= _NAMED_PATHS:
        args += ["--", *names]
    git = work_tree.git.at(work_tree.root_path, GIT_LITERAL_PATHSPECS="1")
    tops = {extra.path for extra in extras}
    return [path for path in git.output(*args).split(b"\0") if path and _is_below(path, tops)]


def _is_below(path: bytes, tops: set[bytes]) -> bool:
    """A path, or a folder above it, is one of these; a kept path is not, though a candidate may not ignore it."""
    path = path.rstrip(b"/")
    while path:
        if path in tops:
            return True
        path = path.rpartition(b"/")[0]
    return False


def _add(work_tree: WorkTree, paths: list[bytes]) -> TreeFault | None:
    """Put the files into the index as they are."""
    beyond = _beyond_links(work_tree, paths)
    if (
        beyond
    ):  # files of a folder that is a link now: git names no path behind one, but forgets it when told so
        work_tree.update("update-index", "-z", "--force-remove", "--stdin", stdin=b"\0".join(beyond) + b"\0")
        paths = [path for path in paths if path not in beyond]
    args = ["add", "-A"] if work_tree.is_sparse else ["add", "-A", "--sparse"]
    stdin = b""
    # Without names git would look at submodules, too, and at kept paths that a candidate no longer ignores.
    if len(paths) <= _NAMED_PATHS or work_tree.is_sparse or work_tree.has_opaque:
        args += ["--pathspec-from-file=-", "--pathspec-file-nul"]
        stdin = b"".join(path + b"\0" for path in paths)
    result = work_tree.attempt(*args, stdin=stdin, is_literal=True)
    if result.exit_status == 0:
        return None
    outside = tuple(line for line in result.stderr.splitlines() if os.fsencode(line) in set(paths))
    if "sparse-checkout" in result.stderr:
        return _fault("outside_sparse_checkout", outside, "outside the sparse checkout")
    shown = tuple(os.fsdecode(path) for path in paths)
    return _fault("not_addable", shown, f"git cannot take it: {result.stderr}")


def _beyond_links(work_tree: WorkTree, paths: list[bytes]) -> frozenset[bytes]:
    """The paths that have a symbolic link on their way."""
    root = os.fsencode(work_tree.root_path)
    links: dict[bytes, bool] = {b"": False}

    def is_link(folder: bytes) -> bool:
        if folder not in links:
            links[folder] = is_link(os.path.dirname(folder)) or os.path.islink(os.path.join(root, folder))
        return links[folder]

    return frozenset(path for path in paths if is_link(os.path.dirname(path)))


def _nested_in_tracked(work_tree: WorkTree, extras: Iterable[Extra]) -> TreeFault | None:
    """A repository around tracked files, whose content git would pass over."""
    found = []
    for extra in extras:
        folder, _, name = extra.path.rpartition(b"/")
        if name == b".git":
            path = os.path.join(work_tree.root_path, os.fsdecode(folder)).rstrip("/")
            if find_root(path) == path:
                found.append(os.fsdecode(folder))
    return _nested(tuple(found)) if found else None


def _special(work_tree: WorkTree, extras: Iterable[Extra]) -> TreeFault | None:
    """Pipes, sockets and devices that are not ignored: git passes over them without a word."""
    root = os.fsencode(work_tree.root_path)
    found: list[bytes] = []
    for extra in extras:
        if extra.kind == "special":
            found.append(extra.path)
        elif extra.kind == "folder":
            found += (  # git names a folder that it cannot read
                extra.path + b"/" + name
                for name, entry in walk(os.path.join(root, extra.path))
                if kind_of(entry) == "special"
            )
    if not found:
        return None
    git = work_tree.git
    result = git.run("check-ignore", "-z", "--stdin", stdin=b"".join(path + b"\0" for path in found))
    ignored = set(result.stdout.split(b"\0"))
    paths = tuple(os.fsdecode(path) for path in found if path not in ignored)
    return _fault("special_file", paths, "a pipe, socket or device is not a file") if paths else None


def _too_large(work_tree: WorkTree, paths: list[bytes]) -> TreeFault | None:
    root = os.fsencode(work_tree.root_path)
    large = tuple(os.fsdecode(path) for path in paths if _size(os.path.join(root, path)) > FILE_LIMIT_BYTES)
    if not large:
        return None
    return _fault("file_too_large", large, f"larger than {FILE_LIMIT_BYTES} bytes")


def _size(path: bytes) -> int:
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _leaves(work_tree: WorkTree, change: TreeChange) -> bool:
    """A link whose target is absolute, or outside of the root, or in git's own folder; targets need not exist.

    As it is written, and as the links on its way lead: ``sub/up/..`` is above the root where ``sub/up`` is the root.
    """
    root = work_tree.root_path
    folder = os.path.join(root, os.path.dirname(change.path))
    try:
        target = os.readlink(os.path.join(root, change.path))
    except OSError:
        return False
    real = os.path.realpath(os.path.join(folder, os.path.dirname(target)))
    places = (
        os.path.relpath(os.path.normpath(os.path.join(folder, target)), root),
        os.path.relpath(
            os.path.normpath(os.path.join(real, os.path.basename(target))), os.path.realpath(root)
        ),
    )
    return os.path.isabs(target) or any(place.split(os.sep)[0].lower() in _BARRED for place in places)


def _nested(paths: tuple[str, ...]) -> TreeFault:
    return _fault("nested_repository", paths, "a nested repository: a patch cannot carry its files")


def _fault(reason_code: str, paths: tuple[str, ...], what: str) -> TreeFault:
    return TreeFault(reason_code, paths, f"{what}: {named(paths)}" if paths else what)
