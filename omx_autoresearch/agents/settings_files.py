"""A person's settings files: read as their client reads them, changed atomically, with a record of their old content.

The record makes a removal exact. It is in the state home under ``installed/``, one file for each installation, and only
its owner can read it, because a settings file may contain keys.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import stat
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import sha256
from omx_autoresearch.journal.safe_files import ensure_folder, replace_file, storage_failed

if TYPE_CHECKING:
    from collections.abc import Iterable

_BOM = "\ufeff"


@dataclass
class SettingsFile:
    """One file while parts of an installation are added or removed.

    Attributes:
        path: the file.
        before: its bytes when it was read; None if it did not exist.
        after: its new bytes; None to remove it.
        known: the record of an earlier installation.
        is_foreign: the whole file is the person's own, and no part changes it.
        stood_there: the person had already written the content of a part, which the removal therefore restores.
    """

    path: str
    before: bytes | None
    known: InstalledFile | None = None
    is_foreign: bool = False
    stood_there: bool = False
    after: bytes | None = field(init=False)
    _written: bytes | None = field(init=False)

    def __post_init__(self) -> None:
        self.after = self._written = self.before

    @property
    def is_as_we_left_it(self) -> bool:
        """The file has not changed since the last installation."""
        return bool(
            self.known and self.before is not None and self.known.after_sha256 == sha256_of(self.before)
        )

    @property
    def text(self) -> str:
        """The new text, without a byte order mark; empty for a file that does not exist.

        Raises:
            WorkspaceFault: it is not UTF-8; the message names the encoding.
        """
        data = self.after or b""
        encoding = "UTF-16 or UTF-32" if data[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in data[:4] else ""
        text = ""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            encoding = encoding or "not UTF-8"
        if encoding:
            raise WorkspaceFault(
                f"{self.path} is {encoding}, which its client does not read; the file was not changed",
                next_step=f"save {self.path} as UTF-8, then run the command again",
            )
        return text.removeprefix(_BOM)

    @text.setter
    def text(self, text: str) -> None:
        if text != self.text:
            mark = _BOM.encode() if (self.after or b"").startswith(_BOM.encode()) else b""
            self.after = mark + text.encode()

    @property
    def diff(self) -> str:
        """A unified diff, for people."""
        sides = (self.before, self.after)
        old, new = ((data or b"").decode("utf-8", "replace").splitlines(keepends=True) for data in sides)
        old_name, new_name = ("/dev/null" if data is None else self.path for data in sides)
        lines = difflib.unified_diff(old, new, old_name, new_name)
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
        )

    def write(self, *, mode: int = 0o600) -> None:
        """Write a changed file atomically, through a symbolic link, with its old mode.

        Args:
            mode: of a new file.

        Raises:
            WorkspaceFault: another program changed the file in the meantime.
            StorageFailed: the system refused.
        """
        if self.after == self._written:
            return
        path = os.path.realpath(self.path)
        if read_bytes(path) != self._written:
            raise WorkspaceFault(
                f"another program has just changed {path}", next_step="run the command again"
            )
        if self.after is None:
            remove(self.path)
        else:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                kept = stat.S_IMODE(os.stat(path).st_mode) if self._written is not None else mode
                replace_file(path, self.after, mode=kept)
                if stat.S_IMODE(os.stat(path).st_mode) != kept:  # because of the umask
                    os.chmod(path, kept)
            except OSError as error:
                raise storage_failed("write", path, error) from error
        self._written = self.after


def read_bytes(path: str) -> bytes | None:
    """A file's bytes; None if it does not exist.

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


def refuse_dangling_links(paths: Iterable[str]) -> None:
    """Refuse a path through a symbolic link to nothing: writing through it would create its target.

    Raises:
        WorkspaceFault: the message names the first such link.
    """
    ways = ([path, *map(str, PurePath(path).parents)] for path in paths)
    for path in (step for way in ways for step in way):
        if os.path.islink(path) and not os.path.exists(path):
            raise WorkspaceFault(
                f"{path} is a symbolic link to {os.readlink(path)}, which does not exist; nothing was written",
                next_step=f"create the link's target, or remove the link: rm {shlex.quote(path)}",
            )


def readable_text(path: str) -> str:
    """A file's text for reading only, without a byte order mark; empty if the file cannot be read."""
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def missing_folders(paths: Iterable[str]) -> tuple[str, ...]:
    """The folders that writing these files would create, outermost first."""
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
    """Remove those of the folders (outermost first) that are empty."""
    for path in reversed(folder_paths):
        try:
            os.rmdir(path)
        except OSError:
            continue  # it is gone, or has other content by now


def remove(path: str) -> None:
    """Remove a file; nothing happens if it is gone.

    Raises:
        StorageFailed: the system refused.
    """
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed("remove", path, error) from error


@dataclass(frozen=True)
class InstalledFile:
    """One file of a person that we changed.

    Attributes:
        path: the file.
        before: its text without our parts; None if it did not exist.
        after_sha256: the digest of its bytes after our change.
    """

    path: str
    before: str | None
    after_sha256: str


@dataclass(frozen=True)
class InstallRecord:
    """The record of one installation.

    Attributes:
        files: the changed files.
        folders: the created folders, outermost first.
        memory: values that parts keep for their removal, by name.
    """

    files: tuple[InstalledFile, ...] = ()
    folders: tuple[str, ...] = ()
    memory: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def file(self, path: str) -> InstalledFile | None:
        """The record of one file; None if there is none."""
        return next((file for file in self.files if file.path == path), None)

    def save(self, path: str) -> None:
        """Write the record.

        Raises:
            StorageFailed: the system refused.
        """
        ensure_folder(os.path.dirname(path))
        value = {"files": [asdict(file) for file in self.files], **self.memory, "folders": self.folders}
        replace_file(path, json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n", mode=0o600)


def load_record(path: str) -> InstallRecord:
    """Read a record; it is empty if there is none or it cannot be read, since a removal works without it."""
    try:
        with open(path, encoding="utf-8") as source:
            value: dict[str, Any] = json.load(source)
        files = tuple(InstalledFile(f["path"], f["before"], f["after_sha256"]) for f in value.pop("files"))
        folders = tuple(value.pop("folders", ()))  # a record of an older version has none
        return InstallRecord(files, folders, {name: tuple(kept) for name, kept in value.items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return InstallRecord()


def sha256_of(data: bytes) -> str:
    """A digest as hexadecimal text."""
    return sha256(data).hexdigest()
