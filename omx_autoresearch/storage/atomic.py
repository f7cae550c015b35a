"""Files that are either old or new, never half: atomic replacement, bounded reads, strict JSON, locks."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
import time

from omx_autoresearch.errors import StateUntrusted, StorageFailed
from omx_autoresearch.storage import strictjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

JSON_LIMIT_BYTES = 64 * 1024 * 1024
LOCK_WAIT_SECONDS = 10.0

_serials = itertools.count()


def replace_file(path: str, data: bytes, *, mode: int = 0o600, is_durable: bool = True) -> None:
    """Give ``path`` the content ``data``, durably unless it can be derived again (``is_durable=False``).

    After a crash at any instant it holds the old content or the new one, whole. A symbolic link at ``path`` is
    replaced, not followed: what an agent may write must not choose where we write.

    Raises:
        StorageFailed: the system refused; the old content is intact and no temporary file remains.
    """
    folder_path = os.path.dirname(path) or "."
    temporary_path = os.path.join(folder_path, _temporary_name())
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


def _temporary_name() -> str:
    # Hidden, so that no listing of records takes it for one; unique in this process, on this host and after
    # a restart.
    return f".{os.getpid()}-{next(_serials)}-{os.urandom(4).hex()}.tmp"


def names_in(folder_path: str) -> list[str]:
    """What a folder of ours holds, unsorted; nothing where it does not exist.

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

    One whose process still lives stays; so does everything that :func:`replace_file` did not name.
    """
    try:
        found = [name for name in os.listdir(folder_path) if _is_abandoned(name)]
    except OSError:
        return ()
    for name in found:
        _remove_quietly(os.path.join(folder_path, name))
    return tuple(sorted(found))


def _is_abandoned(name: str) -> bool:
    parts = name[1:].removesuffix(".tmp").split("-")
    if name[:1] != "." or not name.endswith(".tmp") or len(parts) != 3 or not parts[0].isdecimal():
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
            # another process made it; where it is gone again, somebody emptied it, and the caller finds it missing
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


def read_bounded(path: str, limit_bytes: int) -> bytes:
    """Return the content of a regular file of at most ``limit_bytes``.

    Never waits: a pipe or device in the file's place is an error, not a hang.

    Raises:
        FileNotFoundError: nothing stands there; absence is for the caller to judge.
        StateUntrusted: it is larger, or no regular file.
        StorageFailed: the system refused the read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StateUntrusted(f"{path} is not a regular file.", next_step=f"ls -ld {path}")
            data = read_at(descriptor, 0, limit_bytes + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
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
        StateUntrusted: the file cannot be believed; the message names the file and the cause (duplicate key,
            UTF-16, line and column of the fault). The file is left untouched and is read anew at the next
            call.
        StorageFailed: the system refused the read.
    """
    data = read_bounded(path, limit_bytes)
    try:
        return strictjson.decode_document(data)
    except ValueError as error:
        raise StateUntrusted(
            f"{path} cannot be believed: {error}.", next_step=f"mend or remove {path}, then try again"
        ) from None


class Lock:
    """An exclusive lock on a file of its own, for the length of a ``with``; see :func:`lock`."""

    __slots__ = ("_descriptor", "_path", "_wait_seconds")

    def __init__(self, path: str, wait_seconds: float) -> None:
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)  # closing the only descriptor lets the lock go

    def _try(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever removed the file meanwhile left us a lock that excludes nobody.
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


def lock(path: str, *, wait_seconds: float = LOCK_WAIT_SECONDS) -> Lock:
    """Return a context manager that holds ``path`` against every other process and thread.

    The system lets the lock go when the holder dies, however it dies; a child that is executed does not
    inherit it.

    Raises:
        StorageFailed: on entry: the lock could not be had within ``wait_seconds`` (the holder's pid is named
            where the system tells it), or the lock file could not be made.
    """
    return Lock(path, wait_seconds)


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
    """Return the error for a person: what could not be done, where, why, and what mends it."""
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
        cure = f"give yourself the permission (ls -ld {folder_path}), then run the same command again"
    elif number == errno.EIO:
        cure = "look at the disk (dmesg), then run the same command again"
    else:
        cure = "omx-autoresearch doctor"
    reason = os.strerror(number) if number else str(error)
    return StorageFailed(f"Could not {act} {path}: {reason} ({name}).", next_step=cure)
