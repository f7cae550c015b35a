"""Files that look to one command as they were frozen, whatever is done to them meanwhile.

The process that supervises a command moves into a user and a mount namespace of its own, mounts a copy over each file,
read-only, and gives every capability away (user_namespaces(7), mount_namespaces(7)). The command then runs in the same
folder, with the same user, packages, ports and data; only these files cannot be written, replaced or unmounted by it,
and what another process writes to the originals does not reach it. In a further namespace of its own the mounts are
locked, so a process of the command cannot take them away there either.

A folder on the way is mounted over itself, so that no process of the command can rename it either. A process outside
can, and the mounts move with it. So :func:`displaced` looks, after the command has ended, whether each path still leads
to its copy, and the caller compares the times of files and folders around the run.

Linux only, and only where user namespaces may be used; :func:`enter` tells why it could not.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Mounts = Sequence[tuple[str, str]]
    """Pairs of a path and of the copy that is to stand there."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x0002_0000, 0x1000_0000  # linux/sched.h
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18  # linux/mount.h
_KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048 | 1 << 21
"""nosuid, nodev, noexec and how times are kept: a mount of another namespace may not lose them (mount(2))."""
_PR_SET_CHILD_SUBREAPER, _PR_CAPBSET_DROP = 36, 24  # linux/prctl.h
_CAPABILITY_COUNT = 64
_CAPABILITY_VERSION_3 = 0x2008_0522  # linux/capability.h


def c_function(name: str) -> Callable[..., int]:
    """A function of the C library that returns a status; a negative one is a failure.

    The package around _ctypes costs a run 2.5 ms, so it is loaded only where the module itself does not do.
    """
    try:
        import _ctypes

        itself: Any = None  # the process, as CDLL(None) opens it
        address, call = _ctypes.dlsym(_ctypes.dlopen(itself, 0), name), _ctypes.call_function
        return lambda *arguments: int(call(address, arguments))
    except (ImportError, AttributeError, TypeError):
        import ctypes

        function = getattr(ctypes.CDLL(None), name)
        return lambda *arguments: int(function(*arguments))


def enter(
    mounts: Mounts,
    *,
    root: str = "",
    before: Callable[[], str] | None = None,
    keeps_capabilities: bool = False,
) -> str:
    """Move the calling process into namespaces of its own where each path shows its copy, read-only.

    Call it in a process that was forked for one command, which has a single thread.

    Args:
        mounts: regular files and their copies.
        root: folders on the way from here to the files cannot be renamed by the command; they stay writable.
        before: arranges further mounts below these and says why it could not, else nothing.
        keeps_capabilities: the command is bubblewrap, which needs them for its own mounts and gives them away itself.

    Returns:
        Why it could not be done; empty where it was. After a failure the process is good for nothing more.
    """
    if fault_text := _enter_namespaces():
        return fault_text
    if before and (fault_text := before()):
        return fault_text
    try:
        kept = {
            folder: os.statvfs(folder).f_flag & _KEPT_FLAGS
            for folder in {os.path.dirname(copy) for _, copy in mounts}
        }
    except OSError as fault:
        return f"the copies cannot be found: {fault.strerror}"
    mount = c_function("mount")
    for folder in sorted(_folders_between(root, mounts)):
        if mount(os.fsencode(folder), os.fsencode(folder), None, _MS_BIND | _MS_REC, None) < 0:
            return f"{folder} cannot be held in its place"
    for path, copy_path in mounts:
        place, source = os.fsencode(path), os.fsencode(copy_path)
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept[os.path.dirname(copy_path)]
        if mount(source, place, None, _MS_BIND, None) < 0 or mount(None, place, None, flags, None) < 0:
            return f"{path} cannot be mounted over"
    left = displaced(mounts)
    if left:
        return f"{left[0]} does not show its copy"
    return "" if keeps_capabilities or drop_capabilities() else "capabilities cannot be given away"


def _folders_between(root: str, mounts: Mounts) -> set[str]:
    found: set[str] = set()
    inside = os.path.join(os.path.realpath(root), "") if root else ""
    for path, _ in mounts:
        folder = os.path.dirname(path)
        while inside and folder.startswith(inside) and folder not in found:
            found.add(folder)
            folder = os.path.dirname(folder)
    return found


def _enter_namespaces() -> str:
    if sys.platform != "linux":
        return "this system has no mount namespaces"
    user, group = os.geteuid(), os.getegid()
    if c_function("unshare")(_CLONE_NEWUSER | _CLONE_NEWNS) < 0:
        return "the system refuses user namespaces"
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "wb", buffering=0) as stream:
                stream.write(text.encode())
    except OSError as fault:
        return f"the user namespace cannot be set up: {fault.strerror}"
    if c_function("mount")(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) < 0:
        return "the system refuses mounts in a user namespace"
    return ""


def drop_capabilities() -> bool:
    """Leave nothing in the bounding set, so that also the root user gains nothing by starting a program."""
    prctl = c_function("prctl")
    for capability in range(_CAPABILITY_COUNT):
        prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # one that the kernel does not know is refused
    return c_function("capset")(_CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4), bytes(24)) == 0


def displaced(mounts: Mounts) -> tuple[str, ...]:
    """Paths that do not lead to their copies at this moment, asked inside the namespace."""
    found = []
    for path, copy_path in mounts:
        try:
            seen, copy = os.stat(path, follow_symlinks=False), os.stat(copy_path, follow_symlinks=False)
            is_there = (seen.st_dev, seen.st_ino) == (copy.st_dev, copy.st_ino)
        except OSError:
            is_there = False
        if not is_there:
            found.append(path)
    return tuple(found)


def adopt_orphans() -> None:
    """Become the parent of every process below us whose own parent ends (PR_SET_CHILD_SUBREAPER, prctl(2))."""
    if sys.platform == "linux":
        c_function("prctl")(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
