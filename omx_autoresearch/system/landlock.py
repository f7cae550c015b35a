"""Walls around one command that need no other program and no user namespace: Landlock (landlock(7)).

Every right to change a file is taken away but below the folders named. Landlock only adds rights, a folder's with all
below it, so what is to stay as it is inside a writable folder is left out by giving the rights to its neighbours one
by one. Reading is free, unless something is hidden: then the right to read is given to the neighbours likewise.

What Landlock does not know: modes, owners, times and attributes of files; sockets; what is neither file nor signal.
The filter of `system.seccomp` stands beside it, and mounts of its own where the system grants them (`system.mounts`).
"""

from __future__ import annotations

import os
import struct
import sys

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.mounts import c_function, drop_capabilities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEAST_VERSION = 3
"""The first version that keeps files from being cut."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_GET_VERSION, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE = 1 << 0, 1 << 1, 1 << 2
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_CHANGES = 0b11_1111_1111_0000 | _WRITE_FILE | _TRUNCATE
"""Every right to change what is in a folder: write, cut, make, remove, link and rename."""
_MAKES_DEVICES = 1 << 6 | 1 << 11
_READS = _EXECUTE | _READ_FILE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


@dataclass(frozen=True, slots=True)
class Rights:
    """What a command may do with files.

    Attributes:
        writable_paths: what can be changed, with all below.
        kept_paths: what cannot, inside of those; nothing new can be made in the folders around it.
        hidden_paths: what can be neither read nor changed; of a writable path too, if it lies inside.
        shown_paths: what can, inside of those; writable paths can be read too.
        has_network: TCP is left alone.
    """

    writable_paths: tuple[str, ...]
    kept_paths: tuple[str, ...] = ()
    hidden_paths: tuple[str, ...] = ()
    shown_paths: tuple[str, ...] = ()
    has_network: bool = False


def version() -> int:
    """The version of Landlock that the kernel speaks; 0 where it has none or does not use it."""
    return (
        max(0, c_function("syscall")(_CREATE_RULESET, None, 0, _GET_VERSION))
        if sys.platform == "linux"
        else 0
    )


def give_up_privileges() -> bool:
    """Let no program that is started bring rights along, and keep no capability; whether the kernel did it."""
    return c_function("prctl")(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and drop_capabilities()


def restrict(rights: Rights) -> str:
    """Put the calling process and all that it starts behind the walls, for ever; why it could not be done, else "".

    Call `give_up_privileges` first.
    """
    known = version()
    if known < LEAST_VERSION:
        return f"the kernel's Landlock is version {known}, and {LEAST_VERSION} is needed"
    handled = _CHANGES | (_IOCTL_DEVICE if known >= 5 else 0) | (_READS if rights.hidden_paths else 0)
    attributes = struct.pack("=Q", handled)
    if known >= 4:
        attributes += struct.pack("=Q", 0 if rights.has_network else _TCP)
    if known >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = c_function("syscall")(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return "the kernel takes no Landlock rules"
    try:
        for path, given in _grants(rights):
            _grant(ruleset, path, given & handled)
        if c_function("syscall")(_RESTRICT_SELF, ruleset, 0) < 0:
            return "the kernel does not enforce Landlock rules"
    finally:
        os.close(ruleset)
    return ""


def _grants(rights: Rights) -> Iterator[tuple[str, int]]:
    for path in _DEVICES:
        yield path, _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE
    for path in rights.writable_paths:
        for part in _around(path, (*rights.kept_paths, *rights.hidden_paths)):
            yield part, _CHANGES & ~_MAKES_DEVICES | _IOCTL_DEVICE | _READS
    if rights.hidden_paths:
        for part in (*_around("/", rights.hidden_paths), *rights.shown_paths):
            yield part, _READS


def _around(folder: str, left_out: Sequence[str]) -> Iterator[str]:
    """The folder, or where something below it is left out, everything beside that and beside the folders to it."""
    inside = [path for path in left_out if path.startswith(os.path.join(folder, ""))]
    if folder in left_out:
        return
    if not inside:
        yield folder
        return
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.islink(path):
            continue
        if os.path.isdir(path):
            yield from _around(path, inside)
        elif path not in inside:
            yield path


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what cannot be opened gets no rights
    try:
        if not os.path.isdir(f"/proc/self/fd/{descriptor}"):
            rights &= _OF_FILES
        if rights:
            c_function("syscall")(
                _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0
            )
    finally:
        os.close(descriptor)
