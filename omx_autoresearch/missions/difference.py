"""What changed in the workspace since the launch, each file with the reasons to look at it, and its lines.

Begin with :func:`difference_since_launch`. Nothing is run, and only the stop that completes a mission waits for it.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing import pins
from omx_autoresearch.freezing.installed import installed_modules
from omx_autoresearch.freezing.manifest import DEFAULTS, PinManifest, is_test, module_name
from omx_autoresearch.freezing.work import Work
from omx_autoresearch.journal.safe_files import read_inside
from omx_autoresearch.missions import launch_tree
from omx_autoresearch.missions.rules.difference import Change, Difference, by_weight, difference_of
from omx_autoresearch.missions.rules.evidence import is_code
from omx_autoresearch.missions.workspace import refuse_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omx_autoresearch.foundation.types import ChangeFlag, ChangeKind
    from omx_autoresearch.journal.layout import MissionFolder, Runtime
    from omx_autoresearch.missions.launch_tree import FileChange
    from omx_autoresearch.missions.rules.mission import Contract, Mission

LOST = "no list of the files at launch is there (it was lost, or an older version launched the mission)"
_DATA = re.compile(
    r"\.(?:ans|bin|csv|dat|db|expected|gold|golden|in|jsonl?|np[yz]|out|parquet|pickle|pkl|ref|snap|sql|sqlite|tsv|txt"
    r"|xml|ya?ml)"
)
"""Endings of files that a check reads rather than runs."""
_NOT_DATA = re.compile(
    r"(?i)(?:.*[-.]lock.*|package(?:-lock)?\.json|[jt]sconfig.*\.json|requirements.*\.txt|cmakelists\.txt|pnpm-.*\.yaml"
    r"|(?:readme|license|licence|notice|authors|copying|changelog|changes|news)\b.*)"
)
_TEST_FOLDERS = frozenset(name for runner in DEFAULTS.values() for name in runner.test_folders)
_NO_MODULES = frozenset({"", "test", "tests", "docs", "examples", "scripts"})
"""Names that careless packages install, and that no check imports."""
_PLACES = frozenset({"", "src", "lib"})
"""Folders from which modules are imported, beside those of what judges."""
_WORD = re.compile(r"[\w.+-]+")
_IMPORT = re.compile(r"(?m)^.*\b(?:from|import|include|load|mod|require|source|use)\b.*$")
_TEXT_BYTES = 256 * 1024
_TEXTS_BYTES = 16 * 1024 * 1024


def difference_since_launch(runtime: Runtime, mission: Mission, *, read_digest: str = "") -> Difference:
    """Everything that differs from the launch; why it is not known is a value.

    Args:
        runtime: whose mission it is.
        mission: one that was launched.
        read_digest: as for `launch_tree.changed_files`.
    """
    folder = runtime.home.mission(mission.task_id)
    try:
        return difference_of(
            change for change, _ in flagged_changes(folder, mission, read_digest=read_digest)
        )
    except AutoresearchError as error:
        return Difference(fault=error.message)


def flagged_changes(
    folder: MissionFolder, mission: Mission, *, read_digest: str = ""
) -> list[tuple[Change, FileChange]]:
    """Every change, and the file that it stands for.

    Raises:
        WorkspaceFault: the workspace cannot be read.
        StateUntrusted: the mission was never launched, or its manifest is lost.
        AutoresearchError: it is not known how the files stood at launch.
    """
    before = launch_tree.launch_files(folder, mission)
    refuse_gone(mission)
    if before is None or mission.contract is None:
        cure = f"git -C {shlex.quote(mission.workspace_path)} diff {mission.launch_head}"
        status = f"omx-autoresearch status {mission.task_id}"
        raise AutoresearchError(LOST, next_step=cure if mission.launch_head else status)
    changed = launch_tree.changed_files(before, mission.workspace_path, read_digest=read_digest)
    if not changed:
        return []
    manifest = pins.load_manifest(folder.frozen_path, mission.contract.pin_digest)
    judges = _Judges(folder, mission, mission.contract, manifest)
    return [(judges.change_of(file), file) for file in changed]


class _Judges:
    """What is known of the files that decide a verdict, for the flags of a change.

    Paths of pins are relative to the workspace, those of changes to the root of the repository.
    """

    def __init__(
        self, folder: MissionFolder, mission: Mission, contract: Contract, manifest: PinManifest
    ) -> None:
        self._frozen_path = folder.frozen_path
        self._workspace_path = os.path.realpath(mission.workspace_path)
        self._contract = contract
        self._manifest = manifest
        self._work = Work(contract.work)
        below = os.path.relpath(self._workspace_path, launch_tree.root_of(self._workspace_path))
        self._prefix = "" if below == "." else f"{below}/"

    def change_of(self, file: FileChange) -> Change:
        """The change with its flags."""
        path, old_path = os.fsdecode(file.name), os.fsdecode(file.old_name)
        flags = set(self._flags(path, is_new=not file.before or bool(old_path)))
        if old_path:
            flags.update(self._flags(old_path, is_new=False))
        return Change(_shown(path), _kind(file), by_weight(flags), _shown(old_path))

    def _flags(self, path: str, *, is_new: bool) -> Iterator[ChangeFlag]:
        if not path.startswith(self._prefix):
            return  # outside the workspace: no check of the mission runs there
        path = path[len(self._prefix) :]
        if is_new and self._shadows(path):
            yield "shadows an installed module"
        if path in self._work:
            return  # the owner named it: it is there to be changed, and to be read
        if _is_test_or_data(path):
            yield "test or data"
        if is_new and self._is_loaded_from(path):
            yield "new in a loaded folder"
        if self._is_read(path):
            yield "read by the check"

    def _shadows(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if name == "__init__.py":
            folder, _, name = folder.rpartition("/")
        elif os.path.exists(os.path.join(self._workspace_path, folder, "__init__.py")):
            return False  # it is imported by the name of its package
        names = pins.STANDARD_MODULES | self._installed
        return folder in self._folders | _PLACES and module_name(name) in names - _NO_MODULES

    def _is_loaded_from(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if not folder:  # most of what judges stands there, and so does everything else
            return "" in self._manifest.import_folders and bool(module_name(name))
        return folder in self._folders and (is_code(name) or _has_data(name))

    def _is_read(self, path: str) -> bool:
        name = os.path.basename(path)
        if path in self._manifest.opened or name in self._words:
            return True
        stem, folders = os.path.splitext(name)[0], path.split("/")[:-1]
        if _has_data(name):
            return bool(folders) and folders[-1] in self._words
        if stem in ("__init__", "index", "mod") and folders:
            stem = folders[-1]
        return is_code(name) and stem in self._imports

    @cached_property
    def _folders(self) -> frozenset[str]:
        """Folders that hold something that judges, or from which it imports."""
        held = {pin.path.rpartition("/")[0] for pin in self._manifest.pins if pin.kind != "absent-guard"}
        return frozenset((*held, *self._manifest.import_folders))

    @cached_property
    def _installed(self) -> frozenset[str]:
        return installed_modules(self._contract.environment, self._workspace_path)

    @cached_property
    def _texts(self) -> list[str]:
        """What judges, as text: the commands, and the pinned files within bounds."""
        texts = [self._contract.validator_command, *(" ".join(c.rule.argv) for c in self._contract.criteria)]
        left_bytes = _TEXTS_BYTES
        for pin in self._manifest.pins:
            if pin.kind != "file" or pin.size_bytes > min(_TEXT_BYTES, left_bytes):
                continue
            if _has_data(pin.path):
                continue  # data names everything, and reads nothing
            data = pins.copy_of(self._frozen_path, pin)
            if data is None:
                data = _read(self._workspace_path, pin.path)
            left_bytes -= len(data)
            texts.append(data.decode("utf-8", "replace"))
        return texts

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(word.strip(".") for text in self._texts for word in _WORD.findall(text))

    @cached_property
    def _imports(self) -> frozenset[str]:
        lines = (line for text in self._texts for line in _IMPORT.findall(text))
        words = (word for line in lines for word in _WORD.findall(line))
        return frozenset(part for word in words for part in word.split(".")) - pins.STANDARD_MODULES


def _kind(file: FileChange) -> ChangeKind:
    if file.old_name:
        return "moved"
    if not file.before:
        return "added"
    if not file.after:
        return "removed"
    return "mode" if file.before.split(b" ")[1:] == file.after.split(b" ")[1:] else "edited"


def _is_test_or_data(path: str) -> bool:
    if any(is_test(path, runner) for runner in DEFAULTS):
        return True
    *folders, name = path.split("/")
    if any(folder.startswith(".") for folder in folders) or name.startswith("."):
        return False
    if not _TEST_FOLDERS.isdisjoint(folders):
        return is_code(name)
    return _has_data(name) and not _NOT_DATA.fullmatch(name)


def _has_data(path: str) -> bool:
    return bool(_DATA.fullmatch(os.path.splitext(path)[1]))


def _read(workspace_path: str, path: str) -> bytes:
    try:
        return read_inside(workspace_path, path, _TEXT_BYTES)
    except (OSError, AutoresearchError):
        return b""


def _shown(path: str) -> str:
    """A path as a record can hold it."""
    return os.fsencode(path).decode("utf-8", "replace")


# --- the lines of a change

_LINES_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class ChangedLines:
    """The lines of one change.

    Attributes:
        added, removed: their numbers; None where they cannot be told.
        patch: as a unified diff; empty where it cannot be told.
        fault: why; empty where it can.
    """

    added: int | None = None
    removed: int | None = None
    patch: str = ""
    fault: str = ""


def changed_lines(
    folder: MissionFolder, mission: Mission, files: Iterable[FileChange]
) -> dict[bytes, ChangedLines]:
    """The lines of these changes, by the name of the file.

    Raises:
        WorkspaceFault: git cannot be started.
    """
    files = list(files)
    workspace_path = mission.workspace_path
    before = launch_tree.launch_contents(folder, workspace_path, {file.before for file in files})
    found = {}
    for file in files:
        old = before.get(file.before) if file.before else b""
        new = launch_tree.content_now(workspace_path, file.name) if file.after else b""
        found[file.name] = _lines_between(file, old, new)
    return found


def _lines_between(file: FileChange, old: bytes | None, new: bytes | None) -> ChangedLines:
    if file.before == file.after:
        return ChangedLines(0, 0)  # it was moved
    if new is None:
        return ChangedLines(fault="unreadable now, or too large")
    if old is None:
        return ChangedLines(fault="not kept at the launch, or too large")
    if b"\0" in old or b"\0" in new:
        return ChangedLines(fault="binary")
    olds, news = _lines_of(old), _lines_of(new)
    if max(len(olds), len(news)) > _LINES_LIMIT:
        return ChangedLines(fault="too many lines")
    import difflib  # only who reads the lines needs it

    name = _shown(os.fsdecode(file.name))
    names = (f"a/{name}" if file.before else "/dev/null", f"b/{name}" if file.after else "/dev/null")
    lines = list(difflib.unified_diff(olds, news, *names))
    added, removed = (sum(line.startswith(sign) for line in lines[2:]) for sign in "+-")
    return ChangedLines(added, removed, "".join(map(_ended, lines)))


def _lines_of(data: bytes) -> list[str]:
    """Lines with their ends; a carriage return or a form feed ends none."""
    return StringIO(data.decode("utf-8", "replace"), newline="\n").readlines()


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
