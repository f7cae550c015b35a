"""The inbox of a mission: claims that wait to be taken in, one small file each.

A command that may not write the journal drops its claim here, and people may put any text file here. Whatever stands
here is a claim and nothing more: no verb in it is ever obeyed.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.journal.safe_files import storage_failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CLAIM_LIMIT_BYTES = 256 * 1024
"""What is kept of one claim, in UTF-8."""
CLAIMS_AT_ONCE = 64
BYTES_AT_ONCE = 4 * 1024 * 1024
FINDING = "finding"
"""The verb of a file that holds a finding; ``missions/findings.py`` writes and reads it."""
DIRECTION = "direction"
"""The verb of a file that says a direction."""
TAKEN = "taken"
"""Sub-folder of what was taken in but is too large to stand in the journal whole."""
TAKEN_LIMIT = 50
_CUT = " [... cut]"
_FILE_LIMIT_BYTES = 8 * CLAIM_LIMIT_BYTES
_KEYS = frozenset(("verb", "text", "at"))


@dataclass(frozen=True, slots=True)
class Claim:
    """One waiting claim.

    Attributes:
        text: what is claimed, harmless and bounded (see :func:`bounded`).
        verb: of the command that dropped it; empty when its origin is unknown.
        at: when it was dropped, as the file says; empty when unknown.
        file_path: of the file.
    """

    text: str
    verb: str
    at: str
    file_path: str


def bounded(text: str) -> str:
    """Text as a claim holds it: NUL and lone surrogates become U+FFFD, at most :data:`CLAIM_LIMIT_BYTES` stay.

    What is cut says so at its end. A text that went through this once stays as it is.
    """
    data = json_codec.without_surrogates(text.replace("\0", "\ufffd")).encode("utf-8")
    if len(data) > CLAIM_LIMIT_BYTES:
        kept = data[: CLAIM_LIMIT_BYTES - len(_CUT)].decode("utf-8", "ignore")
        return kept + _CUT
    return data.decode("utf-8")


def drop(inbox_path: str, text: str, *, verb: str, at: str) -> str:
    """Leave one claim and return its file's path; the folder is made where missing.

    Args:
        inbox_path: ``{project}/.omx/autoresearch/{task_id}/inbox``.
        text: the claim.
        verb: what dropped it.
        at: the time, ISO 8601 UTC.

    Raises:
        StorageFailed: the folder cannot be written.
    """
    content = {"verb": verb, "text": bounded(text), "at": at}
    name = f"{_digits(at)}-{os.getpid()}-{os.urandom(4).hex()}.json"
    try:
        with _opened(inbox_path, make=True) as folder:
            folder.replace(name, json_codec.encode(content) + b"\n")
    except WorkspaceFault as error:
        raise StorageFailed(error.message, next_step=error.next_step) from error
    except OSError as error:
        raise storage_failed("write", os.path.join(inbox_path, name), error) from error
    return os.path.join(inbox_path, name)


def waiting(inbox_path: str) -> tuple[Claim, ...]:
    """The claims that wait, oldest name first, at most :data:`CLAIMS_AT_ONCE` and :data:`BYTES_AT_ONCE`.

    Only regular files count; links, pipes and folders are left where they are. A file that is not one of ours is a
    claim of unknown origin. An inbox that is missing or cannot be read holds nothing.
    """
    found: list[Claim] = []
    size_bytes = 0
    try:
        with _opened(inbox_path) as folder:
            for name in folder.names():
                if len(found) >= CLAIMS_AT_ONCE or size_bytes >= BYTES_AT_ONCE:
                    break
                try:
                    data = folder.read(name, _FILE_LIMIT_BYTES + 1)
                except (OSError, WorkspaceFault):
                    continue
                size_bytes += len(data)
                found.append(_claim(data, os.path.join(inbox_path, name)))
    except (OSError, WorkspaceFault):
        return tuple(found)
    return tuple(found)


def remove(claims: Iterable[Claim]) -> None:
    """Take files out of the inbox once their claims are recorded.

    A file that the journal holds only in part is kept in ``taken/``. What cannot be removed stays, and is known by
    its digest the next time.
    """
    for claim in claims:
        inbox_path, name = os.path.split(claim.file_path)
        try:
            with _opened(inbox_path) as folder:
                if claim.text.endswith(_CUT) and not claim.verb:
                    _keep_aside(folder, claim)
                else:
                    folder.drop(name)
        except (OSError, WorkspaceFault):
            continue


def _keep_aside(folder: OmxFolder, claim: Claim) -> None:
    """Move a file to ``taken/``, the time first in its name; the oldest ones there make room."""
    inbox_path, name = os.path.split(claim.file_path)
    with _opened(os.path.join(inbox_path, TAKEN), make=True) as taken:
        older = taken.names()
        for item in older[: max(0, len(older) - TAKEN_LIMIT + 1)]:
            taken.drop(item)
        folder.move(name, taken, f"{_digits(claim.at)}-{os.urandom(4).hex()}-{name}")


def _digits(at: str) -> str:
    """A time as it begins a file's name, so that the oldest sort first."""
    return "".join(c for c in at if c.isdigit()) or "0"


def _claim(data: bytes, file_path: str) -> Claim:
    value = _fields(data)
    if value is None:
        text = data.decode("utf-8-sig", "replace").strip()
        return Claim(bounded(text), "", "", file_path)
    return Claim(bounded(value.get("text", "")), value["verb"][:40], value.get("at", "")[:40], file_path)


def _fields(data: bytes) -> dict[str, str] | None:
    """The fields of a file that :func:`drop` wrote; None for any other."""
    try:
        value = json_codec.decode(data) if len(data) <= _FILE_LIMIT_BYTES else None
    except ValueError:
        return None
    if not isinstance(value, dict) or not value.get("verb") or value.keys() - _KEYS:
        return None
    return value if all(isinstance(item, str) for item in value.values()) else None


def _opened(inbox_path: str, *, make: bool = False) -> OmxFolder:
    """Open an inbox (or its ``taken/``) from its project on, through real folders only."""
    project_path, mark, rest = inbox_path.rpartition(f"{os.sep}.omx{os.sep}")
    if not mark:
        raise WorkspaceFault(f"{inbox_path} is no inbox of a project", next_step="omx-autoresearch doctor")
    return OmxFolder(project_path, os.path.join(".omx", rest), make=make)
