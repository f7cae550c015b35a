"""The held-out check: what no agent has seen, run at acceptance and at the end.

The owner names an executable file, or a folder with an executable ``check``. It is copied into the experiment's folder
when the experiment starts, and only that copy runs, in the worktree, as long as its digest is the one of the start. Its
path stands in no prompt and in no environment; in the sandbox every other run sees nothing of it. Without a sandbox the
code under test has the user's rights and could read it while it runs: a stated limit.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.storage.atomic import storage_failed

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECK_NAME = "check"
SIZE_LIMIT_BYTES = 1024 * 1024 * 1024
FILE_LIMIT = 10_000

_NEXT = "name an executable file, or a folder with an executable file `check`: --held-out PATH"


def take_held_out(source_path: str, target_path: str) -> str:
    """Copy the owner's check and return the digest of the copy.

    Args:
        source_path: an executable file, or a folder with an executable ``check``.
        target_path: the folder to make; what stands there is replaced.

    Raises:
        WorkspaceFault: there is no such check, it holds what is neither file, folder nor a link inside it, or it is
            too large.
        StorageFailed: the system refused.
    """
    import shutil

    is_folder = os.path.isdir(source_path)
    program_path = os.path.join(source_path, CHECK_NAME) if is_folder else source_path
    if not os.path.isfile(program_path):
        raise WorkspaceFault(f"there is no held-out check {program_path}", next_step=_NEXT)
    if not os.access(program_path, os.X_OK):
        raise WorkspaceFault(
            f"the held-out check {program_path} is not executable", next_step=f"chmod +x {program_path}"
        )
    if is_folder:
        _refuse_unfit(source_path)
    try:
        if os.path.lexists(target_path):
            shutil.rmtree(target_path)
        if is_folder:
            shutil.copytree(source_path, target_path, symlinks=True)
        else:
            os.makedirs(target_path, mode=0o700)
            shutil.copy2(program_path, os.path.join(target_path, CHECK_NAME))
        os.chmod(target_path, 0o700)
    except OSError as error:
        raise storage_failed("copy the held-out check to", target_path, error) from error
    return digest_of_held_out(target_path)


def check_held_out(folder_path: str, digest: str) -> None:
    """Refuse a copy that is not what it was at the start.

    Raises:
        StateUntrusted: it was changed, or is gone.
    """
    try:
        is_same = digest_of_held_out(folder_path) == digest
    except (OSError, WorkspaceFault):
        is_same = False
    if not is_same:
        raise StateUntrusted(
            f"the private copy of the held-out check, {folder_path}, is not what it was at the start",
            next_step="start a new experiment; what was reached stays in this one's report",
        )


def digest_of_held_out(folder_path: str) -> str:
    """The sha256 over names, kinds, execute bits and contents of everything in the folder.

    Raises:
        OSError: something cannot be read.
        WorkspaceFault: it is not there, or holds what cannot be judged.
    """
    whole = sha256()
    if not os.path.isfile(os.path.join(folder_path, CHECK_NAME)):
        raise WorkspaceFault(f"there is no held-out check in {folder_path}", next_step=_NEXT)
    for path in _paths(folder_path):
        status = os.lstat(path)
        name = os.path.relpath(path, folder_path)
        if stat.S_ISLNK(status.st_mode):
            kind, content = "link", os.fsencode(os.readlink(path))
        elif stat.S_ISREG(status.st_mode):
            with open(path, "rb") as stream:
                content = sha256(stream.read()).digest()
            kind = "program" if status.st_mode & stat.S_IXUSR else "file"
        else:
            kind, content = "special", b""
        whole.update(sha256(os.fsencode(name) + b"\0" + kind.encode() + b"\0" + content).digest())
    return whole.hexdigest()


def _paths(folder_path: str) -> Iterator[str]:
    for folder, names, files in os.walk(folder_path):
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        names.sort()
        for name in sorted((*links, *files)):
            yield os.path.join(folder, name)


def _refuse_unfit(folder_path: str) -> None:
    root = os.path.realpath(folder_path)
    size_bytes = count = 0
    for path in _paths(folder_path):
        status = os.lstat(path)
        size_bytes += status.st_size
        count += 1
        is_link = stat.S_ISLNK(status.st_mode)
        if is_link and os.path.isabs(os.readlink(path)):
            raise WorkspaceFault(
                f"{path} is an absolute link, which the copy would follow out", next_step=_NEXT
            )
        if is_link and not os.path.realpath(path).startswith(root + os.sep):
            raise WorkspaceFault(f"{path} leads out of the held-out check", next_step=_NEXT)
        if not is_link and not stat.S_ISREG(status.st_mode):
            raise WorkspaceFault(f"{path} is neither a file nor a link", next_step=_NEXT)
    if size_bytes > SIZE_LIMIT_BYTES or count > FILE_LIMIT:
        raise WorkspaceFault(
            f"the held-out check {folder_path} has {count} files of {size_bytes} bytes;"
            f" at most {FILE_LIMIT} files of {SIZE_LIMIT_BYTES} bytes are copied",
            next_step="name a smaller folder",
        )
