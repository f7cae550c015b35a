"""The work of a mission or an experiment: the paths that its owner leaves to the agent, named with ``--work``.

Work is never pinned. Where the owner names it, every other file of the project that the check reads is pinned. Where
the owner does not, only what `discovery` knows to judge is pinned, since nobody else can tell whether another file that
the check reads is the work.
"""

from __future__ import annotations

import os
import shlex
from bisect import bisect_left
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.freezing.manifest import DEFAULTS, FileClasses, glob_pattern, is_test
from omx_autoresearch.freezing.tree import tree_names
from omx_autoresearch.system.git import find_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omx_autoresearch.freezing.manifest import PinManifest


_LOCK_FILES = frozenset((
    "Cargo.lock", "Gemfile.lock", "Pipfile.lock", "bun.lock", "bun.lockb", "composer.lock", "go.sum",
    "npm-shrinkwrap.json", "package-lock.json", "pdm.lock", "pnpm-lock.yaml", "poetry.lock", "uv.lock", "yarn.lock",
))  # fmt: skip
"""Whoever adds a dependency changes them, and nearly every runner opens them: only ``protect`` pins one."""


class Work:
    """The owner's globs (see `manifest.glob_pattern`); ``!glob`` takes paths out again. Without any, it is false."""

    def __init__(self, globs: Sequence[str] = ()) -> None:
        self.globs = tuple(globs)
        self._given = [glob_pattern(glob) for glob in globs if not glob.startswith("!")]
        self._taken_out = [glob_pattern(glob[1:]) for glob in globs if glob.startswith("!")]

    def __bool__(self) -> bool:
        return bool(self._given)

    def __contains__(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._given) and not any(
            pattern.fullmatch(path) for pattern in self._taken_out
        )

    def refuse_protected(self, glob: str, paths: Sequence[str]) -> None:
        """Refuse to protect nothing but work.

        Args:
            glob: a pattern of ``protect``.
            paths: the files that it matches.

        Raises:
            MissionInvalid: all of them are work.
        """
        if paths and all(path in self for path in paths):
            raise MissionInvalid(
                f"protect: {glob} and work: {', '.join(self.globs)} contradict each other:"
                f" {paths[0]} cannot be frozen and free",
                next_step=f"leave one of them out, or take the file out of the work: {self.options_without(paths[0])}",
            )

    def options_without(self, path: str) -> str:
        """The options that name this work without a path, as a person types them: each call names all of it."""
        return work_options((*self.globs, f"!{path}"))


def is_lock_file(path: str) -> bool:
    """True for a list of the versions that a package manager chose."""
    return path.rpartition("/")[2] in _LOCK_FILES


def work_options(globs: Iterable[str]) -> str:
    """The options that name this work, as a person types them."""
    return " ".join(f"--work {shlex.quote(glob)}" for glob in globs)


def project_files(workspace_path: str) -> list[str]:
    """The files of a workspace that git tracks or does not ignore, sorted; without git, all that count as content.

    Raises:
        WorkspaceFault: the workspace cannot be read.
    """
    workspace = os.path.realpath(workspace_path)
    root = find_root(workspace) or workspace
    below = os.fsencode(os.path.relpath(workspace, root)) + b"/"
    prefix = b"" if below == b"./" else below
    return sorted(
        os.fsdecode(name[len(prefix) :]) for name in tree_names(workspace) if name.startswith(prefix)
    )


def files_at(files: Sequence[str], place: str) -> Sequence[str]:
    """The file at a path, or the files below a folder, of a sorted list."""
    at = bisect_left(files, place)
    if at < len(files) and files[at] == place:
        return [place]
    begin, end = (bisect_left(files, place + sign) for sign in ("/", chr(ord("/") + 1)))
    return files[begin:end]


def classes_of(files: Iterable[str], work: Work, manifest: PinManifest) -> FileClasses:
    """The class of each of a project's files.

    Args:
        files: see `project_files`.
        work: as the owner named it.
        manifest: of what is frozen.
    """
    frozen = {pin.path for pin in manifest.pins if pin.kind != "absent-guard"}
    opened = {path for path in manifest.opened if path not in work}
    rest = [path for path in files if path not in frozen]
    free = {path for path in rest if path in work} if work else set()
    unknown = {path for path in opened - frozen if not is_lock_file(path)}
    return FileClasses(
        work=tuple(path for path in rest if path in free),
        frozen=tuple(sorted(frozen)),
        shown=tuple(path for path in rest if path not in free and path not in unknown),
        unknown=tuple(sorted(unknown)),
        opened=tuple(sorted(opened)),
    )


_SOURCE_FOLDERS = ("src", "lib", "app", "cmd", "internal", "pkg", "crates")
"""Folders of a project's root that hold what is written, whatever its language."""


def proposed_work(files: Sequence[str], runners: Sequence[str]) -> tuple[str, ...]:
    """Globs for ``--work`` by the shape of a project, its tests taken out; empty where the shape says nothing.

    Args:
        files: see `project_files`.
        runners: known runners that the check calls; they tell what a test is.
    """
    packages = {
        path.partition("/")[0] for path in files if path.count("/") == 1 and path.endswith("/__init__.py")
    }
    tests = {folder for runner in DEFAULTS.values() for folder in runner.test_folders}
    present = {path.partition("/")[0] for path in files if "/" in path}
    folders = sorted((present & set(_SOURCE_FOLDERS) | packages) - tests)
    work = Work([f"{folder}/**" for folder in folders])
    return (*work.globs, *_test_globs((path for path in files if path in work), runners))


def _test_globs(paths: Iterable[str], runners: Sequence[str]) -> list[str]:
    """Globs that take tests out again which stand inside the work."""
    from fnmatch import fnmatchcase

    found: dict[str, None] = {}
    for path in paths:
        for runner in runners:
            if not is_test(path, runner):
                continue
            *folders, name = path.split("/")
            defaults = DEFAULTS[runner]
            marks = [folder for folder in folders if folder in defaults.test_folders]
            marks += [pattern for pattern in defaults.tests if fnmatchcase(name, pattern)]
            found[f"!{marks[0]}"] = None
    return list(found)
