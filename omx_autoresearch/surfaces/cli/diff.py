"""The verb that shows what changed since the launch of a mission: diff."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import StepIllegal, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.types import ChangeFlag, ChangeKind
from omx_autoresearch.missions.difference import ChangedLines, changed_lines, flagged_changes
from omx_autoresearch.missions.launch_tree import root_of
from omx_autoresearch.missions.rules.briefing import completion_path
from omx_autoresearch.missions.rules.difference import Difference, count_text, difference_of
from omx_autoresearch.missions.views import gone_project
from omx_autoresearch.surfaces.cli.console import (
    Document,
    json_option,
    print_json,
    print_table,
    say,
    this_caller,
    verb,
    with_options,
)

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.difference import Change
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.surfaces.cli.console import Caller

COMPARED_FILES = 500
"""The lines of at most so many files are compared; the weightiest are."""
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file that differs from the launch.

    Attributes:
        path: from the root of the repository, without one from the workspace.
        kind: ``mode``: only whether it may be executed.
        flags: why a person should look at it, the weightiest first.
        old_path: where a moved file stood; empty for another kind.
        added_lines: null where they cannot be told.
        removed_lines: null where they cannot be told.
        patch: a unified diff; empty with ``--stat``, and where it cannot be told.
        fault: why the lines cannot be told; empty where they can.
    """

    path: str
    kind: ChangeKind
    flags: tuple[ChangeFlag, ...]
    old_path: str
    added_lines: int | None
    removed_lines: int | None
    patch: str
    fault: str


@dataclass(frozen=True, slots=True)
class DiffDocument:
    """``diff``.

    Attributes:
        task_id: of the mission.
        workspace_path: the folder that is judged.
        launch_head: the commit at launch; empty without one. What was edited or untracked then is no change.
        file_count: files that changed, whatever paths were named.
        flagged_count: how many of them a person should look at.
        changes: those of the named paths, the weightiest first.
    """

    task_id: str
    workspace_path: str
    launch_head: str
    file_count: int
    flagged_count: int
    changes: tuple[ChangedFile, ...]


@verb("diff", Document("diff", DiffDocument))
@with_options(
    click.argument("words", nargs=-1, metavar="[TASK] [PATH]..."),
    click.option("--stat", "is_list", is_flag=True, help="Only list the files."),
    json_option,
)
def diff_verb(words: tuple[str, ...], is_list: bool, as_json: bool) -> None:
    """Show what changed in the workspace since the mission's launch.

    The files that may decide a verdict come first, each with the reason. It makes no difference whether a change was
    committed. New files that git ignores are not shown.
    """
    caller = this_caller()
    task_id, paths = _split(caller, words)
    mission = caller.mission(task_id)
    if mission.contract is None:
        raise StepIllegal(
            f"mission {task_id} was not launched, so there is nothing to compare with",
            next_step=f"omx-autoresearch start {task_id}",
        )
    if gone := gone_project(mission):
        raise WorkspaceFault(gone[0], next_step=gone[1])
    folder = caller.runtime.home.mission(task_id)
    files = dict(flagged_changes(folder, mission))
    difference = difference_of(files)
    names = _names(caller, mission, paths)
    shown = [change for change in difference.changes if not paths or _is_below(change, names)]
    compared = [files[change] for change in shown[:COMPARED_FILES]]
    lines = changed_lines(folder, mission, compared)
    document = DiffDocument(
        task_id,
        mission.workspace_path,
        mission.launch_head,
        difference.file_count,
        difference.flagged_count,
        tuple(_file(change, lines.get(files[change].name), is_list=is_list) for change in shown),
    )
    if as_json:
        print_json(document)
    else:
        _print(document, mission, paths)


def _split(caller: Caller, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The mission that is meant, and the paths: a first word that is a path names no mission."""
    named, paths = caller.split(words, least=1)
    if not named and words and not _is_path(words[0]):
        named, paths = words[0], words[1:]
    return caller.shown_view(named).task_id, paths


def _is_path(word: str) -> bool:
    return "/" in word or "." in word or os.path.lexists(word)


def _names(caller: Caller, mission: Mission, paths: tuple[str, ...]) -> set[str]:
    """The paths as the list has them: they are given from the root, as the list shows them, or from here."""
    root = root_of(mission.workspace_path)
    here = os.path.relpath(os.path.realpath(caller.cwd or root), root)
    return {os.path.normpath(os.path.join(start, path)) for path in paths for start in ("", here)}


def _is_below(change: Change, names: set[str]) -> bool:
    return "." in names or any(
        path == name or path.startswith(f"{name}/")
        for path in filter(None, (change.path, change.old_path))
        for name in names
    )


def _file(change: Change, lines: ChangedLines | None, *, is_list: bool) -> ChangedFile:
    if lines is None:
        lines = ChangedLines(fault="not compared; name it")
    patch = "" if is_list else lines.patch
    return ChangedFile(
        change.path,
        change.kind,
        change.flags,
        change.old_path,
        lines.added,
        lines.removed,
        patch,
        lines.fault,
    )


def _print(document: DiffDocument, mission: Mission, paths: tuple[str, ...]) -> None:
    count = Difference(document.file_count, document.flagged_count)
    commit = f" (commit {document.launch_head[:10]})" if document.launch_head else ""
    say(f"Mission {document.task_id}: {count_text(count)}{commit}.")
    if mission.difference is not None:
        then = count_text(mission.difference)
        say(f"It is complete; at its completion: {then}, see {completion_path(mission)}.")
    if not document.changes:
        if paths:
            say(f"Nothing of {', '.join(paths)} changed.")
        return
    rows = [(file.kind, _moved(file), _count(file), ", ".join(file.flags)) for file in document.changes]
    styles = ["yellow" if file.flags else "" for file in document.changes]
    print_table(("CHANGE", "FILE", "LINES", "LOOK AT IT"), rows, styles)
    for patch in filter(None, (file.patch for file in document.changes)):
        say("")
        for line in patch.removesuffix("\n").split("\n"):
            say(line, _STYLES.get(line[:1], ""))


def _moved(file: ChangedFile) -> str:
    return f"{file.old_path} -> {file.path}" if file.old_path else file.path


def _count(file: ChangedFile) -> str:
    if file.added_lines is None:
        return file.fault
    return f"+{file.added_lines} -{file.removed_lines}" if file.added_lines or file.removed_lines else ""
