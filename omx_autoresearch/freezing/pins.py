"""Frozen copies of pinned files: making them, and putting them back.

What stands in the place of a restored file is moved aside, never deleted. Every path is walked folder by folder on open
descriptors, so that no link can lead a write elsewhere. The comparison itself is :mod:`.pin_check`.
"""

from __future__ import annotations

import os
import stat

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.foundation.records import ShapeError, from_plain, to_plain
from omx_autoresearch.freezing.comparison import check_pins, manifest_digest
from omx_autoresearch.freezing.manifest import Pin, PinManifest
from omx_autoresearch.journal.safe_files import (
    FILE_LIMIT_BYTES,
    ensure_folder,
    load_json,
    make_folder,
    open_folder,
    open_inside,
    read_bounded,
    read_chunks,
    replace_file,
    storage_failed,
    sync_folder,
    write_all,
)

__all__ = ["ASIDE_PATH", "CURRENT", "check_pins", "freeze", "load_manifest", "read_pinned", "restore_pins"]

CURRENT = "manifest.json"
"""The newest manifest; each also stands under its own digest."""

ASIDE_PATH = ".omx/aside"
"""Where restored workspaces keep what stood in the way, numbered, for people to take back."""


def freeze(frozen_path: str, manifest: PinManifest, workspace_path: str) -> None:
    """Copy every pinned file into ``frozen_path``, by content, and the manifest last.

    Raises:
        WorkspaceFault: a file is no longer what the manifest says.
        StorageFailed: the system refused a write.
    """
    ensure_folder(frozen_path)
    written = []
    for pin in manifest.pins:
        copy_path = os.path.join(frozen_path, pin.sha256)
        if pin.kind == "absent-guard" or _is_whole(copy_path, pin):
            continue
        data = read_pinned(workspace_path, pin)
        if sha256(data).hexdigest() != pin.sha256:
            raise WorkspaceFault(
                f"{pin.path} changed while it was being frozen",
                next_step=f"run the same command again; if the check itself writes it: --protect '!{pin.path}'",
            )
        _write_copy(copy_path, data)
        written.append(copy_path)
    _make_durable(frozen_path, written)
    data = json_codec.encode(to_plain(manifest))
    for name in (f"manifest-{manifest.digest}.json", CURRENT):
        replace_file(os.path.join(frozen_path, name), data)


def _write_copy(path: str, data: bytes) -> None:
    """Write a copy under its digest; one that a crash cut short is found by that digest and written again."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise storage_failed("write", path, error) from error


def _make_durable(folder_path: str, paths: list[str]) -> None:
    """Sync the copies after all were written: the file system then needs few commits instead of one a file."""
    try:
        for path in paths:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(folder_path)
    except OSError as error:
        raise storage_failed("sync the frozen copies in", folder_path, error) from error


def read_pinned(workspace_path: str, pin: Pin) -> bytes:
    """Return a pinned file's content, or a pinned link's text, as it is now.

    Raises:
        WorkspaceFault: it cannot be read.
    """
    try:
        if pin.kind == "symlink":
            folder = open_folder(workspace_path, pin.path.rpartition("/")[0])
            try:
                return os.fsencode(os.readlink(pin.path.rpartition("/")[2], dir_fd=folder))
            finally:
                os.close(folder)
        descriptor = open_inside(workspace_path, pin.path)
        try:
            return b"".join(read_chunks(descriptor))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WorkspaceFault(
            f"{pin.path} cannot be read: {error.strerror}",
            next_step=f"ls -l {os.path.join(workspace_path, pin.path)}",
        ) from error


def _is_whole(copy_path: str, pin: Pin) -> bool:
    try:
        return sha256(read_bounded(copy_path, FILE_LIMIT_BYTES)).hexdigest() == pin.sha256
    except (FileNotFoundError, StateUntrusted):
        return False


def load_manifest(frozen_path: str, digest: str = "") -> PinManifest:
    """Return the manifest that :func:`freeze` left.

    Args:
        frozen_path: the mission's folder of frozen copies.
        digest: of the contract's manifest; empty for the newest one.

    Raises:
        StateUntrusted: it is missing, or is not what its digest says.
    """
    path = os.path.join(frozen_path, f"manifest-{digest}.json" if digest else CURRENT)
    cure = f"omx-autoresearch amend {_task_of(frozen_path)} --reason 'pin anew' (or cancel)"
    try:
        manifest: PinManifest = from_plain(PinManifest, load_json(path))
    except FileNotFoundError:
        raise StateUntrusted(f"the manifest of pinned files {path} is missing", next_step=cure) from None
    except (ShapeError, TypeError) as error:
        raise StateUntrusted(f"{path} cannot be believed: {error}", next_step=cure) from None
    own = manifest_digest(manifest.pins, manifest.runners, manifest.import_folders, manifest.known_modules)
    if own != manifest.digest:
        raise StateUntrusted(f"{path} does not have the digest that it names", next_step=cure)
    if digest not in ("", manifest.digest):
        raise StateUntrusted(f"{path} is the manifest of another contract", next_step=cure)
    return manifest


# --- putting back


def restore_pins(manifest: PinManifest, workspace_path: str, *, frozen_path: str) -> tuple[str, ...]:
    """Make the workspace's pinned paths what they were at launch.

    Changed files come back with content, mode and kind; additions that a runner would load are moved away. Every
    folder on the way is made real again. Links are never followed.

    Returns:
        The paths that were put back or moved to :data:`ASIDE_PATH`, sorted; empty when nothing had changed.

    Raises:
        StateUntrusted: a frozen copy is missing or not what it was.
        WorkspaceFault: ``.omx`` of the workspace leads elsewhere, or the workspace keeps changing.
        StorageFailed: the system refused.
    """
    check = check_pins(manifest, workspace_path)
    if check.is_intact:
        return ()
    changed = [pin for pin in manifest.pins if pin.path in set(check.changed)]
    contents = {pin.path: _frozen(frozen_path, pin) for pin in changed}
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
    if not check_pins(manifest, workspace_path).is_intact:
        raise WorkspaceFault(
            f"the pinned files of {workspace_path} changed again while they were put back",
            next_step=f"stop what writes there, then: omx-autoresearch restore {_task_of(frozen_path)}",
        )
    return tuple(sorted((*check.changed, *check.added)))


def _task_of(frozen_path: str) -> str:
    """The mission whose folder holds these copies."""
    return os.path.basename(os.path.dirname(os.path.abspath(frozen_path)))


def _frozen(frozen_path: str, pin: Pin) -> bytes:
    path = os.path.join(frozen_path, pin.sha256)
    try:
        data = read_bounded(path, FILE_LIMIT_BYTES)
    except FileNotFoundError:
        data = b""
    if sha256(data).hexdigest() != pin.sha256:
        raise StateUntrusted(
            f"the frozen copy {path} of {pin.path} is missing or was changed",
            next_step="put the file back by hand, then: "
            f"omx-autoresearch amend {_task_of(frozen_path)} --reason 'pin anew'",
        )
    return data


class _Aside:
    """A numbered folder of its own for what is moved away."""

    def __init__(self, workspace_path: str) -> None:
        self.workspace_path = workspace_path
        self.taken = 0
        parent = open_folder(workspace_path, ASIDE_PATH, make=True)
        try:
            _ignore_all(parent)
            self.number = 1 + max((int(name) for name in os.listdir(parent) if name.isdecimal()), default=0)
            os.mkdir(str(self.number), 0o700, dir_fd=parent)
        finally:
            os.close(parent)
        self.folder = open_folder(workspace_path, f"{ASIDE_PATH}/{self.number}")

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


def _ignore_all(folder: int) -> None:
    try:
        descriptor = os.open(
            ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder
        )
    except FileExistsError:
        return
    try:
        write_all(descriptor, b"*\n")
    finally:
        os.close(descriptor)


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
    """Open a folder in ``parent``, which is closed; what stands in its place is moved away first."""
    try:
        try:
            is_real = stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            is_real = True
        if not is_real:
            aside.take_from(parent, name, path)
        make_folder(parent, name)
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
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
