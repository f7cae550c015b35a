"""A folder under a project's ``.omx``, worked on by its descriptor.

An agent may write there, and the runtime stands outside its sandbox: no symbolic link is followed on the way or at the
end, no pipe is waited for, and a file with a second name elsewhere is neither read nor written.
"""

from __future__ import annotations

import errno
import os
import stat

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.journal.safe_files import is_abandoned, open_below, open_folder, read_at, write_all
from omx_autoresearch.system.files import names_in_folder

IGNORE_ALL = b"*\n"
"""``.omx/.gitignore``: ignores everything, itself too."""
LIST_LIMIT = 2_000
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NOT_PLAIN = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR, errno.ENOTDIR, errno.EOPNOTSUPP)
"""What the system says of a link, a pipe, a folder or a socket, by system and flags."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TEMPORARY_SUFFIX = ".tmp"

Stamp = tuple[int, int, int]
"""Inode, size in bytes and modification time in nanoseconds of a file."""


class OmxFolder:
    """An open folder under ``.omx``; close it, or use it in a ``with``.

    Args:
        project_path: the project's root.
        path: of the folder, relative to the project, ``.omx`` first.
        make: create what is missing on the way; a new ``.omx`` gets its ignore rule.

    Raises:
        FileNotFoundError: it is not there.
        WorkspaceFault: a component is a symbolic link or not a folder.
        OSError: the system refused otherwise.
    """

    __slots__ = ("descriptor", "path")

    def __init__(self, project_path: str, path: str, *, make: bool = False) -> None:
        self.path = os.path.join(project_path, path)
        try:
            self.descriptor = open_folder(project_path, path)
        except FileNotFoundError:
            if not make:
                raise
            is_new = not os.path.lexists(os.path.join(project_path, ".omx"))
            self.descriptor = open_folder(project_path, path, make=True)
            if is_new:
                with OmxFolder(project_path, ".omx") as omx:
                    omx.replace(".gitignore", IGNORE_ALL)

    def below(self, name: str, *, make: bool = False) -> OmxFolder:
        """Open a folder in this one; raises as the class does."""
        found = object.__new__(OmxFolder)
        found.path = os.path.join(self.path, name)
        found.descriptor = open_below(self.descriptor, name, make=make)
        return found

    def __enter__(self) -> OmxFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)

    def names(self) -> list[str]:
        """Names in the folder, sorted, hidden ones left out; at most :data:`LIST_LIMIT` are looked at."""
        names = names_in_folder(self.descriptor, LIST_LIMIT)
        return [name for name in names if not name.startswith(".")]

    def exists(self, name: str) -> bool:
        """True when anything stands under this name, a dangling link too."""
        try:
            os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of what stands there; None when nothing does. Anything but a plain file never equals one."""
        try:
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return _stamp_of(status) if _is_plain(status) else (0, 0, 0)

    def open_plain(self, name: str, flags: int = _READ) -> int:
        """Open a regular file with one name.

        Raises:
            FileNotFoundError: nothing stands there.
            WorkspaceFault: it is something else, or may not be opened; says which.
            OSError: the system could not open it now (no free descriptor, a bad disk).
        """
        try:
            descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NOT_PLAIN:
                raise self._not_plain(name) from error
            if error.errno not in _REFUSED:
                raise
            path = os.path.join(self.path, name)
            raise WorkspaceFault(f"{path}: {error.strerror}", next_step=f"ls -l {path}") from error
        if not _is_plain(os.fstat(descriptor)):
            os.close(descriptor)
            raise self._not_plain(name)
        return descriptor

    def _not_plain(self, name: str) -> WorkspaceFault:
        path = os.path.join(self.path, name)
        return WorkspaceFault(f"{path} is not a regular file of its own", next_step=f"ls -l {path}")

    def read(self, name: str, limit_bytes: int) -> bytes:
        """At most ``limit_bytes`` from the beginning of a plain file; raises as :meth:`open_plain`."""
        descriptor = self.open_plain(name)
        try:
            return read_at(descriptor, 0, limit_bytes)
        finally:
            os.close(descriptor)

    def append(self, name: str, data: bytes, *, expected: Stamp | None = None) -> Stamp | None:
        """Append to a plain file that still has its ``expected`` stamp; returns the new one, None when it has not."""
        descriptor = self.open_plain(name, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
        try:
            if expected is not None and _stamp_of(os.fstat(descriptor)) != expected:
                return None
            write_all(descriptor, data)
            return _stamp_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def write_new(self) -> tuple[int, str]:
        """Create a hidden temporary file; returns its descriptor and name. Finish with :meth:`put` or :meth:`drop`."""
        name = f".{os.getpid()}-{os.urandom(6).hex()}{_TEMPORARY_SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, 0o644, dir_fd=self.descriptor), name

    def prepare(self, data: bytes) -> tuple[str, Stamp]:
        """Write a temporary file; returns its name and the stamp that it keeps when it is put in place."""
        descriptor, temporary = self.write_new()
        try:
            write_all(descriptor, data)
            return temporary, _stamp_of(os.fstat(descriptor))
        except BaseException:
            self.drop(temporary)
            raise
        finally:
            os.close(descriptor)

    def put(self, temporary: str, name: str) -> None:
        """Give a temporary file its name; what stood there is replaced, a link not followed."""
        os.rename(temporary, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def replace(self, name: str, data: bytes) -> Stamp:
        """Give ``name`` the content ``data``, whole or not at all."""
        temporary, stamp = self.prepare(data)
        try:
            self.put(temporary, name)
        except BaseException:
            self.drop(temporary)
            raise
        return stamp

    def move(self, name: str, target: OmxFolder, new_name: str) -> None:
        """Move whatever stands under a name to another folder."""
        os.rename(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)

    def drop(self, name: str) -> None:
        """Remove a file; nothing happens when it is not there, or is a folder."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except OSError:
            return

    def sweep(self) -> None:
        """Remove temporary files that killed processes left."""
        for name in names_in_folder(self.descriptor, LIST_LIMIT):
            if is_abandoned(name):
                self.drop(name)


def _is_plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns
