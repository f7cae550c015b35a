"""Files inside a workspace, reached without ever leaving it.

A path is walked one folder at a time and no symbolic link is followed on the way, so that neither a swapped folder nor
a link can lead a reader or writer elsewhere. Nothing here waits for a pipe or reads a device.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK_BYTES = 1024 * 1024
_LEAST_CHUNK_BYTES = 4096
PATH_LIMIT = 1024
_LINK_DEPTH = 16
_IGNORED_SIGNAL = 23
"""SIGURG on Linux, the only system with leases."""
FILE_LIMIT_BYTES = 256 * 1024 * 1024
"""A larger file is refused: what judges or is judged is read whole at every run."""
SCRIPT_LIMIT_BYTES = 256 * 1024
"""A larger file is data, not a script that names further files."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def path_faults(path: str) -> list[str]:
    """Why ``path`` cannot name a file inside a workspace, by its text alone; empty when it can."""
    shown = repr(path[:80]) + ("..." if len(path) > 80 else "")
    if not path.strip():
        return ["the path is empty"]
    if len(path.encode("utf-8", "surrogatepass")) > PATH_LIMIT:
        return [f"{shown} has {len(path)} characters; at most {PATH_LIMIT} bytes are taken"]
    if any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in path):
        return [f"{shown} holds a control character; a path is one printable line"]
    if path.startswith(("/", "~")):
        return [f"{shown} is absolute; a path relative to the workspace is needed"]
    parts = path.split("/")
    if ".." in parts:
        return [f"{shown} leaves the workspace with `..`; a path inside it is needed"]
    if parts[-1] in ("", "."):
        return [f"{shown} names a folder; a file is needed"]
    return ["a path under .git is not taken"] if ".git" in parts else []


def open_folder(root_path: str, path: str = "", *, make: bool = False) -> int:
    """Open a folder inside ``root_path`` and return its descriptor; ``make`` creates missing ones on the way.

    Raises:
        FileNotFoundError: it, or a folder on the way, does not exist.
        WorkspaceFault: a component is a symbolic link or no folder, or the root cannot be opened.
        OSError: the system refused otherwise.
    """
    try:
        descriptor = os.open(root_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceFault(
            f"the workspace {root_path} cannot be opened: {error.strerror}", next_step=f"ls -ld {root_path}"
        ) from error
    for name in path.split("/") if path else ():
        if name in ("", "."):
            continue
        parent = descriptor
        try:
            descriptor = open_below(parent, name, make=make)
        except WorkspaceFault as error:
            raise WorkspaceFault(
                f"{path}: {error.message}", next_step=f"ls -l {os.path.join(root_path, path)}"
            ) from error
        finally:
            os.close(parent)
    return descriptor


def open_below(parent: int, name: str, *, make: bool = False) -> int:
    """Open a folder in an open one and return its descriptor; ``make`` creates it where it is missing.

    Raises:
        FileNotFoundError: it does not exist.
        WorkspaceFault: it is a symbolic link or no folder.
        OSError: the system refused otherwise.
    """
    try:
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        make_folder(parent, name)
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise WorkspaceFault(
                f"{name} is a symbolic link or no folder; paths in a workspace are followed through real folders only"
            ) from error
        raise


def make_folder(parent: int, name: str) -> None:
    """Make a folder in an open one; one that exists is left as it is."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return


def open_inside(root_path: str, path: str) -> int:
    """Open a regular file of a workspace for reading and return its descriptor.

    Raises:
        FileNotFoundError: nothing stands there.
        WorkspaceFault: the path is not one inside the workspace, goes through a link, or leads to no regular file;
            the message names path and rule.
        OSError: the system refused otherwise.
    """
    if faults := path_faults(path):
        raise WorkspaceFault(faults[0], next_step="name a file inside the workspace")
    folder_path, _, name = path.rpartition("/")
    folder = open_folder(root_path, folder_path)
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            what = "a symbolic link" if error.errno == errno.ELOOP else "a pipe or socket"
            raise _not_regular(root_path, path, what) from error
        raise
    finally:
        os.close(folder)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _not_regular(root_path, path, _WORDS.get(stat.S_IFMT(mode), "a special file"))
    return descriptor


_WORDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def _not_regular(root_path: str, path: str, what: str) -> WorkspaceFault:
    return WorkspaceFault(
        f"{path} is {what}; a regular file inside the workspace is needed",
        next_step=f"ls -ld {os.path.join(root_path, path)}",
    )


def read_chunks(descriptor: int, limit_bytes: int = FILE_LIMIT_BYTES) -> Iterator[bytes]:
    """Yield the content of an open file.

    Raises:
        WorkspaceFault: it is larger than ``limit_bytes``, or grows beyond while it is read.
    """
    position = 0
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes > limit_bytes:  # a sparse file costs nothing to make, and minutes to read
        raise _too_large(limit_bytes)
    # A buffer of a whole chunk costs more than the reading of a small file.
    chunk_bytes = min(CHUNK_BYTES, max(size_bytes + 1, _LEAST_CHUNK_BYTES))
    while chunk := os.pread(descriptor, chunk_bytes, position):
        position += len(chunk)
        if position > limit_bytes:
            raise _too_large(limit_bytes)
        yield chunk


def is_open_for_writing(descriptor: int) -> bool:
    """True when a process can write this file by a descriptor or a mapping that it opened before now.

    A mapping that has been written to once changes the file without moving its times. Linux grants a read lease only
    where there is no writer, a mapping included. False where the system or the file system cannot tell.
    """
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        # A writer that comes just now is told of by a signal: by one that a process ignores by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, _IGNORED_SIGNAL)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False


def _too_large(limit_bytes: int) -> WorkspaceFault:
    return WorkspaceFault(
        f"a file is larger than {limit_bytes} bytes", next_step="name or protect a smaller one"
    )


def script_text(root_path: str, path: str, *, errors: str = "strict") -> str:
    """A script's text; empty where it cannot be read, is larger than `SCRIPT_LIMIT_BYTES`, or is not UTF-8.

    Args:
        root_path: of the workspace.
        path: within it.
        errors: as of ``bytes.decode``; ``replace`` for whoever can do with a text in another encoding.
    """
    try:
        descriptor = open_inside(root_path, path)
    except (OSError, WorkspaceFault):
        return ""
    try:
        return b"".join(read_chunks(descriptor, SCRIPT_LIMIT_BYTES)).decode("utf-8", errors)
    except (UnicodeDecodeError, WorkspaceFault, OSError):
        return ""
    finally:
        os.close(descriptor)


def digest_inside(root_path: str, path: str, *, limit_bytes: int = FILE_LIMIT_BYTES) -> str:
    """Return the sha256 of a regular, non-empty file of the workspace, for an artifact under review.

    Raises:
        FileNotFoundError: nothing stands there.
        WorkspaceFault: as :func:`open_inside`; also an empty or too large file.
        OSError: the system refused otherwise.
    """
    import hashlib

    descriptor = open_inside(root_path, path)
    try:
        digest, size_bytes = hashlib.sha256(), 0
        for chunk in read_chunks(descriptor, limit_bytes):
            digest.update(chunk)
            size_bytes += len(chunk)
    finally:
        os.close(descriptor)
    if not size_bytes:
        raise WorkspaceFault(f"{path} is empty", next_step=f"write {path}")
    return digest.hexdigest()


# --- following a word to the file that it means


@dataclass(frozen=True, slots=True)
class Place:
    """Where a word really leads.

    Attributes:
        path: of a regular file of the workspace, free of links; empty for none.
        links: symbolic links of the workspace that were passed on the way.
        leaves: it leads outside.
    """

    path: str
    links: tuple[str, ...]
    leaves: bool


def resolve(workspace_path: str, word: str, folder: str = "") -> Place:
    """Follow a word to a regular file of the workspace, noting every symbolic link that is passed."""
    nowhere = Place("", (), leaves=False)
    path = _relative(workspace_path, word, folder)
    if path is None or path_faults(path):
        return nowhere
    links: list[str] = []
    for _ in range(_LINK_DEPTH):
        link = first_link(workspace_path, path)
        if not link:
            break
        links.append(link)
        target = os.readlink(os.path.join(workspace_path, link))
        rest = path[len(link) :]
        followed = _relative(workspace_path, target + rest, os.path.dirname(link))
        if followed is None:
            return Place("", tuple(links), leaves=True)
        path = followed
    try:
        is_file = stat.S_ISREG(os.stat(os.path.join(workspace_path, path), follow_symlinks=False).st_mode)
    except (OSError, ValueError):
        is_file = False
    return Place(path, tuple(links), leaves=False) if is_file else nowhere


def _relative(workspace_path: str, word: str, folder: str) -> str | None:
    """A word as a normal path from the workspace's root; None where it leaves the workspace."""
    root = os.path.normpath(workspace_path)
    for prefix in ("$PWD/", "${PWD}/", "$(pwd)/"):
        word = word.removeprefix(prefix)
    joined = os.path.normpath(os.path.join(root, folder, word))
    if joined != root and not joined.startswith(root + os.sep):
        real_root = os.path.realpath(root)
        if not joined.startswith(real_root + os.sep):
            return None
        root = real_root
    return os.path.relpath(joined, root)


def first_link(workspace_path: str, path: str) -> str:
    """Return the first component of a path that is a symbolic link; empty where none is."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        part = "/".join(parts[:count])
        if os.path.islink(os.path.join(workspace_path, part)):
            return part
    return ""
