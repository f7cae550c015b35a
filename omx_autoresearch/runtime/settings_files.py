"""A person's settings files: read as their client reads them, changed atomically, never half."""

from __future__ import annotations

import os
import stat

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import WorkspaceFault
from omx_autoresearch.storage.atomic import replace_file, storage_failed

BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What happens to one file.

    Attributes:
        path: the file.
        before: its bytes now; None when it does not exist.
        after: its bytes then; None when it is removed.
    """

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def diff(self) -> str:
        """A unified diff, for people."""
        import difflib

        sides = (self.before, self.after)
        old, new = ((data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in sides)
        old_name, new_name = ("/dev/null" if data is None else self.path for data in sides)
        lines = difflib.unified_diff(old, new, old_name, new_name)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )


def read_bytes(path: str) -> bytes | None:
    """Give a file's bytes; None when it does not exist.

    Raises:
        StorageFailed: the system refused.
    """
    try:
        with open(path, "rb") as source:
            return source.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_failed("read", path, error) from error


def text_of(path: str, data: bytes | None) -> str:
    """Decode a settings file; empty for one that does not exist.

    Raises:
        WorkspaceFault: it is not UTF-8; the encoding is named.
    """
    if data is None:
        return ""
    encoding = ""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in data[:4]:
        encoding = "UTF-16 or UTF-32"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        encoding = encoding or "not UTF-8"
        text = ""
    if encoding:
        raise WorkspaceFault(
            f"{path} is {encoding}, which its client does not read; it was left as it is",
            next_step=f"save {path} as UTF-8, then run the command again",
        )
    return text


def apply(change: FileChange, *, mode: int = 0o600) -> None:
    """Write one file: atomically, through a symbolic link, with the mode that it had.

    Raises:
        WorkspaceFault: somebody changed the file in the meantime.
        StorageFailed: the system refused.
    """
    if change.before == change.after:
        return
    path = os.path.realpath(change.path)
    if read_bytes(path) != change.before:
        raise WorkspaceFault(
            f"{path} was changed by somebody else just now", next_step="run the command again"
        )
    if change.after is None:
        remove(change.path)
        return
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        kept = stat.S_IMODE(os.stat(path).st_mode) if change.before is not None else mode
        replace_file(path, change.after, mode=kept)
        if stat.S_IMODE(os.stat(path).st_mode) != kept:  # the umask had its say
            os.chmod(path, kept)
    except OSError as error:
        raise storage_failed("write", path, error) from error


def missing_folders(paths: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that writing these files would make, outermost first."""
    found: dict[str, None] = {}
    for path in paths:
        missing = []
        folder_path = os.path.dirname(os.path.realpath(path))
        while not os.path.lexists(folder_path):
            missing.append(folder_path)
            folder_path = os.path.dirname(folder_path)
        found.update(dict.fromkeys(reversed(missing)))
    return tuple(found)


def remove_empty(folder_paths: tuple[str, ...]) -> None:
    """Remove folders that were made outermost first, as far as they are empty."""
    for path in reversed(folder_paths):
        try:
            os.rmdir(path)
        except OSError:
            continue  # somebody put something there, or it is gone


def remove(path: str) -> None:
    """Remove a file; nothing happens when it is gone.

    Raises:
        StorageFailed: the system refused.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed("remove", path, error) from error
