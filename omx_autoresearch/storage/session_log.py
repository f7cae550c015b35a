"""``.auto/`` in a workspace: the log of the older session tools, appended durably, and the scripts beside it.

The folder is the agent's own. So nothing here follows a symbolic link, waits for a pipe, or writes anything else than
``log.jsonl`` and a script that is missing; whole outputs and the note of who runs stand in the state home.
"""

from __future__ import annotations

import errno
import os
import stat

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.session_tools import read_log
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.storage import strictjson
from omx_autoresearch.storage.atomic import Lock, ensure_folder, lock, storage_failed, write_all
from omx_autoresearch.storage.inside import open_folder, open_inside, read_chunks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from omx_autoresearch.core.session_tools import SessionLog
    from omx_autoresearch.storage.layout import StateHome

AUTO = ".auto"
LOG, MEASURE, CHECKS = "log.jsonl", "measure.sh", "checks.sh"
LOG_LIMIT_BYTES = 64 * 1024 * 1024
LINE_LIMIT_BYTES = 1024 * 1024
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Where one workspace's session stands: ``.auto/`` in it, and a folder of its own in the state home."""

    workspace_path: str
    own_path: str

    @property
    def lock_path(self) -> str:
        """``session.lock``: held while the log is read and appended to, never while a command runs."""
        return os.path.join(self.own_path, "session.lock")

    @property
    def running_path(self) -> str:
        """``running.json``: the run under way."""
        return os.path.join(self.own_path, "running.json")

    def output_path(self, run: int, script: str) -> str:
        """The whole output of a run's script."""
        return os.path.join(self.own_path, "outputs", f"run-{run:04d}-{script.removesuffix('.sh')}.txt")

    def locked(self) -> Lock:
        """The lock of this session.

        Raises:
            StorageFailed: on entry, where it cannot be had.
        """
        ensure_folder(os.path.join(self.own_path, "outputs"))
        return lock(self.lock_path)


def session_folder(home: StateHome, workspace_path: str) -> SessionFolder:
    """The session of a workspace; its folder in the state home is named by a digest of the workspace's real path."""
    real_path = os.path.realpath(workspace_path)
    name = sha256(os.fsencode(real_path)).hexdigest()[:32]
    return SessionFolder(real_path, os.path.join(home.root_path, "session-tools", name))


def load_log(folder: SessionFolder) -> SessionLog:
    """The log as it stands; an empty one where there is none. Lines that cannot be read are among its faults.

    Raises:
        WorkspaceFault: a link, a pipe or anything else stands in the way, or the log is too large.
        StorageFailed: the system refused.
    """
    path = f"{AUTO}/{LOG}"
    try:
        descriptor = open_inside(folder.workspace_path, path)
    except FileNotFoundError:
        return read_log(())
    except OSError as error:
        raise storage_failed("read", path, error) from error
    try:
        data = b"".join(read_chunks(descriptor, LOG_LIMIT_BYTES))
    finally:
        os.close(descriptor)
    return read_log(_decoded(data))


def append_line(folder: SessionFolder, value: dict[str, Any]) -> None:
    """Append one line durably. What a killed writer left without its end gets a line of its own, and stays.

    Raises:
        WorkspaceFault: a link, a pipe or anything else stands in the way.
        StorageFailed: the system refused.
        StateUntrusted: the line is too long.
    """
    data = strictjson.encode(value) + b"\n"
    if len(data) > LINE_LIMIT_BYTES:
        raise StateUntrusted(
            f"a line of {len(data)} bytes is too long for {AUTO}/{LOG}", next_step="say it shorter"
        )
    try:
        parent = open_folder(folder.workspace_path, AUTO, make=True)
        try:
            descriptor = _open_log(folder, parent)
            try:
                size_bytes = os.fstat(descriptor).st_size
                is_torn = size_bytes > 0 and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
                write_all(descriptor, b"\n" + data if is_torn else data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise storage_failed("append to", os.path.join(folder.workspace_path, AUTO, LOG), error) from error


def has_script(folder: SessionFolder, name: str) -> bool:
    """Whether a regular file of this name stands in ``.auto/``.

    Raises:
        WorkspaceFault: something else stands there.
    """
    try:
        os.close(open_inside(folder.workspace_path, f"{AUTO}/{name}"))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise storage_failed("read", f"{AUTO}/{name}", error) from error
    return True


def script_argv(folder: SessionFolder, name: str) -> tuple[str, ...]:
    """The command that runs a script of ``.auto/`` from the workspace: itself where it can run, else by ``bash``.

    Raises:
        FileNotFoundError: there is none.
        WorkspaceFault: it is no regular file.
    """
    descriptor = open_inside(folder.workspace_path, f"{AUTO}/{name}")
    try:
        is_program = os.fstat(descriptor).st_mode & stat.S_IXUSR and os.pread(descriptor, 2, 0) == b"#!"
    finally:
        os.close(descriptor)
    path = f"./{AUTO}/{name}"
    return (path,) if is_program else ("bash", path)


def write_script(folder: SessionFolder, name: str, command: str) -> bool:
    """Write a script that runs one command line, unless one is there; returns whether it was written.

    Raises:
        WorkspaceFault: ``.auto`` is no real folder.
        StorageFailed: the system refused.
    """
    text = f"#!/usr/bin/env bash\nset -euo pipefail\n{command}\n"
    try:
        parent = open_folder(folder.workspace_path, AUTO, make=True)
        try:
            descriptor = os.open(name, _NEW, 0o755, dir_fd=parent)
        finally:
            os.close(parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise storage_failed("write", f"{AUTO}/{name}", error) from error
    try:
        write_all(descriptor, text.encode("utf-8", "surrogatepass"))
    finally:
        os.close(descriptor)
    return True


def _open_log(folder: SessionFolder, parent: int) -> int:
    try:
        descriptor = os.open(LOG, _APPEND, 0o644, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _no_file(folder) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(folder)
    return descriptor


def _no_file(folder: SessionFolder) -> WorkspaceFault:
    path = os.path.join(folder.workspace_path, AUTO, LOG)
    return WorkspaceFault(f"{AUTO}/{LOG} is a link or no regular file", next_step=f"ls -ld {path}")


def _decoded(data: bytes) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, strictjson.decode(line)
        except ValueError as fault:
            yield number, fault
