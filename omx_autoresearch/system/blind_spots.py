"""What this machine cannot see of changes to files: said once, before anything leans on it."""

from __future__ import annotations

import os
import sys

MOUNTS_PATH = "/proc/self/mountinfo"
"""The kernel's table of mounts (proc_pid_mountinfo(5))."""
_WITHOUT_CHANGE_TIMES = frozenset({"exfat", "msdos", "vfat"})
_KEPT_ELSEWHERE = frozenset(
    {"9p", "afs", "ceph", "cifs", "drvfs", "fuse", "fuseblk", "lustre", "nfs", "nfs4", "prl_fs", "smb3", "smbfs",
     "vboxsf", "virtiofs"}
)  # fmt: skip
_NO_NAMESPACES = (
    "this system has no mount namespaces and does not tell what happens while a check runs: frozen files are hashed "
    "before and after it, and what is swapped meanwhile and put back, also through an open mapping, may go unseen"
)
_SEEN = "so a file that is changed and put back, or that is changed without a new time, may go unseen"


def blind_spots(folder_path: str) -> tuple[str, ...]:
    """What cannot be seen of changes to files in a folder while a command runs there, a sentence each."""
    if sys.platform != "linux":
        return (_NO_NAMESPACES,)
    kind = file_system(folder_path)
    why = ""
    if kind in _WITHOUT_CHANGE_TIMES:
        why = "which keeps no times of changes that hold"
    elif kind in _KEPT_ELSEWHERE or kind.startswith("fuse."):
        why = "whose times another program or machine keeps, and which does not tell of changes made there"
    return (f"{folder_path} lies on {kind}, {why}, {_SEEN} (a local disk has neither fault)",) if why else ()


def file_system(path: str) -> str:
    """The kind of the file system at a path, as the kernel names it; empty where that cannot be known."""
    place = os.path.realpath(path)
    found = ("", "")
    try:
        with open(MOUNTS_PATH, encoding="utf-8", errors="surrogateescape") as stream:
            for line in stream:
                mount, _, about = line.partition(" - ")
                point = _unescaped(mount.split(" ")[4])
                is_at = place == point or place.startswith(os.path.join(point, ""))
                if is_at and len(point) >= len(found[0]):  # a later one covers an earlier one
                    found = (point, about.split(" ", 1)[0])
    except (OSError, IndexError):
        return ""
    return found[1]


def _unescaped(text: str) -> str:
    for sign in (" ", "\t", "\n", "\\"):
        text = text.replace(f"\\{ord(sign):03o}", sign)
    return text
