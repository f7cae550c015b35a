"""``projected.json``: how we left the projections of a mission, to bring them up and to notice who edited them.

It stands in the state home. It may be lost at any time: then every projection is compared with the journal.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.shape import to_plain
from omx_autoresearch.errors import StateUntrusted
from omx_autoresearch.storage.atomic import read_bounded, storage_failed, write_all
from omx_autoresearch.storage.lines import Head, digest_of
from omx_autoresearch.storage.strictjson import decode, encode_unchecked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.storage.omx_folder import Stamp

FORMAT = 2
_LIMIT_BYTES = 4 * 1024 * 1024
_written: dict[str, tuple[bytes, dict[str, Any]]] = {}
"""What this process wrote last: bytes that are found again need not be parsed."""


class Projected:
    """What we know of the projections.

    Args:
        path: of ``projected.json``.

    Attributes:
        covered: the record up to which the line files go; None when nothing is known.
        session_id: whose mode state reads active, empty for nobody's.
    """

    __slots__ = ("_files", "_path", "covered", "session_id")

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: dict[str, dict[str, Any]] = {}
        self.covered: Head | None = None
        self.session_id = ""
        try:
            raw = read_bounded(path, _LIMIT_BYTES)
            known, content = _written.get(path, (b"", {}))
            data = content if raw == known else decode(raw)
            if data["format"] == FORMAT:
                self.covered, self.session_id = Head(**data["covered"]), data["session_id"]
                self._files = dict(data["files"])
        except (OSError, StateUntrusted, ValueError, KeyError, TypeError):
            self.forget()

    def forget(self) -> None:
        """Know nothing: every projection will be compared."""
        self.covered, self.session_id, self._files = None, "", {}

    def save(self) -> None:
        """Write it, in place and not durably: a torn one is a lost one, and a rename would cost a flush of the disk.

        Raises:
            StorageFailed: the state home cannot be written.
        """
        content = {
            "format": FORMAT,
            "covered": to_plain(self.covered) if self.covered else None,
            "session_id": self.session_id,
            "files": dict(self._files),
        }
        data = encode_unchecked(content)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._path, flags, 0o600)
            try:
                write_all(descriptor, data + b"\n")
                if os.fstat(descriptor).st_size > len(data) + 1:
                    os.ftruncate(descriptor, len(data) + 1)
            finally:
                os.close(descriptor)
            _written.clear()  # one mission is enough: a process that writes much writes to one
            _written[self._path] = (data + b"\n", content)
        except OSError as error:
            raise storage_failed("write", self._path, error) from error

    def stamp(self, name: str) -> Stamp | None:
        """How we left a file; None when unknown."""
        found = self._files.get(name, {}).get("stamp")
        return (found[0], found[1], found[2]) if isinstance(found, list) and len(found) == 3 else None

    def keep(self, name: str, stamp: Stamp, data: bytes | None = None) -> None:
        """Remember how we leave a file; of a state file also what stands in it, and what stood there before."""
        entry: dict[str, Any] = {"stamp": list(stamp)}
        if data is not None:
            older = self._files.get(name, {})
            entry["digest"] = digest_of(data)
            entry["before"] = older.get("digest", "")
            entry["lines"] = [digest_of(line)[:12] for line in data.splitlines()]
        self._files[name] = entry

    def says(self, name: str, data: bytes) -> bool:
        """True when a state file was last left with this content."""
        return bool(self._files.get(name, {}).get("digest") == digest_of(data))

    def wrote(self, name: str, data: bytes) -> bool:
        """True when a state file had this content from us, the last time or the time before."""
        entry = self._files.get(name, {})
        return digest_of(data) in (entry.get("digest"), entry.get("before"))

    def wrote_line(self, name: str, line: bytes) -> bool:
        """True when a state file had this line from us."""
        return digest_of(line)[:12] in self._files.get(name, {}).get("lines", ())


def projected_path(root_path: str) -> str:
    """Where it stands in a mission's folder of the state home."""
    return os.path.join(root_path, "projected.json")
