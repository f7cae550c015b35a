"""Files that are either old or new, never half: atomic replacement, bounded reads, strict JSON, locks."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
import time

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import StateUntrusted, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

JSON_LIMIT_BYTES = 64 * 1024 * 1024
LOCK_WAIT_SECONDS = 10.0

_serials = itertools.count()


def replace_file(
    path: str, data: bytes, *, mode: int = 0o600, is_durable: bool = True, temporary_in: str = ""
) -> None:
    """Give ``path`` the content ``data``, durably unless it can be derived again (``is_durable=False``).

    After a crash at any instant it holds the old content or the new one, whole. A symbolic link at ``path`` is
    replaced, not followed: what an agent may write must not choose where we write. A killed writer leaves a temporary
    file, in another folder of the same disk if ``temporary_in`` names one.

    Raises:
        StorageFailed: the system refused; the old content is intact and no temporary file remains.
    """
    folder_path = os.path.dirname(path) or "."
    temporary_path = os.path.join(temporary_in or folder_path, temporary_name())
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary_path, flags, mode)
        try:
            try:
                write_all(descriptor, data)
                if is_durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary_path, path)
        except BaseException:
            _remove_quietly(temporary_path)
            raise
        if is_durable:
            sync_folder(folder_path)
    except OSError as error:
        raise storage_failed("write", path, error) from error


def require_writable(folder_path: str) -> None:
    """Make a file in a folder and remove it: a sandbox may forbid what the mode of the folder allows.

    Raises:
        StorageFailed: nothing can be written there.
    """
    path = os.path.join(folder_path, temporary_name())
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.unlink(path)
    except OSError as error:
        raise storage_failed("write in", folder_path, error) from error


def temporary_name() -> str:
    """A name that :func:`sweep_temporary` knows: hidden, so that no listing of records takes it for one.

    Unique in this process, on this host and after a restart.
    """
    return f".{os.getpid()}-{next(_serials)}-{os.urandom(4).hex()}.tmp"


def names_in(folder_path: str) -> list[str]:
    """The names in one of our folders, unsorted; none where it does not exist.

    Raises:
        StorageFailed: it cannot be read.
    """
    try:
        return os.listdir(folder_path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_failed("read", folder_path, error) from error


def is_there(path: str) -> bool:
    """True when a file exists.

    Raises:
        StorageFailed: its folder cannot be read; absence is not proven.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise storage_failed("read", path, error) from error
    return True


def sweep_temporary(folder_path: str) -> tuple[str, ...]:
    """Remove the temporary files that killed writers left in a folder; returns their names.

    One whose process still lives stays; so does everything that no writer of ours named.
    """
    try:
        found = [name for name in os.listdir(folder_path) if is_abandoned(name)]
    except OSError:
        return ()
    for name in found:
        _remove_quietly(os.path.join(folder_path, name))
    return tuple(sorted(found))


def is_abandoned(name: str) -> bool:
    """True for the name of a temporary file of ours (``.PID-....tmp``) whose process is gone."""
    parts = name[1:].removesuffix(".tmp").split("-")
    if name[:1] != "." or not name.endswith(".tmp") or len(parts) < 2 or not parts[0].isdecimal():
        return False
    try:
        os.kill(int(parts[0]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``: one call, more only where the system took less."""
    written = os.write(descriptor, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder_path: str) -> None:
    """Make names that were created, renamed or removed in a folder survive a power cut."""
    descriptor = os.open(folder_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)


def ensure_folder(path: str, *, mode: int = 0o700) -> None:
    """Make a folder and its missing parents, durably; an existing one is left as it is.

    Raises:
        StorageFailed: the system refused, or something that is no folder stands there.
    """
    try:
        if os.path.isdir(path):
            return
        parent_path = os.path.dirname(path)
        if parent_path != path:
            ensure_folder(parent_path, mode=mode)
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            # another process made it; where it is gone again, it was emptied, and the caller finds it missing
            if os.path.lexists(path) and not os.path.isdir(path):
                raise
            return
        sync_folder(parent_path)
    except OSError as error:
        raise storage_failed("make the folder", path, error) from error


def _remove_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open one of our files and return its descriptor, without ever waiting.

    Raises:
        OSError: the system refused; ENXIO for a pipe, a device or a folder in the file's place.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.ENXIO, "not a regular file", path)


def read_bounded(path: str, limit_bytes: int) -> bytes:
    """Return the content of a regular file of at most ``limit_bytes``.

    Never waits: a pipe or device in the file's place is an error, not a hang.

    Raises:
        FileNotFoundError: nothing stands there; absence is for the caller to judge.
        StateUntrusted: it is larger, or no regular file.
        StorageFailed: the system refused the read.
    """
    try:
        descriptor = open_regular(path)
        try:
            size = min(os.fstat(descriptor).st_size, limit_bytes)
            data = read_at(descriptor, 0, size + 1)
            if size < len(data) <= limit_bytes:  # it has grown since
                data += read_at(descriptor, len(data), limit_bytes + 1 - len(data))
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise StateUntrusted(f"{path} is not a regular file.", next_step=f"ls -ld {path}") from None
        raise storage_failed("read", path, error) from error
    if len(data) > limit_bytes:
        raise StateUntrusted(f"{path} is larger than {limit_bytes} bytes.", next_step=f"ls -l {path}")
    return data


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return ``length`` bytes from ``offset``, fewer only at the end of the file."""
    data = os.pread(descriptor, length, offset)
    if len(data) == length or not data:
        return data
    parts, have = [data], len(data)
    while have < length and (data := os.pread(descriptor, length - have, offset + have)):
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def load_json(path: str, *, limit_bytes: int = JSON_LIMIT_BYTES) -> Any:
    """Parse a JSON file strictly; nothing is guessed from a file that is empty, cut, or says a thing twice.

    Raises:
        FileNotFoundError: nothing stands there.
        StateUntrusted: the file cannot be trusted; the message names the file and the cause (duplicate key,
            UTF-16, line and column of the fault). The file is left untouched and is read anew at the next
            call.
        StorageFailed: the system refused the read.
    """
    data = read_bounded(path, limit_bytes)
    try:
        return json_codec.decode_document(data)
    except ValueError as error:
        raise StateUntrusted(
            f"{path} cannot be trusted: {error}.", next_step=f"fix or remove {path}, then try again"
        ) from None


class Lock:
    """An exclusive lock on a file of its own, against every process and thread, for the length of a ``with``.

    The system lets the lock go when the holder dies, however it dies; a child that is executed does not inherit it.
    Entering raises StorageFailed where the lock is not free within ``wait_seconds`` (the message names the holder's
    pid where the system tells it), or where the file cannot be made.
    """

    __slots__ = ("_descriptor", "_path", "_wait_seconds")

    def __init__(self, path: str, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self._path = path
        self._wait_seconds = wait_seconds
        self._descriptor = -1

    def __enter__(self) -> Lock:
        try:
            if not self._try():
                self._wait()
        except OSError as error:
            raise storage_failed("lock", self._path, error) from error
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + self._wait_seconds
        pause_seconds = 0.0005
        while not self._try():
            if time.monotonic() >= deadline:
                raise self._busy()
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, 0.01)

    def __exit__(self, *_: object) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)  # closing the only descriptor lets the lock go

    def _try(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A process that removed the file meanwhile left us a lock that excludes no one else.
            if os.fstat(descriptor).st_nlink > 0:
                self._descriptor = descriptor
                return True
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return False

    def _busy(self) -> StorageFailed:
        holder = _holder(self._path)
        who = f"process {holder}" if holder else "another process"
        return StorageFailed(
            f"{self._path} is held by {who}; waited {self._wait_seconds:g} s (EWOULDBLOCK).",
            next_step=f"ps -fp {holder}" if holder else "run the same command again",
        )


def _holder(path: str) -> int:
    """The pid that holds the lock, 0 where it is unknown; Linux lists all locks in /proc/locks."""
    try:
        inode = os.stat(path).st_ino
        with open("/proc/locks", encoding="ascii") as lines:
            for line in lines:
                words = line.split()
                if words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode):
                    return max(int(words[4]), 0)
    except (OSError, ValueError, IndexError):
        return 0
    return 0


def storage_failed(act: str, path: str, error: OSError) -> StorageFailed:
    """The error for a failed system call: the act, the path, the reason, and the cure."""
    number = error.errno or 0
    name = errno.errorcode.get(number, str(number))
    folder_path = os.path.dirname(path) or "."
    if number in (errno.ENOSPC, errno.EDQUOT):
        cure = f"free space on the disk of {folder_path} (df {folder_path}), then run the same command again"
    elif number == errno.EFBIG:
        cure = "raise the limit on file sizes (ulimit -f), then run the same command again"
    elif number == errno.EROFS:
        cure = f"make {folder_path} writable, or set OMX_AUTORESEARCH_HOME to a folder that is"
    elif number in (errno.EACCES, errno.EPERM):
        cure = f"give yourself permission (ls -ld {folder_path}), then run the same command again"
    elif number == errno.EIO:
        cure = "check the disk (dmesg), then run the same command again"
    elif number == errno.ENXIO:
        cure = f"remove it, it is no file of ours (ls -ld {path}), then run the same command again"
    else:
        cure = "omx-autoresearch doctor"
    reason = os.strerror(number) if number else str(error)
    if number == errno.ENXIO:
        reason = "not a regular file"
    return StorageFailed(f"Could not {act} {path}: {reason} ({name}).", next_step=cure)


def disk_refused(error: BaseException) -> StorageFailed | None:
    """The error for a disk that takes no more, which is no fault of ours wherever it is met; None for any other."""
    if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
        return None
    return storage_failed("write", str(error.filename or "a file"), error)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


# --- Files inside a workspace, reached without ever leaving it.
#
# A path is walked one folder at a time and no symbolic link is followed on the way, so that neither a swapped folder
# nor a link can lead a reader or writer elsewhere. Nothing here waits for a pipe or reads a device.

CHUNK_BYTES = 1024 * 1024
_LEAST_CHUNK_BYTES = 4096
PATH_LIMIT = 1024
_LINK_DEPTH = 16
_IGNORED_SIGNAL = 23
"""SIGURG on Linux, the only system with leases."""
FILE_LIMIT_BYTES = 256 * 1024 * 1024
"""A larger file is refused: pinned files and artifacts are read whole at every run."""
SCRIPT_LIMIT_BYTES = 256 * 1024
"""A larger file is data, not a script that names further files."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def path_faults(path: str) -> list[str]:
    """The reasons why ``path`` cannot name a file inside a workspace, by its text alone; none where it can."""
    shown = repr(path[:80]) + ("..." if len(path) > 80 else "")
    if not path.strip():
        return ["the path is empty"]
    if len(path.encode("utf-8", "surrogatepass")) > PATH_LIMIT:
        return [f"{shown} has {len(path)} characters; at most {PATH_LIMIT} bytes are allowed"]
    if any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in path):
        return [f"{shown} holds a control character; a path must be one printable line"]
    if path.startswith(("/", "~")):
        return [f"{shown} is absolute; it must be relative to the workspace"]
    parts = path.split("/")
    if ".." in parts:
        return [f"{shown} leaves the workspace with `..`; it must stay inside"]
    if parts[-1] in ("", "."):
        return [f"{shown} names a folder; it must name a file"]
    return ["a path under .git is not allowed"] if ".git" in parts else []


def open_folder(root_path: str, path: str = "", *, make: bool = False) -> int:
    """Open a folder inside ``root_path`` and return its descriptor; ``make`` creates missing ones on the way.

    Raises:
        FileNotFoundError: it, or a folder on the way, does not exist.
        WorkspaceFault: a component is a symbolic link or not a folder, or the root cannot be opened.
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
        WorkspaceFault: it is a symbolic link or not a folder.
        OSError: the system refused otherwise.
    """
    try:
        try:
            return os.open(name, _FOLDER, dir_fd=parent)
        except FileNotFoundError:
            if not make:
                raise
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
        except FileExistsError:
            pass
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise WorkspaceFault(
                f"{name} is a symbolic link or not a folder; workspace paths must go through real folders"
            ) from error
        raise


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
        f"{path} is {what}, not a regular file inside the workspace",
        next_step=f"ls -ld {os.path.join(root_path, path)}",
    )


def read_inside(root_path: str, path: str, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
    """Return the content of a regular file of a workspace. Raises what `open_inside` and `read_chunks` do."""
    descriptor = open_inside(root_path, path)
    try:
        return b"".join(read_chunks(descriptor, limit_bytes))
    finally:
        os.close(descriptor)


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
        f"a file is larger than {limit_bytes} bytes", next_step="name or protect a smaller file"
    )


def script_text(root_path: str, path: str, *, errors: str = "strict") -> str:
    """A script's text; empty where it cannot be read, is larger than `SCRIPT_LIMIT_BYTES`, or is not UTF-8.

    Args:
        root_path: of the workspace.
        path: within it.
        errors: as of ``bytes.decode``; ``replace`` for a caller that can do with a text in another encoding.
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
    """The file to which a word leads.

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
