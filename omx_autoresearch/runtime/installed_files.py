"""What each file held before an installation: the record that makes its removal exact.

It stands in the state home under ``installed/``, one file for each settings file, readable by its owner only, because
a settings file may hold keys.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.storage.atomic import ensure_folder, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.core.installations import Installation


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
