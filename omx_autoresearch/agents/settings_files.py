"""A person's settings files: read as their client reads them, changed atomically, never half."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.journal.safe_files import ensure_folder, replace_file, storage_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.agents.installations import Installation

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


# --- What each file held before an installation: the record that makes its removal exact.
#
# It stands in the state home under ``installed/``, one file for each settings file, readable by its owner only, because
# a settings file may hold keys.


@dataclass(frozen=True, slots=True)
class InstalledFile:
    """One file of a person's that we changed.

    Attributes:
        path: the file.
        before: its text without anything of ours; None when it did not exist.
        after_sha256: the digest of its bytes as we left it.
    """

    path: str
    before: str | None
    after_sha256: str


@dataclass(frozen=True, slots=True)
class InstallRecord:
    """What one installation did.

    Attributes:
        files: the files it changed.
        environment: the variables that it added to the client's ``env`` setting.
        trust_keys: the keys under which it wrote trusted hashes.
        folders: those that it had to make, outermost first.
    """

    files: tuple[InstalledFile, ...] = ()
    environment: tuple[str, ...] = ()
    trust_keys: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    def baseline(self, path: str, current: bytes | None, strip: Callable[[str], str]) -> str | None:
        """Give a file's text without us: as recorded if nobody changed it since, else with ours taken out."""
        if current is None:
            return None
        known = self.file(path)
        if known and known.after_sha256 == sha256_of(current):
            return known.before
        return strip(current.decode())

    def file(self, path: str) -> InstalledFile | None:
        """What is recorded of one file; None for nothing."""
        return next((file for file in self.files if file.path == path), None)

    def save(self, path: str) -> None:
        """Write the record.

        Raises:
            StorageFailed: the system refused.
        """
        ensure_folder(os.path.dirname(path))
        value = {
            "files": [
                {"path": f.path, "before": f.before, "after_sha256": f.after_sha256} for f in self.files
            ],
            "environment": list(self.environment),
            "trust_keys": list(self.trust_keys),
            "folders": list(self.folders),
        }
        replace_file(path, json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n", mode=0o600)


def load_record(path: str) -> InstallRecord:
    """Read a record; an empty one when there is none or it cannot be read, since all of it can be done without."""
    try:
        with open(path, encoding="utf-8") as source:
            value: dict[str, Any] = json.load(source)
        files = tuple(InstalledFile(f["path"], f["before"], f["after_sha256"]) for f in value["files"])
        folders = tuple(value.get("folders", ()))  # a record of an older version has none
        return InstallRecord(files, tuple(value["environment"]), tuple(value["trust_keys"]), folders)
    except (OSError, ValueError, KeyError, TypeError):
        return InstallRecord()


def record_path(state_home_path: str, installation: Installation) -> str:
    """Say where the record of an installation stands."""
    name = f"{installation.client.name}-{sha256_of(installation.settings_path.encode())[:16]}.json"
    return os.path.join(state_home_path, "installed", name)


def sha256_of(data: bytes) -> str:
    """Give a digest as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()
