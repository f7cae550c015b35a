"""One work tree of an experiment: a folder that is made equal to a checkpoint, whatever was done to it.

The index that says what each file was stands beside our repository, out of the agent's reach, and is kept between calls
so that git reads only files that changed. The tree is looked at once (git at every file, `FolderScan` at folders that
changed), and only what differs is removed or written again.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.git import Git, GitResult, is_locked
from omx_autoresearch.system.removal import remove

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omx_autoresearch.experiments.worktrees.object_store import ObjectStore
    from omx_autoresearch.experiments.worktrees.patches import TreeChange

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
        self._tree = ""  # what the index holds, a tree or a commit; empty where nobody knows

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

    def set_to(self, commit: str) -> tuple[str, ...]:
        """Make the folder equal to a commit; returns the paths that had to be removed or written.

        Raises:
            WorkspaceFault: it cannot be done: no such commit, a full disk, a failing filter, foreign files.
        """
        self._make_folder()
        self._aim(commit)
        look = self.look()
        for extra in look.extras:
            remove(os.path.join(os.fsencode(self.root_path), extra.path))
        self.write(look.modified)
        if look.extras:
            self._require_no_extras()
        touched = {extra.path for extra in look.extras} | set(look.modified)
        return tuple(sorted(os.fsdecode(path) for path in touched))

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

    def remove_extras(self) -> tuple[str, ...]:
        """Remove everything that the index does not have; returns the topmost paths.

        Raises:
            WorkspaceFault: something cannot be removed.
        """
        try:
            extras = self._scan.look()
        except OSError as fault:
            raise _unreadable(self.root_path, fault) from fault
        for extra in extras:
            remove(os.path.join(os.fsencode(self.root_path), extra.path))
        if extras:
            self._require_no_extras()
        return tuple(os.fsdecode(extra.path) for extra in extras)

    def shed(self) -> None:
        """Remove what a restoration would remove or write again; nothing is written, so it helps on a full disk.

        Raises:
            WorkspaceFault: it cannot be read, or something cannot be removed.
        """
        look = self.look()
        for path in (*(extra.path for extra in look.extras), *look.modified):
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

    def update(self, *args: str, stdin: bytes = b"", is_literal: bool = False) -> bytes:
        """The output of a command that writes the index.

        A lock that a killed git left behind is waited for, then removed.

        Raises:
            WorkspaceFault: git refused; the index counts as unknown.
        """
        tree, self._tree = self._tree, ""
        result = self.attempt(*args, stdin=stdin, is_literal=is_literal)
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
                f"{self.root_path} leads elsewhere: {os.path.realpath(self.root_path)}",
                next_step=f"ls -ld {os.path.dirname(self.root_path)}",
            )

    def _open_root(self) -> None:
        """Give the folder itself its permissions back: nobody can even be started in it without them."""
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
                f"{self.root_path} does not hold still: {os.fsdecode(rest[0].path)} came back while it was restored",
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


# --- folders

# What stands in a work tree that no checkpoint put there, found without asking for every file.
#
# Names come and go in a folder only when its mtime and ctime change (and no process can set a ctime), so a
# folder that is as it was after the last look is not read again. Git is asked about contents, and looks at
# each file; here only folders are looked at, which is fifty times as fast, and finds what git passes over:
# pipes, sockets, devices, repositories inside tracked folders, links in the place of folders, empty folders,
# and folders whose permissions were taken away.


_RACY_NS = 2_000_000_000
"""A folder that changed this recently may change again under the same time stamp (coarse clocks of file systems)."""

_FOLDER_MODE = 0o777


@dataclass(frozen=True, slots=True)
class Extra:
    """Something that the checkpoint does not have.

    Attributes:
        path: relative to the root of the work tree.
        kind: ``file``, ``link``, ``folder``, or ``special`` for a pipe, socket or device.
    """

    path: bytes
    kind: str


class FolderScan:
    """The folders of one work tree: which names belong to the checkpoint, and how each folder looked when it was right.

    Args:
        root: the work tree.
        opaque: paths that are never looked into and may be there or not: kept ones, and submodules; the ``.git``
            of a work tree is one.
    """

    def __init__(self, root: bytes, opaque: frozenset[bytes] = frozenset()) -> None:
        self._prefix = root + b"/"
        self._opaque = opaque
        self._names: dict[bytes, set[bytes]] = {b"": set()}
        self._right: dict[bytes, tuple[int, int, int, int]] = {}
        self.umask = _umask()
        self._folder_mode = _FOLDER_MODE & ~self.umask
        self.has_mended = False

    def expect(self, paths: Iterable[bytes]) -> None:
        """Take these files, and no others, for those of the checkpoint."""
        self._names = {b"": set()}
        self._right = {}
        grouped: dict[bytes, set[bytes]] = {}
        for path in paths:
            folder, _, name = path.rpartition(b"/")
            names = grouped.get(folder)
            if names is None:
                names = grouped[folder] = set()
            names.add(name)
        for folder, names in grouped.items():
            self._enter(folder)
            self._names[folder] |= names
        for path in self._opaque:
            self.add(path)

    def add(self, path: bytes) -> None:
        """The checkpoint has one more file."""
        folder, _, name = path.rpartition(b"/")
        self._enter(folder)
        self._names[folder].add(name)
        self._right.pop(folder, None)

    def discard(self, path: bytes) -> None:
        """The checkpoint has a file no more."""
        while path:
            folder, _, name = path.rpartition(b"/")
            names = self._names.get(folder)
            if names is None:
                return
            names.discard(name)
            self._right.pop(folder, None)
            if names or not folder:
                return
            del self._names[folder]
            path = folder

    def has_name(self, name: bytes) -> bool:
        """Some folder of the checkpoint has a file of this name."""
        return any(name in names for names in self._names.values())

    def look(self) -> list[Extra]:
        """Everything that does not belong here, the topmost of each; folders get their permissions back.

        ``has_mended`` then says whether one had lost them.

        Raises:
            OSError: a folder cannot be read.
        """
        self.has_mended = False
        found: list[Extra] = []
        lost: set[bytes] = set()
        for folder in sorted(self._names):
            if folder and folder.rpartition(b"/")[0] in lost:
                lost.add(folder)
                continue
            if not self._look_into(folder, found, lost):
                lost.add(folder)
        return found

    def _look_into(self, folder: bytes, found: list[Extra], lost: set[bytes]) -> bool:
        """Look into one folder; False where there is none."""
        path = self._prefix + folder
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISDIR(status.st_mode):
            return False
        stamp = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_dev)
        if self._right.get(folder) == stamp:
            return True
        self._right.pop(folder, None)
        if status.st_mode & _FOLDER_MODE != self._folder_mode:
            os.chmod(path, (status.st_mode & ~_FOLDER_MODE) | self._folder_mode)
            stamp = (0, 0, 0, 0)
            self.has_mended = True
        extras = list(self._foreign(folder, path))
        found += extras
        lost.update(extra.path for extra in extras)
        changed_ns = max(status.st_mtime_ns, status.st_ctime_ns)
        if not extras and stamp[0] and changed_ns < time.time_ns() - _RACY_NS:
            self._right[folder] = stamp
        return True

    def _foreign(self, folder: bytes, path: bytes) -> Iterable[Extra]:
        names = self._names[folder]
        prefix = folder + b"/" if folder else b""
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                full = prefix + name
                if full in self._opaque:
                    continue
                kind = _kind(entry)
                is_folder = full in self._names
                if name not in names or (kind == "folder") != is_folder or kind == "special":
                    yield Extra(full, kind)

    def _enter(self, folder: bytes) -> None:
        """Expect a folder, and those above it."""
        while folder not in self._names:
            self._names[folder] = set()
            parent, _, name = folder.rpartition(b"/")
            if parent in self._names:
                self._names[parent].add(name)
                self._right.pop(parent, None)
                return
            self._enter(parent)
            self._names[parent].add(name)


def _kind(entry: os.DirEntry[bytes]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "special"


def _umask() -> int:
    """The process's umask, read without changing it where the system shows it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            for line in stream:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


# --- files written a moment ago

# Files that were written within the last second: what happens to them in that second, git cannot see.
#
# The index keeps ctimes in whole seconds. Whoever takes the permissions of a file away in the second in which
# it was written leaves an index entry that looks right for ever. So the exact times of such files are noted,
# until one look after that second has found them unchanged.


_SECOND_NS = 1_000_000_000


class FreshFiles:
    """The exact times of files written a moment ago, in memory and in a file for the next process.

    Args:
        root_path: the work tree.
        notes_path: the file, beside the index.
    """

    def __init__(self, root_path: str, notes_path: str) -> None:
        self._prefix = os.fsencode(root_path) + b"/"
        self._notes_path = notes_path
        self._times: dict[bytes, list[int]] | None = None

    def note(self, paths: Iterable[bytes]) -> None:
        """These files have just been written."""
        times = self._load()
        since = time.time_ns() // _SECOND_NS - 1
        for path in paths:
            found = self._facts(path)
            if found and found[1] // _SECOND_NS >= since:
                times[path] = found
        self._save(times)

    def drop(self, paths: Iterable[bytes]) -> None:
        """These files are others now, or gone."""
        times = self._load()
        kept = times.keys() - set(paths)
        if len(kept) < len(times):
            self._save({path: times[path] for path in kept})

    def changed(self) -> list[bytes]:
        """Noted files that are not as they were written; those whose second is over are noted no more."""
        times = self._load()
        if not times:
            return []
        changed = [path for path, noted in times.items() if self._facts(path) != noted]
        until = time.time_ns() // _SECOND_NS - 1
        kept = {path: noted for path, noted in times.items() if noted[1] // _SECOND_NS >= until}
        if len(kept) < len(times):
            self._save(kept)
        return changed

    def _facts(self, path: bytes) -> list[int]:
        try:
            status = os.lstat(self._prefix + path)
        except OSError:
            return []
        return [status.st_ino, status.st_ctime_ns, status.st_mtime_ns]

    def _load(self) -> dict[bytes, list[int]]:
        if self._times is None:
            try:
                with open(self._notes_path, encoding="ascii") as stream:
                    self._times = {os.fsencode(path): noted for path, noted in json.load(stream).items()}
            except (OSError, ValueError, AttributeError):
                self._times = {}
        return self._times

    def _save(self, times: dict[bytes, list[int]]) -> None:
        self._times = times
        if times:
            with open(self._notes_path, "w", encoding="ascii") as stream:
                json.dump({os.fsdecode(path): noted for path, noted in times.items()}, stream)
        else:
            remove(self._notes_path)
