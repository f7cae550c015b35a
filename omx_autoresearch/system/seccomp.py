"""System calls that a command in the box may not make: a seccomp filter (seccomp(2)), written as classic BPF.

A wall of mounts or of Landlock says which files a command reaches. This filter closes what goes around files: services
that answer in a socket, new namespaces, the kernel's keyrings, io_uring (whose requests no filter sees), input pushed
into a terminal, and the answers of the page cache, in which a run could leave a bit for the next one.

A call that is denied fails with an errno that programs know, so one that only tries (a cache hint, a faster way of
reading) goes on. The numbers are those of x86-64 and arm64; for other machines there is no filter.
"""

from __future__ import annotations

import errno
import os
import struct
import sys

from omx_autoresearch.system.mounts import c_function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    Sockets = Literal["all", "no_unix", "none"]
    """Which sockets a command may make: every kind, all but those of the file system, or connected pairs alone."""

    Test = tuple[str, int, int]
    """How an argument is looked at, its position, and the number it is held against."""

    Rule = tuple[str, Test | None, int]
    """A system call, the test that it must meet (None: each is denied), and the errno; 0 pretends success."""

_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_ALLOW, _DENY = 0x7FFF_0000, 0x0005_0000  # linux/seccomp.h
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data
_MACHINES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}  # linux/audit.h
_X32 = 0x4000_0000
"""From here on an x86-64 kernel takes a number for one of another table."""

_NAMESPACES = 0x7E02_0080
"""CLONE_NEW* of linux/sched.h: mount, cgroup, uts, ipc, user, pid, net and time."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FORGET_PAGES, _READ_CACHED = 4, 8  # POSIX_FADV_DONTNEED, RWF_NOWAIT
_AF_UNIX, _DATAGRAM_BIT = 1, 2
_SET_USER_ID = 0o4000
_PR_SET_SECCOMP, _FILTER_MODE = 22, 2

# fmt: off
_NUMBERS: dict[str, tuple[int, int]] = {
    "accept": (43, 202), "accept4": (288, 242), "add_key": (248, 217), "bind": (49, 200), "bpf": (321, 280),
    "cachestat": (451, 451), "chmod": (90, -1), "clone": (56, 220), "clone3": (435, 435), "connect": (42, 203),
    "fadvise64": (221, 223), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "io_uring_setup": (425, 425),
    "ioctl": (16, 29), "keyctl": (250, 219), "listen": (50, 201), "mincore": (27, 232), "mount": (165, 40),
    "mount_setattr": (442, 442), "move_mount": (429, 429), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188), "msgsnd": (69, 189),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "pidfd_getfd": (438, 438), "pivot_root": (155, 41),
    "preadv2": (327, 286), "prlimit64": (302, 261), "request_key": (249, 218), "semctl": (66, 191),
    "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192), "sendto": (44, 206), "setns": (308, 268),
    "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194), "socket": (41, 198), "socketpair": (53, 199),
    "umount2": (166, 39), "unshare": (272, 97),
}
"""System calls by name: their numbers on x86-64 and on arm64."""
# fmt: on

_ALWAYS: tuple[Rule, ...] = (
    *(
        (name, None, errno.EPERM)
        for name in ("add_key", "request_key", "keyctl", "setns", "bpf", "pidfd_getfd")
    ),
    *(
        (name, None, errno.EPERM)
        for name in (
            "mount",
            "umount2",
            "pivot_root",
            "move_mount",
            "mount_setattr",
            "open_tree",
            "open_tree_attr",
        )
    ),
    *((name, None, errno.EPERM) for name in ("fsopen", "fsconfig", "fsmount", "fspick")),
    *((name, None, errno.ENOSYS) for name in ("io_uring_setup", "io_uring_enter", "io_uring_register")),
    *(
        (name, None, errno.ENOSYS) for name in ("clone3", "mincore", "cachestat")
    ),  # programs take the older way
    *((name, ("bits", 0, _NAMESPACES), errno.EPERM) for name in ("clone", "unshare")),
    *(("ioctl", ("is", 1, request), errno.EPERM) for request in (_TIOCSTI, _TIOCLINUX)),
    ("fadvise64", ("is", 3, _FORGET_PAGES), 0),
    ("preadv2", ("bits", 5, _READ_CACHED), errno.EOPNOTSUPP),
    ("chmod", ("bits", 1, _SET_USER_ID), errno.EPERM),
    ("fchmod", ("bits", 1, _SET_USER_ID), errno.EPERM),
    *((name, ("bits", 2, _SET_USER_ID), errno.EPERM) for name in ("fchmodat", "fchmodat2")),
)
"""Denied in every box. A program that belongs to the user and runs as the user would be a way out for other users."""

_CONNECTED_PAIRS: tuple[Rule, ...] = (
    ("socketpair", ("bits", 1, _DATAGRAM_BIT), errno.EOPNOTSUPP),  # a datagram may name another socket
)
_NO_UNIX: tuple[Rule, ...] = (("socket", ("is", 0, _AF_UNIX), errno.EAFNOSUPPORT), *_CONNECTED_PAIRS)
_NO_SOCKETS: tuple[Rule, ...] = (
    ("socket", None, errno.EAFNOSUPPORT),
    ("socketpair", ("is not", 0, _AF_UNIX), errno.EAFNOSUPPORT),
    *_CONNECTED_PAIRS,
    ("sendto", ("is not", 4, 0), errno.EPERM),
    *((name, None, errno.EPERM) for name in ("connect", "bind", "listen", "accept", "accept4")),
)
_NO_SHARED_IPC: tuple[Rule, ...] = (
    *(
        (name, None, errno.EPERM)
        for name in ("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl")
    ),
    *((name, None, errno.EPERM) for name in ("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink")),
    ("prlimit64", ("is not", 0, 0), errno.EPERM),  # a limit of another process can end it
)
"""Denied where the command stands among the processes of the machine, without namespaces of its own."""


def box_filter(*, sockets: Sockets, is_among_others: bool = False, machine: str = "") -> bytes:
    """The filter of a box as an array of ``struct sock_filter``; empty where the machine's numbers are not known.

    Args:
        sockets: which ones may be made. Among ``none`` also no message can be addressed: what is left are
            connected pairs, and those drop an address (unix(7)).
        is_among_others: the command has no namespaces of its own for processes and for System V IPC.
        machine: as uname(2) says it; empty for this one.
    """
    machine = machine or os.uname().machine
    if sys.platform != "linux" or machine not in _MACHINES or sys.byteorder != "little":
        return b""
    rules = _ALWAYS
    rules += {"all": (), "no_unix": _NO_UNIX, "none": _NO_SOCKETS}[sockets]
    if is_among_others:
        rules += _NO_SHARED_IPC
    return b"".join(_instructions(machine, rules))


def load(filter_: bytes) -> bool:
    """Put the calling process and all that it starts behind a filter; it must have given up new privileges before."""
    import array

    program = array.array("B", filter_)
    address, size = program.buffer_info()
    return (
        c_function("prctl")(_PR_SET_SECCOMP, _FILTER_MODE, struct.pack("HxxxxxxP", size // 8, address)) == 0
    )


def _instructions(machine: str, rules: tuple[Rule, ...]) -> Iterator[bytes]:
    yield _instruction(_LOAD, _MACHINE_AT)
    yield _instruction(_JUMP_EQUAL, _MACHINES[machine], jump_if=1)
    yield _denial(errno.ENOSYS)
    yield _instruction(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        yield _instruction(_JUMP_GREATER, _X32, jump_else=1)
        yield _denial(errno.ENOSYS)
    column = list(_MACHINES).index(machine)
    for name, test, number in rules:
        if _NUMBERS[name][column] >= 0:
            body = (*_tested(test), _denial(number))
            if test is not None:
                body += (_instruction(_LOAD, _NUMBER_AT),)
            yield _instruction(_JUMP_EQUAL, _NUMBERS[name][column], jump_else=len(body))
            yield from body
    yield _instruction(_RETURN, _ALLOW)


def _tested(test: Test | None) -> tuple[bytes, ...]:
    """Go on to the denial that follows where the argument meets the test; else past it.

    The upper half of an argument counts where it may be an address. The kernel itself reads only the lower half of
    flags, numbers of requests and families.
    """
    if test is None:
        return ()
    how, position, number = test
    low = _instruction(_LOAD, _ARGUMENTS_AT + 8 * position)
    if how == "is":
        return (low, _instruction(_JUMP_EQUAL, number, jump_else=1))
    if how == "bits":
        return (low, _instruction(_JUMP_BITS, number, jump_else=1))
    high = _instruction(_LOAD, _ARGUMENTS_AT + 8 * position + 4)
    return (
        low,
        _instruction(_JUMP_EQUAL, number, jump_else=2),
        high,
        _instruction(_JUMP_EQUAL, 0, jump_if=1),
    )


def _denial(number: int) -> bytes:
    return _instruction(_RETURN, _DENY | number)


def _instruction(code: int, number: int, *, jump_if: int = 0, jump_else: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump_if, jump_else, number)
