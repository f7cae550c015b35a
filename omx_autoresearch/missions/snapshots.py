"""The snapshot of a mission on disk: its folded state as plain values, with the head of the journal that it covers.

Two files are written in turn, in place: creating and renaming a file at every record would cost several times what the
record costs. Each carries a number and a checksum over all it says, so a reader who meets one half written (or torn by
a power cut) takes the other, which is older and whole. A snapshot is only ever a shortcut: what it lacks is read from
the journal, and without one the journal is read through.

Also read by the status line, several times a second: imports stay few.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.foundation.records import NewerShape, OlderShape, ShapeError, sha256
from omx_autoresearch.missions.rules.mission import SCHEMA_VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

NAMES = ("status.0.json", "status.1.json")
"""The file of an even number, and of an odd one."""
_OPENING = b'{"format":2,"number":'
_CHUNK_BYTES = 64 * 1024
_READ_TRIES = 3


def newest(folder_path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and content (``head`` and ``mission``) of each whole snapshot of a mission, the newest first.

    Yields nothing without a snapshot of this format.
    """
    from omx_autoresearch.foundation.json_codec import decode

    whole: list[tuple[int, bytes]] = []
    for _ in range(_READ_TRIES):
        found = [_checked(os.path.join(folder_path, name)) for name in NAMES]
        whole = sorted((one for one in found if one[1]), reverse=True)
        if whole or not any(number for number, _ in found):
            break  # else both are being written: two writers have overtaken us
    for number, body in whole:
        try:
            yield number, decode(b"{" + body)
        except ValueError:
            continue


def save(folder_path: str, content: dict[str, Any], *, after: int) -> int:
    """Write the snapshot that follows number ``after``, which stays whole meanwhile; returns its number.

    ``content`` may hold frozen dataclasses, which are written as their plain form.
    Not durable: what a power cut takes is derived again. The caller holds the mission's lock.

    Raises:
        StorageFailed: the system refused.
    """
    from omx_autoresearch.foundation.json_codec import encode_dataclasses
    from omx_autoresearch.journal.safe_files import storage_failed, write_all

    number = after + 1
    body = encode_dataclasses(content)[1:]
    data = b'%b%d,"sha256":"%b",%b\n' % (_OPENING, number, _digest(number, body), body)
    path = os.path.join(folder_path, NAMES[number % 2])
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            write_all(descriptor, data)
            if os.fstat(descriptor).st_size > len(data):
                os.ftruncate(descriptor, len(data))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_failed("write", path, error) from error
    return number


def _checked(path: str) -> tuple[int, bytes]:
    """Number and body of one file: number 0 for a file that is missing, no body if the checksum is wrong."""
    data = _read(path)
    if not data.startswith(_OPENING):
        return 0, b""
    opening, _, body = data.partition(b'",')
    number, _, digest = opening[len(_OPENING) :].partition(b',"sha256":"')
    if not number.isdigit():
        return 0, b""
    body = body.removesuffix(b"\n")
    return int(number), body if _digest(int(number), body) == digest else b""


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b""
        data = part = os.pread(descriptor, status.st_size + 1, 0)
        while part:  # nearly never twice
            part = os.pread(descriptor, _CHUNK_BYTES, len(data))
            data += part
        return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _digest(number: int, body: bytes) -> bytes:
    return sha256(b"%d %b" % (number, body)).hexdigest().encode()


# --- Schema versions, and the numbered steps from one to the next: pure functions over a record's kind and data.
#
# A journal is never rewritten. It says its version in ``mission_created``, and again in ``schema_migrated``, which the
# first writer of a newer version appends before anything else; what stands before is read through the steps, each time.
# A snapshot carries its version, too, and goes through the steps of state documents.
#
# To change the shape of a record or of the state: raise ``SCHEMA_VERSION`` in missions/rules/mission.py and add a step
# for the version before it. A step adds, renames or splits fields; it never guesses what only a person could know.

UNSTAMPED = 1
"""The version of journals and snapshots that name none."""
OLDEST = 1
"""The oldest version that this one reads."""


def version_after(kind: str, data: dict[str, Any], version: int) -> int:
    """The version of this record and of those behind it.

    Raises:
        NewerShape: this version does not know it.
        OlderShape: this version no longer reads it.
    """
    if kind == "mission_created":
        return checked(data.get("schema_version", UNSTAMPED))
    if kind == "schema_migrated":
        return checked(data.get("to_version"))
    return version


def checked(version: Any) -> int:
    """The version, where this program can read it.

    Raises:
        NewerShape: it is above :data:`SCHEMA_VERSION`.
        OlderShape: it is below :data:`OLDEST`.
        ShapeError: it is no number.
    """
    if type(version) is not int:
        raise ShapeError(f"schema_version: a whole number is needed, received {type(version).__name__}")
    if version > SCHEMA_VERSION:
        raise NewerShape(f"its schema version is {version}, and this program reads up to {SCHEMA_VERSION}")
    if version < OLDEST:
        raise OlderShape(f"its schema version is {version}, and this program reads from {OLDEST} on")
    return version


def migrated(kind: str, data: dict[str, Any], version: int) -> dict[str, Any]:
    """The data of a record of ``version`` as this version has it; the argument stays as it is.

    Raises:
        ShapeError: a step cannot make anything of it.
    """
    return _stepped(RECORD_STEPS, version, (kind, data))


def migrated_state(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a snapshot (``head`` and ``mission``) as this version has it.

    Raises:
        ShapeError: too new, too old, or nothing that a step could make anything of.
    """
    version = checked(content.get("schema_version", UNSTAMPED))
    return _stepped(STATE_STEPS, version, ("snapshot", content))


def _stepped(
    steps: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]],
    version: int,
    document: tuple[str, dict[str, Any]],
) -> dict[str, Any]:
    kind, data = document
    for number in range(version, SCHEMA_VERSION):
        try:
            data = steps[number](kind, data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ShapeError(f"step {number} of the migrations cannot read {kind}: {error!r}") from None
    return data


# --- the steps, by the version that they start from


def _record_1(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Version 2 stamps journals, and knows milestones and forbidden operations."""
    if kind == "mission_created":
        return {**data, "schema_version": data.get("schema_version", 1), "milestones": []}
    if kind in ("mission_launched", "mission_amended"):
        return {**data, "contract": {"forbidden": [], **data["contract"]}}
    return data


def _state_1(_: str, content: dict[str, Any]) -> dict[str, Any]:
    """Version 2 says in the state which version the journal's newest records have."""
    return {**content, "mission": {"milestones": [], **content["mission"], "schema_version": 1}}


_PHASES_2 = {
    "mission_launched": "running",
    "mission_blocked": "blocked",
    "mission_unblocked": "running",
    "mission_paused": "paused",
    "mission_resumed": "running",
    "mission_cancelled": "cancelled",
    "mission_completed": "complete",
}


def _record_2(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Version 3 writes into the record of a step which phase it led to."""
    return {**data, "phase": _PHASES_2[kind]} if kind in _PHASES_2 else data


def _unchanged(_kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """States of version 3 and records of version 4 have the same data."""
    return data


RECORD_STEPS: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    1: _record_1,
    2: _record_2,
    3: _unchanged,
}
STATE_STEPS: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    1: _state_1,
    2: _unchanged,
    3: _unchanged,
}
