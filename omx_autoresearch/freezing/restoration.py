"""Putting frozen files back where they stood.

What stands in the place of a restored file is moved aside, never deleted. Every path is walked folder by folder on open
descriptors, so that no link can lead a write elsewhere.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing.pins import compare, copy_of, copy_path, task_of
from omx_autoresearch.journal.safe_files import open_below, open_folder, storage_failed, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.freezing.manifest import Pin, PinManifest

ASIDE_PATH = ".omx/aside"
"""Where restored workspaces keep what stood in the way, numbered, for people to take back."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes:
        paths: that were put back or moved away, sorted; empty when nothing had changed.
        aside_path: the folder that has what stood there, relative to the workspace; empty when nothing had changed.
    """

    paths: tuple[str, ...] = ()
    aside_path: str = ""


def restore(manifest: PinManifest, workspace_path: str, *, frozen_path: str) -> Restored:
    """Make the workspace's pinned paths what they were at launch.

    Changed files come back with content, mode and kind; additions that a runner would load are moved away. Every
    folder on the way is made real again. Links are never followed.

    Raises:
        StateUntrusted: a frozen copy is missing or not what it was.
        WorkspaceFault: ``.omx`` of the workspace leads elsewhere, or the workspace keeps changing.
        StorageFailed: the system refused.
    """
    check = compare(manifest, workspace_path)
    if check.is_intact:
        return Restored()
    facts = {fact.name for fact in manifest.facts}.union(check.changed) - {pin.path for pin in manifest.pins}
    changed = [pin for pin in manifest.pins if pin.path in set(check.changed)]
    contents = {pin.path: _required_copy(frozen_path, pin) for pin in changed}
    try:
        aside = _Aside(workspace_path)
        try:
            for path in check.added:
                aside.take(path)
            for pin in changed:
                _put_back(workspace_path, pin, contents[pin.path], aside)
        finally:
            aside.close()
    except OSError as error:
        raise storage_failed("restore the pinned files of", workspace_path, error) from error
    after = compare(manifest, workspace_path)
    if left := facts.intersection(after.changed):
        raise WorkspaceFault(
            f"{', '.join(sorted(left))}: no whole file, so it cannot be put back for you; all else is as it was frozen",
            next_step="put it back by hand (git diff shows the edit), or let the owner accept it: omx-autoresearch"
            f" amend {task_of(frozen_path)} --take-edits --reason '...'",
        )
    if not after.is_intact:
        raise WorkspaceFault(
            f"the pinned files of {workspace_path} changed again during the restore",
            next_step=f"stop the process that writes there, then: omx-autoresearch restore {task_of(frozen_path)}",
        )
    return Restored(tuple(sorted((*check.changed, *check.added))), aside.path)


def _required_copy(frozen_path: str, pin: Pin) -> bytes:
    data = copy_of(frozen_path, pin)
    if data is None:
        path = copy_path(frozen_path, pin)
        raise StateUntrusted(
            f"the frozen copy {path} of {pin.path} is missing or was changed",
            next_step="put the file back by hand, then: "
            f"omx-autoresearch amend {task_of(frozen_path)} --take-edits --reason 're-pin'",
        )
    return data


class _Aside:
    """A numbered folder of its own for what is moved away."""

    def __init__(self, workspace_path: str) -> None:
        self.workspace_path = workspace_path
        self.taken = 0
        parent = open_folder(workspace_path, ASIDE_PATH, make=True)
        try:
            names = os.listdir(parent)
            if ".gitignore" not in names:
                _write_file(parent, ".gitignore", b"*\n", 0o644)
            number = 1 + max((int(name) for name in names if name.isdecimal()), default=0)
            os.mkdir(str(number), 0o700, dir_fd=parent)
        finally:
            os.close(parent)
        self.path = f"{ASIDE_PATH}/{number}"
        self.folder = open_folder(workspace_path, self.path)

    def close(self) -> None:
        os.close(self.folder)

    def take(self, path: str) -> None:
        """Move whatever stands at ``path`` away, under a flat name that tells where it stood."""
        folder_path, _, name = path.rpartition("/")
        try:
            parent = open_folder(self.workspace_path, folder_path)
        except WorkspaceFault:
            self.take(folder_path)  # a link to a folder: it goes itself, not what it leads to
            return
        except FileNotFoundError:
            return
        try:
            self.take_from(parent, name, path)
        finally:
            os.close(parent)

    def take_from(self, parent: int, name: str, path: str) -> None:
        """Move ``name`` of an open folder away; nothing happens where nothing stands."""
        self.taken += 1  # a number of its own, since two paths may have one flat name
        kept = f"{self.taken}-{path.replace('/', '__')[-100:]}"
        try:
            os.rename(name, kept, src_dir_fd=parent, dst_dir_fd=self.folder)
        except FileNotFoundError:
            return


def _put_back(workspace_path: str, pin: Pin, data: bytes, aside: _Aside) -> None:
    *folders, name = pin.path.split("/")
    parent = open_folder(workspace_path)
    try:
        for count, folder in enumerate(folders):
            parent = _real_folder(parent, folder, "/".join(folders[: count + 1]), aside)
        aside.take_from(parent, name, pin.path)
        if pin.kind == "symlink":
            os.symlink(os.fsdecode(data), name, dir_fd=parent)
        else:
            _write_file(parent, name, data, pin.mode)
        os.fsync(parent)
    finally:
        os.close(parent)


def _real_folder(parent: int, name: str, path: str, aside: _Aside) -> int:
    """Open a folder in ``parent``, which is closed; anything else in its place is moved away first."""
    try:
        try:
            return open_below(parent, name, make=True)
        except WorkspaceFault:
            aside.take_from(parent, name, path)
            return open_below(parent, name, make=True)
    finally:
        os.close(parent)


def _write_file(parent: int, name: str, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
