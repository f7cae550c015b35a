"""How pinned files stand now.

:func:`check_pins` runs at every stop. It rehashes a file only where its inode, size or times moved, and looks into a
folder for additions only where the folder moved; a time as new as the look itself proves nothing and is never kept.

Times are good enough to refuse a stop, not to let a mission complete: a page that a process has mapped and written to
once changes without a new time, and some file systems tell no honest times at all. So every run begins with a reading
of the pinned files, and a pass is believed only where a second reading, without any cache, finds them the same
(``missions/validation/runs.py``). In between, times are enough again where no process had a pinned file open for
writing: the first write of whoever opens it later moves them.
"""

from __future__ import annotations

import os
import stat
import sys
import time

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import AutoresearchError, WorkspaceFault
from omx_autoresearch.foundation.records import replace, to_plain
from omx_autoresearch.freezing.manifest import (
    Pin,
    PinCheck,
    PinManifest,
    is_pruned,
    loaded_names,
    module_name,
)
from omx_autoresearch.journal.safe_files import (
    is_open_for_writing,
    load_json,
    open_folder,
    open_inside,
    read_chunks,
    replace_file,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

RACY_NS = 20_000_000
"""Kernels before 6.13 stamp times in ticks of up to 10 ms: two changes within one have the same time."""
FOLDER_LIMIT = 50_000
_HARMLESS = frozenset({"antigravity", "idlelib", "lib2to3", "test", "this", "turtle", "turtledemo"})
STANDARD_MODULES = sys.stdlib_module_names - _HARMLESS
"""Names that a script imports from anywhere but its own folder."""
_READ_TRIES = 3


def manifest_of(pins: Iterable[Pin], runners: Iterable[str], notes: Iterable[str] = ()) -> PinManifest:
    """Return the manifest of these pins, sorted, with its digest."""
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


def check_pins(
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
        names = loaded_names(self.manifest.runners)
        if not names:
            return set()
        pinned = {pin.path for pin in self.manifest.pins if pin.kind != "absent-guard"}
        found, links = self.loaded_files(names)
        for link in links:
            if link not in pinned:
                found |= {f"{link}/{name}" for name in names if self._leads_to(f"{link}/{name}")}
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
            found |= {prefix + name for name in self._modules(folder) if module_name(name) in taken}
        found -= pinned | set(self.manifest.known_modules)
        return {
            path for path in found if "." in path.rpartition("/")[2] or self._leads_to(f"{path}/__init__.py")
        }

    def _modules(self, folder: str) -> list[str]:
        """Names in a folder that may be modules, from the cache if it is unmoved."""
        status = self._stat(folder)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return []
        marks = _marks(status)
        entry = self.known["modules"].get(folder)
        if not (isinstance(entry, list) and entry[0] == marks):
            try:
                names = os.listdir(os.path.join(self.workspace_path, folder))
            except OSError:
                names = []
            entry = [marks, sorted(name for name in names if module_name(name))]
        if status.st_ctime_ns < self.kept_before_ns:
            self.seen["modules"][folder] = entry
        return list(entry[1])

    def _leads_to(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self.workspace_path, path))

    def loaded_files(self, names: frozenset[str]) -> tuple[set[str], set[str]]:
        """Paths of these names in every folder that a runner enters by itself, and links to look behind."""
        found: set[str] = set()
        links: set[str] = set()
        waiting = [""]
        count = 0
        while waiting:
            folder = waiting.pop()
            count += 1
            if count > FOLDER_LIMIT:
                raise WorkspaceFault(
                    f"the workspace {self.workspace_path} has more than {FOLDER_LIMIT} folders to look through",
                    next_step="start the mission in a smaller project",
                )
            entry = self._listing(folder)
            prefix = f"{folder}/" if folder else ""
            waiting += [prefix + name for name in entry[1]]
            links |= {prefix + name for name in entry[2]}
            found |= {prefix + name for name in entry[3] if name in names}
        return found, links

    def _listing(self, folder: str) -> list[Any]:
        """[marks, folders, links, files that some runner loads] of a folder, from the cache if unmoved."""
        status = self._stat(folder)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return [[], [], [], []]
        marks = _marks(status)
        entry = self.known["folders"].get(folder)
        if not (isinstance(entry, list) and entry[0] == marks):
            entry = [marks, *_list_folder(os.path.join(self.workspace_path, folder), self.manifest.runners)]
        if status.st_ctime_ns < self.kept_before_ns:
            self.seen["folders"][folder] = entry
        return entry


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


def _list_folder(folder_path: str, runners: tuple[str, ...]) -> list[list[str]]:
    names = loaded_names(runners)
    folders: list[str] = []
    links: list[str] = []
    loaded: list[str] = []
    try:
        with os.scandir(folder_path) as entries:
            for entry in entries:
                if entry.name in names:
                    loaded.append(entry.name)
                elif is_pruned(entry.name):
                    continue
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_symlink():
                    links.append(entry.name)
    except OSError:
        return [[], [], []]  # a folder that nobody may list is one that no runner lists
    return [sorted(folders), sorted(links), sorted(loaded)]


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
