"""The snapshot of a mission on disk: its folded state as plain values, with the head of the journal that it covers.

Two files are written in turn, in place: creating and renaming a file at every record would cost several times what the
record costs. Each carries a number and a checksum over all it says, so a reader who meets one half written (or torn by
a power cut) takes the other, which is older and whole. A snapshot is only ever a shortcut: what it lacks is read from
the journal, and without one the journal is read through.

Also read by the status line, several times a second: imports stay few.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.digests import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NAMES = ("status.0.json", "status.1.json")
"""The file of an even number, and of an odd one."""
_OPENING = b'{"format":2,"number":'
_LIMIT_BYTES = 64 * 1024 * 1024
_READ_TRIES = 3


def newest(folder_path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and content (``head`` and ``mission``) of each whole snapshot of a mission, the newest first.

    Nothing where there is none, or none of this format.
    """
    from omx_autoresearch.storage.strictjson import decode

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
    from omx_autoresearch.storage.atomic import storage_failed, write_all
    from omx_autoresearch.storage.strictjson import encode_dataclasses

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
    """Number and body of one file: number 0 where there is none, no body where the checksum is another."""
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
        data = part = os.pread(descriptor, _LIMIT_BYTES, 0)
        while part:  # nearly never twice
            part = os.pread(descriptor, _LIMIT_BYTES, len(data))
            data += part
        return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _digest(number: int, body: bytes) -> bytes:
    return sha256(b"%d %b" % (number, body)).hexdigest().encode()
