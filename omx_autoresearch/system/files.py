"""Files on disk: walk a folder, describe contents as git does (mode and blob id), remove.

`walk` is the product's only walker: it is bounded, has a fixed order and follows no link. Nothing here opens a pipe, a
socket or a device. A name, a mode and an id describe the content that a reader of the tree would see, and do not depend
on when, how or whether it was committed.
"""

from __future__ import annotations

import os
import stat
from itertools import islice

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import sha1, sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, AnyStr

FILE_LIMIT = 200_000
"""How many files one look may read; more are a fault with a next step, instead of an hour of waiting."""

ENTRY_LIMIT = 2_000_000
"""How many entries one walk may visit; more would take minutes."""

LARGE_FILE_BYTES = 64 * 1024 * 1024
"""From this size on, we describe a file that git does not know by size and times instead of content."""

READ_LIMIT_BYTES = 1024 * 1024 * 1024
"""How much one look reads; beyond it, size and times replace content. An agent can make huge sparse files at no cost,
and a client stops waiting for a hook that reads for minutes and lets the agent go."""

DISPOSABLE_NAMES = frozenset(
    {
        b"__pycache__",
        b".pytest_cache",
        b".mypy_cache",
        b".ruff_cache",
        b".hypothesis",
        b".DS_Store",
    }
)
"""Caches that a validator itself rewrites: if they counted as content, every run would change the tree."""

DEPENDENCY_NAMES = frozenset({b".git", b".hg", b".svn", b"node_modules", b".venv", b".tox", b".nox"})
"""Folders that a walk without git skips as well: a repository would ignore them."""

_LARGE_BYTES = 1024 * 1024
_READ_BYTES = 1 << 20


class Entries(dict[bytes, bytes]):
    """Mode and id by name, relative to the root; ``left_bytes`` is how much may still be read for them."""

    __slots__ = ("left_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self.left_bytes = READ_LIMIT_BYTES


def describe_file(
    path: bytes, status: os.stat_result, entries: Entries, *, algorithm: str = "sha1"
) -> bytes | None:
    """Mode and id of the file at a path; None if there is none (any more).

    The id is git's id of these bytes without any conversion (line ends, LFS).
    """
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        try:
            target = os.readlink(path)
        except OSError:
            return None
        return b"120000 " + _blob_id(target, algorithm)
    if kind == stat.S_IFDIR:
        return None
    if kind != stat.S_IFREG:
        return b"%06o special" % kind
    mode = b"100755 " if status.st_mode & stat.S_IXUSR else b"100644 "
    large = mode + b"large:%d:%d:%d" % (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    if status.st_size >= LARGE_FILE_BYTES or status.st_size > entries.left_bytes:
        return large
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return mode + b"unreadable:%d:%d" % (status.st_size, status.st_ctime_ns)
    try:
        content = _read_whole(descriptor)
        entries.left_bytes -= len(content)
        return large if len(content) > LARGE_FILE_BYTES else mode + _blob_id(content, algorithm)
    except OSError:
        return mode + b"unreadable:%d:%d" % (status.st_size, status.st_ctime_ns)
    finally:
        os.close(descriptor)


def add_below(root: bytes, entries: Entries, *, prefix: bytes = b"", exclude: tuple[bytes, ...] = ()) -> None:
    """Add the files below a folder outside any repository, except caches, dependencies and ``exclude``.

    Args:
        root: the folder.
        entries: takes the files.
        prefix: put before each name, with its slash.
        exclude: names, relative to the root and with the prefix, to leave out with everything below them.

    Raises:
        WorkspaceFault: there are more files than one look can read.
    """
    left_out = DISPOSABLE_NAMES | DEPENDENCY_NAMES

    def is_left_out(name: bytes, child: os.DirEntry[bytes]) -> bool:
        return child.name in left_out or prefix + name in exclude

    def note_unreadable(folder: bytes, _: OSError) -> None:
        entries[prefix + folder] = b"040000 unreadable"

    for name, child in walk(root, is_left_out=is_left_out, on_fault=note_unreadable):
        if child.is_dir(follow_symlinks=False):
            continue
        try:
            status = child.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        add(entries, prefix + name, describe_file(child.path, status, entries))


def walk(
    root: AnyStr,
    *,
    is_left_out: Callable[[AnyStr, os.DirEntry[AnyStr]], bool] | None = None,
    on_fault: Callable[[AnyStr, OSError], None] | None = None,
) -> Iterator[tuple[AnyStr, os.DirEntry[AnyStr]]]:
    """All entries below a folder, with names relative to it; links are not followed.

    The entries of a folder come sorted by name, then those of its first subfolder with everything below it, and so on.

    Args:
        root: the folder.
        is_left_out: tells by name and entry whether to skip an entry with everything below it.
        on_fault: called with a folder that cannot be read (its name with a slash), which is skipped.

    Raises:
        WorkspaceFault: there are more than :data:`ENTRY_LIMIT` entries.
    """
    count = 0
    nothing = root[:0]
    waiting = [nothing]
    while waiting:
        folder = waiting.pop()
        try:
            children = list_folder(os.path.join(root, folder))
        except OSError as fault:
            if on_fault is not None:
                on_fault(folder, fault)
            continue
        count += len(children)
        if count > ENTRY_LIMIT:
            raise WorkspaceFault(
                f"{os.fsdecode(root)} holds more than {ENTRY_LIMIT} files and folders",
                next_step=f"remove generated files below {os.fsdecode(root)}",
            )
        folders = []
        for child in children:
            name = folder + child.name
            if is_left_out is not None and is_left_out(name, child):
                continue
            yield name, child
            if child.is_dir(follow_symlinks=False):
                folders.append(os.path.join(name, nothing))  # with a slash at its end
        waiting += reversed(folders)


def list_folder(path: AnyStr) -> list[os.DirEntry[AnyStr]]:
    """The entries of one folder, sorted by name; it reads at most one more than `walk` allows.

    Raises:
        OSError: it cannot be read.
    """
    with os.scandir(path) as found:
        return sorted(islice(found, ENTRY_LIMIT + 1), key=_name_of)


def names_in_folder(descriptor: int, limit: int) -> list[str]:
    """At most ``limit`` names in an open folder, sorted; which ones is arbitrary if there are more."""
    with os.scandir(descriptor) as found:
        return sorted(entry.name for entry in islice(found, limit))


def kind_of(entry: os.DirEntry[AnyStr]) -> str:
    """``link``, ``folder``, ``file``, or ``special`` for a pipe, socket or device."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "special"


def _name_of(entry: os.DirEntry[AnyStr]) -> AnyStr:
    return entry.name


def first_line(path: str, limit_bytes: int) -> bytes:
    """The first line of a regular file, without its line end; empty for anything else, so no pipe makes us wait."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, limit_bytes).split(b"\n", 1)[0] if is_file else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def add(entries: Entries, name: bytes, described: bytes | None) -> None:
    """Add one file, or nothing if it is gone.

    Raises:
        WorkspaceFault: there are more files than one look can read.
    """
    if described is None:
        return
    entries[name] = described
    if len(entries) > FILE_LIMIT:
        raise WorkspaceFault(
            f"the workspace has more than {FILE_LIMIT} files that git does not ignore",
            next_step="list folders without sources in .gitignore (run `git init` first if there is no repository)",
        )


def digest(entries: Entries) -> str:
    """The sha256 of all names, modes and ids, in a fixed order."""
    lines = [b"%b\t%b\0" % (described, name) for name, described in sorted(entries.items())]
    return sha256(b"".join(lines)).hexdigest()


def _blob_id(content: bytes, algorithm: str) -> bytes:
    opening = b"blob %d\0" % len(content)
    if len(content) > _LARGE_BYTES:
        import hashlib  # worth loading for large files: it is several times as fast

        hashed = hashlib.new(algorithm, opening, usedforsecurity=False)
    else:
        hashed = (sha1 if algorithm == "sha1" else sha256)(opening)  # git's own names for contents
    hashed.update(content)
    return hashed.hexdigest().encode("ascii")


def _read_whole(descriptor: int) -> bytes:
    """A file's content; of an endless file (as in /proc) just more than the limit for large files."""
    chunks, size = [], 0
    while size <= LARGE_FILE_BYTES and (chunk := os.read(descriptor, _READ_BYTES)):
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def remove(path: bytes | str) -> None:
    """Remove a file or a folder with its content; nothing happens if there is none.

    Raises:
        WorkspaceFault: part of it cannot be removed (another owner, a mount point); the message names it.
    """
    raw = os.fsencode(path)
    try:
        if stat.S_ISDIR(os.lstat(raw).st_mode):
            _remove_folder(raw)
        else:
            os.unlink(raw)
    except FileNotFoundError:
        return
    except OSError as fault:
        where = os.fsdecode(fault.filename or raw)
        raise WorkspaceFault(
            f"{where} cannot be removed: {fault.strerror}", next_step=f"sudo rm -rf -- {where}"
        ) from fault


def _remove_folder(path: bytes) -> None:
    import shutil  # a hook removes nothing

    shutil.rmtree(path, onerror=_again_with_permission)


def _again_with_permission(act: Callable[..., Any], path: Any, info: Any) -> None:
    """Restore the owner's permissions of a folder, and go on."""
    error = info[1]
    if isinstance(error, FileNotFoundError):
        return
    if not isinstance(error, PermissionError):
        raise error
    raw = os.fsencode(path)
    folder = raw if stat.S_ISDIR(os.lstat(raw).st_mode) else os.path.dirname(raw)
    mode = stat.S_IMODE(os.lstat(folder).st_mode)
    if mode & stat.S_IRWXU == stat.S_IRWXU:
        raise error
    os.chmod(folder, mode | stat.S_IRWXU)
    if act in (os.unlink, os.rmdir):
        act(raw)
    else:
        _remove_folder(raw)
