"""Pinned files: keep copies of them, compare the workspace with them, and restore it.

How a comparison works. A manifest lists paths with their digests, and paths at which nothing may stand. :func:`compare`
runs at every stop, so it reads as little as it can:

- A pinned file is hashed again only where its inode, size or times differ from those in the cache.
- A folder is listed again, to look for additions that a runner would load, only where the folder's own times moved.
- Two changes within one tick of the kernel's clock leave the same time. So a file or folder that changed less than
  :data:`RACY_NS` ago is compared but not cached.
- The cache is disposable, lies outside the workspace, and counts only for the same manifest and the same workspace.

Times are good enough to refuse a stop, but not to complete a mission: a page that a process has mapped and written to
once changes without a new time, and some file systems keep no honest times at all. So every run begins by reading the
pinned files, and a pass is believed only where a second reading, without the cache, finds the same contents
(``missions/validation/runs.py``). Between the two, times suffice where no process had a pinned file open for writing:
the first write by a process that opens it later moves them.

:func:`restore` moves whatever stands in the place of a restored file aside and deletes nothing. It walks every path
folder by folder on open descriptors, so that no link can lead a write elsewhere.
"""

from __future__ import annotations

import os
import stat
import sys
import time

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import AutoresearchError, StateUntrusted, WorkspaceFault
from omx_autoresearch.foundation.records import ShapeError, from_plain, replace, sha256, to_plain
from omx_autoresearch.freezing.manifest import (
    Pin,
    PinCheck,
    PinManifest,
    is_pruned,
    loaded_names,
    module_name,
)
from omx_autoresearch.journal.safe_files import (
    FILE_LIMIT_BYTES,
    ensure_folder,
    is_open_for_writing,
    load_json,
    open_below,
    open_folder,
    open_inside,
    read_bounded,
    read_chunks,
    read_inside,
    replace_file,
    storage_failed,
    sync_folder,
    write_all,
)
from omx_autoresearch.system.files import list_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

RACY_NS = 20_000_000
"""Kernels before 6.13 stamp times in ticks of up to 10 ms: two changes within one have the same time."""
FOLDER_LIMIT = 50_000
_HARMLESS = frozenset({"antigravity", "idlelib", "lib2to3", "test", "this", "turtle", "turtledemo"})
STANDARD_MODULES = sys.stdlib_module_names - _HARMLESS
"""Names that a script imports from anywhere but its own folder."""
_READ_TRIES = 3


def manifest_of(pins: Iterable[Pin], runners: Iterable[str], notes: Iterable[str] = ()) -> PinManifest:
    """The manifest of these pins, sorted, with its digest."""
    ordered = tuple(sorted(pins, key=lambda pin: pin.path))
    names = tuple(sorted(set(runners)))
    return PinManifest(ordered, names, manifest_digest(ordered, names), tuple(notes))


def manifest_digest(
    pins: tuple[Pin, ...],
    runners: tuple[str, ...],
    import_folders: tuple[str, ...] = (),
    known_modules: tuple[str, ...] = (),
) -> str:
    """Return the sha256 that stands for pins, and for what decides which additions tamper."""
    parts = [to_plain(pins), list(runners)]
    if import_folders:
        parts += [list(import_folders), list(known_modules)]
    return sha256(json_codec.encode(parts)).hexdigest()


def with_modules(manifest: PinManifest, import_folders: tuple[str, ...], workspace_path: str) -> PinManifest:
    """Return the manifest with the folders that scripts import from; modules that stand there already may stay."""
    looking = replace(manifest, import_folders=import_folders)
    look = _Look(looking, workspace_path, "")
    try:
        known = tuple(sorted(look.shadows()))
    finally:
        look.close()
    digest = manifest_digest(manifest.pins, manifest.runners, import_folders, known)
    return replace(looking, known_modules=known, digest=digest)


# --- how pinned paths stand now

State = tuple[str, str, bool]
"""Kind, digest, whether the owner may execute it."""


def _expected(pin: Pin) -> State:
    return (pin.kind, pin.sha256, pin.kind == "file" and bool(pin.mode & stat.S_IXUSR))


def compare(
    manifest: PinManifest, workspace_path: str, *, cache_path: str = "", reads_files: bool = False
) -> PinCheck:
    """Compare the pinned paths with the manifest, and look for additions that a runner loads by itself.

    Args:
        manifest: of the contract.
        workspace_path: where the files stand now; another worktree of the project will do.
        cache_path: file outside the workspace that keeps what was seen; disposable; empty for none.
        reads_files: read every pinned file, whatever the cache says of it.

    Raises:
        WorkspaceFault: the workspace cannot be opened, or has more than :data:`FOLDER_LIMIT` folders.
    """
    look = _Look(manifest, workspace_path, cache_path, reads_files=reads_files)
    try:
        changed, added = look.compare()
    finally:
        look.close()
    writable = tuple(sorted(look.writable))
    if not changed and not added:
        return PinCheck(manifest.digest, writable=writable)
    seen = [manifest.digest, [[path, *changed[path]] for path in sorted(changed)], sorted(added)]
    digest = sha256(json_codec.encode(seen)).hexdigest()
    return PinCheck(digest, tuple(sorted(changed)), tuple(sorted(added)), writable)


class _Look:
    """One comparison: what the cache knows, what is seen, what the next cache will know."""

    def __init__(
        self, manifest: PinManifest, workspace_path: str, cache_path: str, *, reads_files: bool = False
    ) -> None:
        self.manifest = manifest
        self.workspace_path = workspace_path
        self.cache_path = cache_path
        self.reads_files = reads_files
        self.loaded_names = loaded_names(manifest.runners)
        self.writable: set[str] = set()
        self.root = open_folder(workspace_path)
        self.kept_before_ns = time.time_ns() - RACY_NS
        self.known = self._load()
        self.seen: dict[str, Any] = {"files": {}, "folders": {}, "modules": {}}

    def close(self) -> None:
        os.close(self.root)

    def _key(self) -> list[str]:
        return [self.manifest.digest, os.path.realpath(self.workspace_path)]

    def _load(self) -> dict[str, Any]:
        """What an earlier look left; a cache that is absent, broken or of another manifest is none."""
        try:
            cache = load_json(self.cache_path) if self.cache_path else {}
            if cache.get("key") == self._key():
                return {name: dict(cache[name]) for name in ("files", "folders", "modules")}
        except (OSError, AutoresearchError, AttributeError, KeyError, TypeError, ValueError):
            pass
        return {"files": {}, "folders": {}, "modules": {}}

    def _save(self) -> None:
        if not self.cache_path or self.seen == self.known:
            return
        try:
            data = json_codec.encode({"key": self._key(), **self.seen})
            replace_file(self.cache_path, data, is_durable=False)
        except AutoresearchError:
            return  # the cache is disposable: the next look hashes again

    def compare(self) -> tuple[dict[str, State], set[str]]:
        misplaced = self._misplaced_folders()
        changed: dict[str, State] = {}
        added = set()
        for pin in self.manifest.pins:
            is_astray = pin.path.rpartition("/")[0] in misplaced
            state: State = ("astray", "", False) if is_astray else self._state(pin)
            if pin.kind == "absent-guard":
                if state[0] not in ("absent-guard", "astray"):
                    added.add(pin.path)
            elif state != _expected(pin):
                changed[pin.path] = state
        added |= self._additions() | self.shadows()
        self._save()
        return changed, added

    def _misplaced_folders(self) -> set[str]:
        """Folders of pins that are not real folders all the way: a swapped one would lead elsewhere."""
        misplaced: set[str] = set()
        for folder in sorted({each for pin in self.manifest.pins for each in _folders_of(pin.path)}):
            parent = folder.rpartition("/")[0]
            status = None if parent in misplaced else self._stat(folder)
            if status is None or not stat.S_ISDIR(status.st_mode):
                misplaced.add(folder)
        return misplaced

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path or ".", dir_fd=self.root, follow_symlinks=False)
        except OSError:
            return None

    def _state(self, pin: Pin) -> State:
        status = self._stat(pin.path)
        if status is None:
            return ("absent-guard", "", False)
        if stat.S_ISLNK(status.st_mode):
            return ("symlink", self._link_digest(pin.path), False)
        if not stat.S_ISREG(status.st_mode):
            return ("special", "", False)
        if pin.kind == "absent-guard":
            return ("file", "", False)
        is_executable = bool(status.st_mode & stat.S_IXUSR)
        marks = _marks(status)
        entry = self.known["files"].get(pin.path)
        if not self.reads_files and isinstance(entry, list) and entry[:-1] == marks:
            digest = entry[-1]
        else:
            if status.st_size != pin.size_bytes:
                return ("file", f"size {status.st_size}", is_executable)
            digest = digest_of_file(self.workspace_path, pin.path, marks, self.writable)
        if status.st_ctime_ns < self.kept_before_ns and digest and pin.path not in self.writable:
            self.seen["files"][pin.path] = [*marks, digest]
        return ("file", digest, is_executable)

    def _link_digest(self, path: str) -> str:
        try:
            return sha256(os.fsencode(os.readlink(path, dir_fd=self.root))).hexdigest()
        except OSError:
            return ""

    def _additions(self) -> set[str]:
        if not self.loaded_names:
            return set()
        pinned = {pin.path for pin in self.manifest.pins if pin.kind != "absent-guard"}
        found, links = self._loaded_files()
        for link in links - pinned:
            found |= {f"{link}/{name}" for name in self.loaded_names if self._leads_to(f"{link}/{name}")}
        return found - pinned

    def shadows(self) -> set[str]:
        """Modules that would be imported in the place of a pinned one, or of the standard library's."""
        pinned = {pin.path for pin in self.manifest.pins}
        stems: dict[str, set[str]] = {folder: set() for folder in self.manifest.import_folders}
        for path in pinned:
            if path.endswith(".py"):
                folder, _, name = path.rpartition("/")
                stems.setdefault(folder, set()).add(name[:-3])
        found = set()
        for folder, own in stems.items():
            taken = own | STANDARD_MODULES if folder in self.manifest.import_folders else own
            prefix = f"{folder}/" if folder else ""
            found |= {
                prefix + name
                for name in self._cached("modules", folder, _module_names)[0]
                if module_name(name) in taken
            }
        found -= pinned | set(self.manifest.known_modules)
        return {
            path for path in found if "." in path.rpartition("/")[2] or self._leads_to(f"{path}/__init__.py")
        }

    def _cached(
        self, table: str, folder: str, list_names: Callable[[list[os.DirEntry[str]]], list[list[str]]]
    ) -> list[list[str]]:
        """The names that a function picks from a folder, from the cache if it is unmoved; nothing without a folder."""
        status = self._stat(folder)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return list_names([])
        marks = _marks(status)
        entry = self.known[table].get(folder)
        if not (isinstance(entry, list) and entry[:1] == [marks]):
            try:
                entries = list_folder(os.path.join(self.workspace_path, folder))
            except OSError:
                entries = []  # no runner can list it either
            entry = [marks, *list_names(entries)]
        if status.st_ctime_ns < self.kept_before_ns:
            self.seen[table][folder] = entry
        return list(entry[1:])

    def _leads_to(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self.workspace_path, path))

    def _loaded_files(self) -> tuple[set[str], set[str]]:
        """Files that a runner loads, in every folder that it enters by itself, and links to look behind."""
        found: set[str] = set()
        links: set[str] = set()
        waiting = [""]
        count = 0
        while waiting:
            folder = waiting.pop()
            count += 1
            if count > FOLDER_LIMIT:
                raise WorkspaceFault(
                    f"the workspace {self.workspace_path} has more than {FOLDER_LIMIT} folders to search",
                    next_step="start the mission in a smaller project",
                )
            folders, links_here, loaded = self._cached("folders", folder, self._entered)
            prefix = f"{folder}/" if folder else ""
            waiting += [prefix + name for name in folders]
            links |= {prefix + name for name in links_here}
            found |= {prefix + name for name in loaded}
        return found, links

    def _entered(self, entries: list[os.DirEntry[str]]) -> list[list[str]]:
        """Of a folder's entries: folders that a runner enters, links, and files that it loads by itself."""
        folders: list[str] = []
        links: list[str] = []
        loaded: list[str] = []
        for entry in entries:
            if entry.name in self.loaded_names:
                loaded.append(entry.name)
            elif is_pruned(entry.name):
                continue
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            elif entry.is_symlink():
                links.append(entry.name)
        return [folders, links, loaded]


Stamps = dict[str, list[int]]
"""By path: device, inode, mode, size, mtime and ctime of pinned files, links and the folders that they stand in."""


def pin_stamps(manifest: PinManifest, workspace_path: str) -> Stamps:
    """How the pinned paths stand at this moment, for :func:`touched`; no content is read."""
    files = [pin.path for pin in manifest.pins if pin.kind != "absent-guard"]
    folders = {folder for path in files for folder in _folders_of(path)}
    stamps: Stamps = {}
    root = open_folder(workspace_path)
    try:
        for path in (*files, *(f"{folder}/" for folder in folders)):
            try:
                stamps[path] = _marks(os.stat(path.rstrip("/"), dir_fd=root, follow_symlinks=False))
            except OSError:
                stamps[path] = []
    finally:
        os.close(root)
    return stamps


def touched(before: Stamps, after: Stamps) -> tuple[str, ...]:
    """Pinned paths that were written, replaced or moved in between, whatever stands there again now.

    A folder counts where it was moved: a new ctime without a new mtime. One that gained an entry has both, and a check
    may write beside its files.
    """
    found = []
    for path, marks in before.items():
        now = after.get(path, [])
        if not marks or not now or not path.endswith("/"):
            is_touched = marks != now
        else:
            is_touched = marks[:2] != now[:2] or (marks[-1] != now[-1] and marks[-2] == now[-2])
        if is_touched:
            found.append(path)
    return tuple(sorted(found))


def _module_names(entries: list[os.DirEntry[str]]) -> list[list[str]]:
    return [[entry.name for entry in entries if module_name(entry.name)]]


def _folders_of(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _marks(status: os.stat_result) -> list[int]:
    return [
        status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    ]  # fmt: skip


def digest_of_file(
    root_path: str, path: str, marks: list[int] | None = None, writable: set[str] | None = None
) -> str:
    """Return the sha256 of a regular file as one moment had it; empty where it cannot be read or keeps changing.

    ``marks`` of the file as the caller saw it: the content is of that very file, or the answer is empty. The path is
    added to ``writable`` where a process holds the file open for writing.
    """
    for _ in range(_READ_TRIES):
        try:
            descriptor = open_inside(root_path, path)
        except (OSError, WorkspaceFault):
            return ""
        try:
            before = _marks(os.fstat(descriptor))
            if writable is not None and is_open_for_writing(descriptor):
                writable.add(path)
            digest = sha256()
            for chunk in read_chunks(descriptor):
                digest.update(chunk)
            if _marks(os.fstat(descriptor)) == before and marks in (None, before):
                return digest.hexdigest()
        except (OSError, WorkspaceFault):
            return ""
        finally:
            os.close(descriptor)
    return ""


# --- frozen copies

CURRENT = "manifest.json"
"""The newest manifest; each also stands under its own digest."""

ASIDE_PATH = ".omx/aside"
"""Where restored workspaces keep what stood in the way, numbered, for people to take back."""


def pin(frozen_path: str, manifest: PinManifest, workspace_path: str) -> None:
    """Copy every pinned file into ``frozen_path``, by content, and the manifest last.

    Raises:
        WorkspaceFault: a file is no longer what the manifest says.
        StorageFailed: the system refused a write.
    """
    ensure_folder(frozen_path)
    written = []
    for pin in manifest.pins:
        if pin.kind == "absent-guard" or _copy_of(frozen_path, pin) is not None:
            continue
        data = read_pinned(workspace_path, pin)
        if sha256(data).hexdigest() != pin.sha256:
            raise WorkspaceFault(
                f"{pin.path} changed while it was being frozen",
                next_step=f"run the same command again; if the check itself writes it: --protect '!{pin.path}'",
            )
        copy_path = os.path.join(frozen_path, pin.sha256)
        replace_file(copy_path, data, is_durable=False)
        written.append(copy_path)
    _make_durable(frozen_path, written)
    data = json_codec.encode(to_plain(manifest))
    for name in (f"manifest-{manifest.digest}.json", CURRENT):
        replace_file(os.path.join(frozen_path, name), data)


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
        return read_inside(workspace_path, pin.path)
    except OSError as error:
        raise WorkspaceFault(
            f"{pin.path} cannot be read: {error.strerror}",
            next_step=f"ls -l {os.path.join(workspace_path, pin.path)}",
        ) from error


def _copy_of(frozen_path: str, pin: Pin) -> bytes | None:
    """The frozen copy of a pinned file; None where it is missing or was changed."""
    try:
        data = read_bounded(os.path.join(frozen_path, pin.sha256), FILE_LIMIT_BYTES)
    except (FileNotFoundError, StateUntrusted):
        return None
    return data if sha256(data).hexdigest() == pin.sha256 else None


def load_manifest(frozen_path: str, digest: str = "") -> PinManifest:
    """Return the manifest that :func:`pin` left.

    Args:
        frozen_path: the mission's folder of frozen copies.
        digest: of the contract's manifest; empty for the newest one.

    Raises:
        StateUntrusted: it is missing, or is not what its digest says.
    """
    path = os.path.join(frozen_path, f"manifest-{digest}.json" if digest else CURRENT)
    cure = f"omx-autoresearch amend {_task_of(frozen_path)} --reason 're-pin' (or cancel)"
    try:
        manifest: PinManifest = from_plain(PinManifest, load_json(path))
    except FileNotFoundError:
        raise StateUntrusted(f"the manifest of pinned files {path} is missing", next_step=cure) from None
    except (ShapeError, TypeError) as error:
        raise StateUntrusted(f"{path} cannot be trusted: {error}", next_step=cure) from None
    own = manifest_digest(manifest.pins, manifest.runners, manifest.import_folders, manifest.known_modules)
    if own != manifest.digest:
        raise StateUntrusted(f"{path} does not match its own digest", next_step=cure)
    if digest not in ("", manifest.digest):
        raise StateUntrusted(f"{path} is the manifest of another contract", next_step=cure)
    return manifest


# --- putting back


def restore(manifest: PinManifest, workspace_path: str, *, frozen_path: str) -> tuple[str, ...]:
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
    check = compare(manifest, workspace_path)
    if check.is_intact:
        return ()
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
    if not compare(manifest, workspace_path).is_intact:
        raise WorkspaceFault(
            f"the pinned files of {workspace_path} changed again during the restore",
            next_step=f"stop the process that writes there, then: omx-autoresearch restore {_task_of(frozen_path)}",
        )
    return tuple(sorted((*check.changed, *check.added)))


def _task_of(frozen_path: str) -> str:
    """The mission whose folder holds these copies."""
    return os.path.basename(os.path.dirname(os.path.abspath(frozen_path)))


def _required_copy(frozen_path: str, pin: Pin) -> bytes:
    data = _copy_of(frozen_path, pin)
    if data is None:
        path = os.path.join(frozen_path, pin.sha256)
        raise StateUntrusted(
            f"the frozen copy {path} of {pin.path} is missing or was changed",
            next_step="put the file back by hand, then: "
            f"omx-autoresearch amend {_task_of(frozen_path)} --reason 're-pin'",
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
        self.folder = open_folder(workspace_path, f"{ASIDE_PATH}/{number}")

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
