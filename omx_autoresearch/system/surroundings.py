"""What a boxed command sees around its workspace, where things cannot be left as they are (mount_namespaces(7)).

- Names that other programs load, which do not exist in the workspace: an overlay with the workspace itself as its
  upper layer shows an empty, read-only folder in the place of each. Every other change goes straight into the
  workspace, and nothing is left behind in it. (A mount alone would need a real mount point.) git, which knows no empty
  folders, sees nothing of them.
- The home folder: seen through a read-only overlay, a socket or a FIFO is another one, at whose other end nobody
  listens.
- Folders of the system that are written by everybody (/tmp, /dev/shm) are empty and go with the command.

A system that refuses one of these refuses all: the caller then runs the command without, and has to make do.
"""

from __future__ import annotations

import os
import struct

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.system.mounts import c_function

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_READ_ONLY, _NO_SUID, _NO_DEVICES, _REMOUNT, _BIND, _RECURSIVE = 1, 2, 4, 32, 4096, 16384  # linux/mount.h
_KEPT_FLAGS = 2 | 4 | 8 | 1024 | 2048 | 1 << 21
_MOUNT_SETATTR, _HERE, _ALL_BELOW = 442, -100, 0x8000
_PLAIN_OVERLAY = "userxattr,index=off,metacopy=off,redirect_dir=nofollow,xino=off"
"""With none of the features that would mark files of the workspace."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """How things are to look; all paths are real ones.

    Attributes:
        workspace_path: stays writable unless ``is_read_only``.
        work_path: an empty folder of our own on the file system of the workspace, outside of it.
        kept_names: what cannot be changed in the workspace.
        hides_absent_names: those of them that do not exist cannot be made either.
        home_path: whose sockets and FIFOs are out of reach; empty for none.
        open_paths: what stays as it is inside home and private folders.
        shown_paths: what can still be read there.
        private_paths: what is empty, writable, and goes with the command.
        is_rest_read_only: nothing else can be changed, modes and times included.
    """

    workspace_path: str
    work_path: str
    kept_names: tuple[str, ...] = ()
    hides_absent_names: bool = True
    is_read_only: bool = False
    home_path: str = ""
    open_paths: tuple[str, ...] = ()
    shown_paths: tuple[str, ...] = ()
    private_paths: tuple[str, ...] = ()
    is_rest_read_only: bool = False

    def arrange(self) -> str:
        """Arrange the mounts in a namespace of our own; why it could not be done, empty where it was.

        Call it with the capabilities of a new user namespace (`system.mounts.enter`).
        """
        own = os.path.join(self.work_path, "own")
        try:
            os.mkdir(own)
            _mount("tmpfs", own, _NO_SUID | _NO_DEVICES, "tmpfs")
            _keep_names(self, os.path.join(own, "names"))
            _arrange_rest(self, os.path.join(own, "empty"))
        except OSError as fault:
            return f"the surroundings of the command cannot be arranged: {fault.strerror}"
        return ""


def _keep_names(wanted: Surroundings, names: str) -> None:
    workspace = wanted.workspace_path
    present = [name for name in wanted.kept_names if os.path.lexists(os.path.join(workspace, name))]
    absent = [name for name in wanted.kept_names if name not in present]
    if absent and wanted.hides_absent_names and not wanted.is_read_only:
        work = os.path.join(wanted.work_path, "work")
        os.mkdir(work)
        for name in absent:
            os.makedirs(os.path.join(names, name), 0o555)
        _overlay(workspace, names, upper=workspace, work=work)
        _mount(names, names, _BIND)
        _mount("", names, _REMOUNT | _BIND | _READ_ONLY | _kept_flags(names))
        for name in absent:
            _mount(os.path.join(names, name), os.path.join(workspace, name), _BIND)
    for name in present:
        path = os.path.realpath(os.path.join(workspace, name))
        if path.startswith(os.path.join(workspace, "")):
            _mount(path, path, _BIND | _RECURSIVE)
            _mount("", path, _REMOUNT | _BIND | _READ_ONLY | _kept_flags(path))


def _arrange_rest(wanted: Surroundings, empty: str) -> None:
    covers = [path for path in (wanted.home_path, *wanted.private_paths) if path and os.path.isdir(path)]
    writable = [wanted.workspace_path, *wanted.open_paths]
    # A shown folder around the workspace is put in its place first: it would cover it.
    covered = [path for path in sorted((*writable, *wanted.shown_paths)) if _is_below(path, covers)]
    held = [(path, os.open(path, os.O_PATH)) for path in covered]
    os.mkdir(empty)
    if wanted.is_rest_read_only:
        _make_read_only()
    for path in covers:
        if path == wanted.home_path:
            _overlay(path, empty, path)
        else:
            _mount("tmpfs", path, _NO_SUID | _NO_DEVICES, "tmpfs", "mode=1777")
    for path, descriptor in held:
        os.makedirs(path, exist_ok=True)  # only in a private folder it is not there
        _mount(f"/proc/self/fd/{descriptor}", path, _BIND | _RECURSIVE)
        os.close(descriptor)
    if wanted.is_rest_read_only:
        _mount("devpts", "/dev/pts", _NO_SUID, "devpts", "newinstance,ptmxmode=0666,mode=620")
        for path in wanted.open_paths if wanted.is_read_only else writable:
            _mount("", path, _REMOUNT | _BIND | _kept_flags(path))


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(path.startswith(os.path.join(folder, "")) for folder in folders)


def _overlay(target: str, *lower: str, upper: str = "", work: str = "") -> None:
    """Mount an overlay; the layers are named by descriptors, since their paths could hold what separates options."""
    layers = {path: os.open(path, os.O_PATH) for path in (*lower, upper, work) if path}
    named = {path: f"/proc/self/fd/{descriptor}" for path, descriptor in layers.items()}
    options = f"lowerdir={':'.join(named[path] for path in lower)},{_PLAIN_OVERLAY}"
    if upper:
        # Without "volatile" the end of the run would wait for the disk to take all that the system has to write.
        options += f",upperdir={named[upper]},workdir={named[work]},volatile"
    try:
        _mount("overlay", target, _NO_SUID | _NO_DEVICES | (0 if upper else _READ_ONLY), "overlay", options)
    finally:
        for descriptor in layers.values():
            os.close(descriptor)


def _kept_flags(path: str) -> int:
    return os.statvfs(path).f_flag & _KEPT_FLAGS


def _make_read_only() -> None:
    attributes = struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0)
    if c_function("syscall")(_MOUNT_SETATTR, _HERE, b"/", _ALL_BELOW, attributes, len(attributes)) < 0:
        raise OSError(0, "the system cannot make all mounts read-only")


def _mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    words = [os.fsencode(word) if word else None for word in (source, target, kind, options)]
    if c_function("mount")(words[0], words[1], words[2], flags, words[3]) < 0:
        raise OSError(0, f"the system refuses a mount on {target}")
