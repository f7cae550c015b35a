"""Pinned files: keep copies of them, and compare the workspace with them.

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
    open_folder,
    open_inside,
    read_bounded,
    read_chunks,
    read_inside,
    replace_file,
    storage_failed,
    sync_folder,
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
_TABLES = ("files", "folders", "modules", "globs", "facts")


def manifest_of(pins: Iterable[Pin], runners: Iterable[str], notes: Iterable[str] = ()) -> PinManifest:
    """The manifest of these pins, sorted, with its digest."""
    ordered = tuple(sorted(pins, key=lambda pin: pin.path))
    names = tuple(sorted(set(runners)))
    return _with_digest(PinManifest(ordered, names, notes=tuple(notes)))


def manifest_digest(manifest: PinManifest) -> str:
    """Return the sha256 that stands for pins, and for what decides which additions tamper."""
    parts = [to_plain(manifest.pins), list(manifest.runners)]
    if manifest.import_folders or manifest.known_modules:
        parts += [list(manifest.import_folders), list(manifest.known_modules)]
    later = {name: list(getattr(manifest, name)) for name in ("taken_names", "loaded_globs")}
    if any(later.values()):  # an older manifest has none of them
        parts.append(later)
    if manifest.facts:
        parts.append(to_plain(manifest.facts))
    return sha256(json_codec.encode(parts)).hexdigest()


def _with_digest(manifest: PinManifest) -> PinManifest:
    return replace(manifest, digest=manifest_digest(manifest))


def with_modules(
    manifest: PinManifest,
    import_folders: tuple[str, ...],
    workspace_path: str,
    welcome: Iterable[str] = (),
) -> PinManifest:
    """Return the manifest with the folders that scripts import from; modules that stand there already may stay.

    So may those of ``welcome``, files that a runner would load and that the owner does not want to be looked for.
    """
    looking = replace(manifest, import_folders=import_folders)
    look = _Look(looking, workspace_path, "")
    try:
        known = tuple(sorted({*look.shadows(), *look.matches(), *welcome}))
    finally:
        look.close()
    return _with_digest(replace(looking, known_modules=known))


def without(manifest: PinManifest, paths: Iterable[str]) -> PinManifest:
    """Return the manifest without the pins of these paths, and with a note for each."""
    left_out = set(paths)
    pins = tuple(pin for pin in manifest.pins if pin.path not in left_out)
    notes = tuple(f"{path} is not frozen, because the check itself writes it" for path in sorted(left_out))
    return _with_digest(replace(manifest, pins=pins, notes=(*manifest.notes, *notes)))


def with_pins(manifest: PinManifest, pins: Iterable[Pin]) -> PinManifest:
    """Return the manifest with further pins."""
    ordered = tuple(sorted((*manifest.pins, *pins), key=lambda pin: pin.path))
    return _with_digest(replace(manifest, pins=ordered))


def carried_over(manifest: PinManifest, old: PinManifest, changed: Iterable[str]) -> PinManifest:
    """Return the manifest with every path that the old one has as it was frozen then.

    Args:
        manifest: taken from the workspace as it is now.
        old: in force so far.
        changed: its paths that differ now; one that is missing, and so not found anew, stays pinned as well.
    """
    before, found = {pin.path: pin for pin in old.pins}, {pin.path for pin in manifest.pins}
    missing = tuple(before[path] for path in changed if path in before and path not in found)
    pins = tuple(
        sorted((*(before.get(pin.path, pin) for pin in manifest.pins), *missing), key=lambda pin: pin.path)
    )
    facts = {fact.name: fact for fact in (*manifest.facts, *old.facts)}
    return _with_digest(
        replace(
            manifest,
            pins=pins,
            known_modules=old.known_modules,
            facts=tuple(facts[name] for name in sorted(facts)),
        )
    )


# --- how pinned paths stand now

State = tuple[str, str, bool]
"""Kind, digest, whether the owner may execute it."""


def _expected(pin: Pin) -> State:
    return (pin.kind, pin.sha256, pin.kind == "file" and bool(pin.mode & stat.S_IXUSR))


def compare(
    manifest: PinManifest,
    workspace_path: str,
    *,
    cache_path: str = "",
    reads_files: bool = False,
    frozen_path: str = "",
) -> PinCheck:
    """Compare the pinned paths with the manifest, and look for additions that a runner loads by itself.

    Args:
        manifest: of the contract.
        workspace_path: where the files stand now; another worktree of the project will do.
        cache_path: file outside the workspace that keeps what was seen; disposable; empty for none.
        reads_files: read every pinned file, whatever the cache says of it.
        frozen_path: the frozen copies, where runs see those: then an edit that changes nothing of what a file
            judges is no change.

    Raises:
        WorkspaceFault: the workspace cannot be opened, or has more than :data:`FOLDER_LIMIT` folders.
    """
    look = _Look(manifest, workspace_path, cache_path, reads_files=reads_files)
    try:
        changed, added = look.compare()
    finally:
        look.close()
    writable = tuple(sorted(look.writable))
    edited: tuple[tuple[str, str], ...] = ()
    facts = {fact.name for fact in manifest.facts}
    if frozen_path and changed:
        from omx_autoresearch.freezing.harmless_edits import harmless_edits

        edited = harmless_edits(
            manifest, workspace_path, sorted(set(changed) - facts), lambda pin: copy_path(frozen_path, pin)
        )
        changed = {path: state for path, state in changed.items() if path not in dict(edited)}
    if not changed and not added:
        return PinCheck(manifest.digest, writable=writable, edited=edited)
    seen = [manifest.digest, [[path, *changed[path]] for path in sorted(changed)], sorted(added)]
    digest = sha256(json_codec.encode(seen)).hexdigest()
    return PinCheck(digest, tuple(sorted(changed)), tuple(sorted(added)), writable, edited)


def _is_only_runnable_now(pin: Pin, state: State) -> bool:
    """The file is as it was frozen, but may be run now: a person's ``chmod +x``, which changes nothing of it."""
    return state == ("file", pin.sha256, True) and pin.kind == "file"


def taken_modules(manifest: PinManifest) -> dict[str, frozenset[str]]:
    """By folder: the modules for which a new file or package in it would stand in."""
    taken = STANDARD_MODULES.union(manifest.taken_names)
    stems: dict[str, set[str]] = {folder: set(taken) for folder in manifest.import_folders}
    for pin in manifest.pins:
        folder, _, name = pin.path.rpartition("/")
        if name.endswith(".py"):
            stems.setdefault(folder, set()).add(name[:-3])
    return {folder: frozenset(names) for folder, names in stems.items()}


def globs_by_folder(manifest: PinManifest) -> dict[str, list[tuple[str, str]]]:
    """By folder: how a name that is loaded by itself begins and ends; what a wildcard leaves open is taken to match."""
    found: dict[str, list[tuple[str, str]]] = {}
    for glob in manifest.loaded_globs:
        folder, _, name = glob.rpartition("/")
        wild = [at for at, char in enumerate(name) if char in "*?[]"]
        found.setdefault(folder, []).append((name[: wild[0]], name[wild[-1] + 1 :]))
    return found


def is_loaded(name: str, ends: Iterable[tuple[str, str]]) -> bool:
    """True for a name that begins and ends in one of these ways."""
    return any(name.startswith(start) and name.endswith(end) for start, end in ends)


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
        self.seen: dict[str, Any] = {name: {} for name in _TABLES}

    def close(self) -> None:
        os.close(self.root)

    def _key(self) -> list[str]:
        return [self.manifest.digest, os.path.realpath(self.workspace_path)]

    def _load(self) -> dict[str, Any]:
        """What an earlier look left; a cache that is absent, broken or of another manifest is none."""
        try:
            cache = load_json(self.cache_path) if self.cache_path else {}
            if cache.get("key") == self._key():
                return {name: dict(cache[name]) for name in _TABLES}
        except (OSError, AutoresearchError, AttributeError, KeyError, TypeError, ValueError):
            pass
        return {name: {} for name in _TABLES}

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
            elif state != _expected(pin) and not _is_only_runnable_now(pin, state):
                changed[pin.path] = state
        if self.manifest.facts:
            from omx_autoresearch.freezing.facts import changed_facts

            known = {} if self.reads_files else self.known["facts"]
            facts = changed_facts(self.manifest, self.workspace_path, known, self.seen["facts"])
            changed |= {name: ("fact", digest, False) for name, digest in facts.items()}
        added |= self._additions() | self.shadows() | self.matches()
        self._save()
        return changed, added

    def _misplaced_folders(self) -> set[str]:
        """Folders of pins that are not real folders all the way: a swapped one would lead elsewhere."""
        misplaced: set[str] = set()
        for folder in sorted({each for pin in self.manifest.pins for each in folders_of(pin.path)}):
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
        return found - pinned - set(self.manifest.known_modules)

    def shadows(self) -> set[str]:
        """Modules that would be imported in the place of a pinned one, or of the standard library's."""
        found = set()
        for folder, taken in taken_modules(self.manifest).items():
            prefix = f"{folder}/" if folder else ""
            found |= {
                prefix + name
                for name in self._cached("modules", folder, _module_names)[0]
                if module_name(name) in taken
            }
        found -= {pin.path for pin in self.manifest.pins} | set(self.manifest.known_modules)
        return {
            path for path in found if "." in path.rpartition("/")[2] or self._leads_to(f"{path}/__init__.py")
        }

    def matches(self) -> set[str]:
        """Files that stand where the evaluator loads whatever it finds."""
        found: set[str] = set()
        for folder, ends in globs_by_folder(self.manifest).items():

            def matching(entries: list[os.DirEntry[str]], ends: Any = ends) -> list[list[str]]:
                return [[entry.name for entry in entries if is_loaded(entry.name, ends)]]

            prefix = f"{folder}/" if folder else ""
            found |= {prefix + name for name in self._cached("globs", folder, matching)[0]}
        return found - {pin.path for pin in self.manifest.pins} - set(self.manifest.known_modules)

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
    folders = {folder for path in files for folder in folders_of(path)}
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


def folders_of(path: str) -> list[str]:
    """The folders on the way to a path, without the root."""
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

_PATH_DIGITS = 16
CURRENT = "manifest.json"
"""The newest manifest; each also stands under its own digest."""


def pin(frozen_path: str, manifest: PinManifest, workspace_path: str) -> None:
    """Copy every pinned file into ``frozen_path``, and the manifest last.

    Raises:
        WorkspaceFault: a file is no longer what the manifest says.
        StorageFailed: the system refused a write.
    """
    ensure_folder(frozen_path)
    written = []
    for pin in manifest.pins:
        path = copy_path(frozen_path, pin)
        if pin.kind == "absent-guard" or _read_copy(path, pin) is not None:
            continue
        data = read_pinned(workspace_path, pin)
        if sha256(data).hexdigest() != pin.sha256:
            raise WorkspaceFault(
                f"{pin.path} changed while it was being frozen",
                next_step=f"run the same command again; if the check itself writes it: --protect '!{pin.path}'",
            )
        replace_file(path, data, is_durable=False)
        _make_alike(path, pin, os.path.join(workspace_path, pin.path))
        written.append(path)
    _make_durable(frozen_path, written)
    data = json_codec.encode(to_plain(manifest))
    for name in (f"manifest-{manifest.digest}.json", CURRENT):
        replace_file(os.path.join(frozen_path, name), data)


def copy_path(frozen_path: str, pin: Pin) -> str:
    """Where the copy of a pin stands: each has its own, since a command may compare inodes and times.

    So has each program, since the copy may be run in its place.
    """
    is_program = pin.kind == "file" and pin.mode & stat.S_IXUSR
    name = f"{pin.sha256}-{sha256(os.fsencode(pin.path)).hexdigest()[:_PATH_DIGITS]}"
    return os.path.join(frozen_path, f"{name}.x" if is_program else name)


def _make_alike(copy_path: str, pin: Pin, original_path: str) -> None:
    """Give a copy what a command sees of the original in its place: that it is a program, and its time."""
    if pin.kind != "file":
        return
    try:
        os.chmod(copy_path, 0o700 if pin.mode & stat.S_IXUSR else 0o600)
        modified_ns = os.stat(original_path).st_mtime_ns
        os.utime(copy_path, ns=(modified_ns, modified_ns))
    except OSError as error:
        raise storage_failed("write", copy_path, error) from error


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


def copy_of(frozen_path: str, pin: Pin) -> bytes | None:
    """The frozen copy of a pinned file; None where it is missing or was changed."""
    older = (f"{pin.sha256}.x", pin.sha256)  # of a mission that an older version launched
    places = (copy_path(frozen_path, pin), *(os.path.join(frozen_path, name) for name in older))
    return next((data for path in places if (data := _read_copy(path, pin)) is not None), None)


def _read_copy(path: str, pin: Pin) -> bytes | None:
    try:
        data = read_bounded(path, FILE_LIMIT_BYTES)
    except (FileNotFoundError, StateUntrusted):
        return None
    return data if sha256(data).hexdigest() == pin.sha256 else None


def copies_of(manifest: PinManifest, workspace_path: str, frozen_path: str) -> tuple[tuple[str, str], ...]:
    """Each pinned file's path and that of its frozen copy, as `system.mounts` takes them; links have none.

    A copy is a program where the file is one now: a person may have given it that right since.
    """
    root = os.path.realpath(workspace_path)
    found = []
    for pin in manifest.pins:
        if pin.kind == "file":
            path = os.path.join(root, pin.path)
            found.append((path, _copy_to_mount(frozen_path, pin, path)))
    return tuple(found)


def _copy_to_mount(frozen_path: str, pin: Pin, original_path: str) -> str:
    """Where the copy stands that looks like the file; it is made where only another one is there."""
    is_program = os.access(original_path, os.X_OK)
    wanted = replace(pin, mode=pin.mode | stat.S_IXUSR) if is_program else pin
    path, own_path = copy_path(frozen_path, wanted), copy_path(frozen_path, pin)
    is_there = os.path.lexists(path) if path == own_path else _read_copy(path, pin) is not None
    if not is_there and (data := copy_of(frozen_path, pin)) is not None:
        replace_file(path, data, is_durable=False)
        _make_alike(
            path, wanted, own_path if os.path.lexists(own_path) and path != own_path else original_path
        )
    return path


def changed_copies(manifest: PinManifest, frozen_path: str) -> tuple[str, ...]:
    """Pinned files whose frozen copy is missing or no longer what it was; every copy is read."""
    return tuple(
        pin.path
        for pin in manifest.pins
        if pin.kind == "file" and _read_copy(copy_path(frozen_path, pin), pin) is None
    )


def task_of(frozen_path: str) -> str:
    """The mission whose folder holds these copies."""
    return os.path.basename(os.path.dirname(os.path.abspath(frozen_path)))


def load_manifest(frozen_path: str, digest: str = "") -> PinManifest:
    """Return the manifest that :func:`pin` left.

    Args:
        frozen_path: the mission's folder of frozen copies.
        digest: of the contract's manifest; empty for the newest one.

    Raises:
        StateUntrusted: it is missing, or is not what its digest says.
    """
    path = os.path.join(frozen_path, f"manifest-{digest}.json" if digest else CURRENT)
    cure = f"omx-autoresearch amend {task_of(frozen_path)} --take-edits --reason 're-pin'"
    try:
        manifest: PinManifest = from_plain(PinManifest, load_json(path))
    except FileNotFoundError:
        raise StateUntrusted(f"the manifest of pinned files {path} is missing", next_step=cure) from None
    except (ShapeError, TypeError) as error:
        raise StateUntrusted(f"{path} cannot be trusted: {error}", next_step=cure) from None
    if manifest_digest(manifest) != manifest.digest:
        raise StateUntrusted(f"{path} does not match its own digest", next_step=cure)
    if digest not in ("", manifest.digest):
        raise StateUntrusted(f"{path} is the manifest of another contract", next_step=cure)
    return manifest
