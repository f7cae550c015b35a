"""What happens to pinned paths while a command runs, and is undone before anybody looks again.

Times tell of a file that was written or replaced. They do not tell of a configuration that stood there for a moment,
nor of a folder that was moved away and back while an entry was made in it. The kernel does (`system.watching`). It
also tells a write from a change of times, modes or links, which a command that sees frozen copies does not notice.

What is put into a folder that is new itself is told from the moment at which we look into it.

Files that a runner loads by their names are looked for in the folders of pinned files alone: elsewhere they do no more
than a new test can do.
"""

from __future__ import annotations

import os

from omx_autoresearch.freezing.manifest import loaded_names, module_name
from omx_autoresearch.freezing.pins import globs_by_folder, is_loaded, pin_stamps, taken_modules, touched
from omx_autoresearch.system.watching import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.freezing.manifest import PinManifest
    from omx_autoresearch.system.watching import Told

_PACKAGE = ("__init__.py", "__init__.pyc")


class Meanwhile:
    """The pinned paths of a workspace from now on.

    Attributes:
        watch: is to be read while the command runs.
    """

    def __init__(self, manifest: PinManifest, workspace_path: str, *, is_mounted: bool) -> None:
        self._manifest = manifest
        self._workspace_path = os.path.realpath(workspace_path)
        self._seen: dict[str, None] = {}
        self._judging: dict[str, set[str]] = {"": set()}
        """By folder: names in it that judge, or that must not be there."""
        self._guarded_folders: set[str] = set()
        """Folders that may be made, but in which something must not be."""
        self._known = {*manifest.known_modules, *(pin.path for pin in manifest.pins)}
        self._modules = taken_modules(manifest)
        self._globs = globs_by_folder(manifest)
        self.watch = Watch()
        files = [pin.path for pin in manifest.pins if pin.kind == "file"]
        self._name_all()
        for folder in tuple(self._judging):
            self._enter(folder)
        above = os.path.dirname(self._workspace_path)
        while above != os.path.dirname(above):
            self.watch.moves(above, self._noting(above))
            above = os.path.dirname(above)
        for path in files if is_mounted else ():
            self.watch.writes(self._full(path), self._noting(path))
        self._before = pin_stamps(manifest, self._workspace_path)

    @property
    def unseen(self) -> str:
        """What may happen without being seen, and why; empty where nothing may."""
        fault = self.watch.fault
        return fault and f"what stands for a moment while a check runs may go unseen: {fault}"

    def close(self) -> None:
        """Look no longer."""
        self.watch.close()

    def forget(self, paths: Iterable[str]) -> None:
        """Leave out what happened to these paths up to now: the caller itself did it."""
        self.watch.read()
        for path in paths:
            self._seen.pop(path, None)

    def moved(self, *, is_mounted: bool) -> tuple[str, ...]:
        """Paths at which something happened since that a command may have been judged by, a folder's with a slash.

        Args:
            is_mounted: the command saw the frozen copies in the places of the files.
        """
        self.watch.read()
        if is_mounted and not self.watch.fault:
            return tuple(sorted(self._seen))
        times = touched(self._before, pin_stamps(self._manifest, self._workspace_path))
        return tuple(sorted({*self._seen, *times}))

    def _full(self, path: str) -> str:
        return os.path.join(self._workspace_path, path)

    def _noting(self, path: str) -> Told:
        return lambda _name, _is_folder: self._note(path)

    def _note(self, path: str) -> None:
        self._seen[path] = None

    def _name_all(self) -> None:
        """Fill in what matters in each folder on the way to a pin or a guard."""
        names = loaded_names(self._manifest.runners)
        self._judging[""] |= names
        for pin in self._manifest.pins:
            is_guard = pin.kind == "absent-guard"
            path = pin.path
            while path:
                folder, _, name = path.rpartition("/")
                judging = self._judging.setdefault(folder, set())
                if is_guard and path != pin.path:
                    self._guarded_folders.add(path)
                else:
                    judging.add(name)
                if path == pin.path and not is_guard:
                    judging |= names
                path = folder
        for folder in (*self._modules, *self._globs):
            self._judging.setdefault(folder, set())

    def _enter(self, folder: str) -> None:
        """Watch a folder that is there; what stands in it already was seen by the look before, or is noted now."""

        def told(name: str, is_folder: bool) -> None:
            path = f"{folder}/{name}" if folder else name
            if not name:
                self._note(f"{folder}/" if folder else self._workspace_path)
            elif name in self._judging.get(folder, ()) and path not in self._manifest.known_modules:
                self._note(f"{path}/" if is_folder else path)
            elif is_folder:
                self._look_into(folder, name, path)
            elif "." in name and self._stands_in(folder, name, path):
                self._note(path)

        if os.path.isdir(self._full(folder)) and not os.path.islink(self._full(folder)):
            self.watch.entries(self._full(folder), told)

    def _stands_in(self, folder: str, name: str, path: str) -> bool:
        if path in self._known:
            return False
        return module_name(name) in self._modules.get(folder, ()) or is_loaded(
            name, self._globs.get(folder, ())
        )

    def _look_into(self, folder: str, name: str, path: str) -> None:
        """A new folder, of which only what is in it may judge."""
        if self._stands_in(folder, name, path):
            self._judging.setdefault(path, set()).update(_PACKAGE)
        elif path not in self._guarded_folders:
            return
        if not os.path.isdir(self._full(path)):  # gone again, so what was in it is not known
            self._note(f"{path}/")
        self._enter(path)
        for inside in self._judging.get(path, ()):
            if os.path.lexists(self._full(f"{path}/{inside}")):
                self._note(f"{path}/{inside}")
        for guarded in self._guarded_folders:
            above, _, below = guarded.rpartition("/")
            if above == path and os.path.isdir(self._full(guarded)):
                self._look_into(path, below, guarded)
