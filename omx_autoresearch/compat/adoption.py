"""Adopting another runtime's task folder: read, validated whole, copied into a mission of its own; never touched.

A folder with any fault is refused with every fault in it. What is taken over stands in the first write of the new
journal, so that no mission is ever half adopted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from omx_autoresearch.compat.foreign_folders import (
    DIRECTIONS,
    FINDINGS,
    PROGRESS,
    TASK_PAGE,
    TASK_SPEC,
    Adoptable,
    AdoptionFault,
    Folder,
    adoptable,
)
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid, StepIllegal, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.journal.layout import ProjectFolder, Runtime, is_safe_task_id, slugify
from omx_autoresearch.journal.layout import task_id as make_task_id
from omx_autoresearch.journal.safe_files import open_inside, read_chunks
from omx_autoresearch.missions.intake import read_intake, write_intake
from omx_autoresearch.missions.launch import creation_of
from omx_autoresearch.missions.records.directions import DirectionDeclared
from omx_autoresearch.missions.records.findings import FindingRecorded
from omx_autoresearch.missions.records.lifecycle import MissionAdopted
from omx_autoresearch.missions.rules.directions import DIRECTIONS_LIMIT
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.rules.lifecycle import FINAL_PHASES
from omx_autoresearch.missions.store import MissionStore

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.mission import Mission

LIMIT_BYTES = 256 * 1024 * 1024
"""Of one file of a folder."""
KEPT_DIRECTIONS = DIRECTIONS_LIMIT // 2
"""The newest of a folder: a mission that remembered as many as it may could declare none of its own."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A folder that can be adopted.

    Attributes:
        path: of the folder, absolute.
        layout: ``host``, ``own`` or ``protocol``.
        content: what a mission can begin with.
        digests: sha256 of each file read, by its name.
        notes: what was left out, a line each.
    """

    path: str
    layout: str
    content: Adoptable
    digests: dict[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Adopted:
    """What became of a folder.

    Attributes:
        mission: a draft.
        origin: what it was taken from.
    """

    mission: Mission
    origin: Origin


def read_origin(path: str) -> Origin:
    """Read and check a task folder.

    Raises:
        WorkspaceFault: there is no such folder, or no task in it.
        MissionInvalid: something in it cannot be taken over; every fault by file, place and cause.
    """
    path = os.path.abspath(path)
    if not os.path.isdir(path):
        raise WorkspaceFault(
            f"there is no folder {path}; a task folder is missing or has another name",
            next_step=f"ls {os.path.dirname(path)}",
        )
    state_path = os.path.join(path, "state") if os.path.isdir(os.path.join(path, "state")) else path
    reading = _Reading(path, state_path, os.path.relpath(state_path, path))
    folder = reading.folder(path)
    content, faults = adoptable(folder, path)
    faults = [*reading.faults, *(fault for fault in faults if fault.file not in reading.unread)]
    if faults:
        raise MissionInvalid(
            "\n".join(
                [f"{path} cannot be adopted: {len(faults)} faults", *(f"  - {fault}" for fault in faults)]
            ),
            next_step=f"copy the folder, mend the copy, and adopt that: cp -r {path} COPY",
        )
    notes = (*reading.notes, *_notes(content))
    content = replace(content, directions=content.directions[-KEPT_DIRECTIONS:])
    return Origin(path, _layout(path, folder), content, reading.digests, notes)


def _notes(content: Adoptable) -> tuple[str, ...]:
    """What the owner should know before a start: what is left out, and what the folder would have run."""
    left_out = len(content.directions) - KEPT_DIRECTIONS
    notes = [f"the oldest {left_out} directions were left out"] if left_out > 0 else []
    return (
        *notes,
        *(
            f"criterion {item.id} comes from that folder, and a start approves what it runs: {item.rule}"
            for item in content.criteria
            if item.rule.argv
        ),
    )


def draft_of(origin: Origin, project_path: str) -> MissionDraft:
    """What the folder says of the mission; how it is judged only where our own intake still stands beside it."""
    content = origin.content
    draft = MissionDraft(
        goal=content.goal,
        scope=content.scope,
        non_goals=content.non_goals,
        milestones=content.milestones,
        forbid=content.forbid,
        criteria=content.criteria,
    )
    specs_path = _own_specs(origin, project_path)
    if not specs_path:
        return draft
    try:
        return replace(read_intake(specs_path), slug="", intake_digests={})
    except AutoresearchError:
        return draft


def adopt(runtime: Runtime, project_path: str, origin: Origin, draft: MissionDraft) -> Adopted:
    """Make a draft mission of a folder that was read.

    Raises:
        MissionInvalid: the draft cannot stand.
        StepIllegal: a mission of it is under way.
        StorageFailed: the disk refused; no mission remains.
    """
    store = MissionStore(runtime.home)
    _refuse_adopted(store, origin)
    record = write_intake(runtime, project_path, draft)
    task_id = _task_id(runtime, project_path, origin, record.slug)
    created = creation_of(task_id, project_path, record, draft)
    content = origin.content
    adopted = MissionAdopted(
        origin.path,
        origin.layout,
        content.task_id or os.path.basename(origin.path),
        content.status,
        content.iteration,
        len(content.findings),
        len(content.directions),
        origin.digests,
    )
    mission = store.create(
        task_id,
        runtime.now(),
        created,
        adopted,
        *map(DirectionDeclared, content.directions),
        *map(FindingRecorded, content.findings),
    )
    return Adopted(mission, origin)


def _refuse_adopted(store: MissionStore, origin: Origin) -> None:
    for task_id in store.task_ids():
        try:
            mission = store.load(task_id)
        except AutoresearchError:
            continue  # a corrupt mission hides no other
        if mission.adopted_from == origin.path and mission.phase not in FINAL_PHASES:
            raise StepIllegal(
                f"{origin.path} is adopted already, as mission {task_id}",
                next_step=f"omx-autoresearch status {task_id}",
            )


def _task_id(runtime: Runtime, project_path: str, origin: Origin, slug: str) -> str:
    """The folder's own id where it is one of ours and free; our own projections keep theirs, and stay as they are."""
    store, project = MissionStore(runtime.home), ProjectFolder(project_path)
    wanted = os.path.basename(origin.path)
    moment = runtime.clock.now()
    serial = 1
    while not is_safe_task_id(wanted) or store.exists(wanted) or os.path.lexists(project.task_path(wanted)):
        wanted = make_task_id(moment, slug if serial == 1 else f"{slug}-{serial}")
        serial += 1
    return wanted


def _own_specs(origin: Origin, project_path: str) -> str:
    """The specs folder of the mission that our own projections belonged to; empty for any other."""
    if origin.layout != "own":
        return ""
    slug = os.path.basename(origin.path).split("-", 2)[-1]
    path = ProjectFolder(project_path).specs_path(slugify(slug))
    return path if os.path.isdir(path) else ""


def _layout(path: str, folder: Folder) -> str:
    if folder.page is not None:
        return "protocol"
    parts = os.path.normpath(path).split(os.sep)
    is_ours = isinstance(folder.spec, dict) and "task_type" in folder.spec
    return "own" if is_ours or ".omx" in parts[-3:] else "host"


class _Reading:
    """The files of one folder, opened once each and only read."""

    def __init__(self, path: str, state_path: str, prefix: str) -> None:
        self._path = path
        self._state_path = state_path
        self._prefix = "" if prefix == "." else f"{prefix}/"
        self.digests: dict[str, str] = {}
        self.faults: list[AdoptionFault] = []
        self.unread: set[str] = set()
        self.notes: list[str] = []

    def folder(self, path: str) -> Folder:
        names = {TASK_SPEC, TASK_PAGE} & set(os.listdir(self._state_path))
        if not names:
            raise WorkspaceFault(
                f"{path} is no task folder: there is neither {TASK_SPEC} nor {TASK_PAGE} in it",
                next_step=f"ls -R {path}",
            )
        is_typed = TASK_SPEC in names
        page = None if is_typed else self._bytes(TASK_PAGE)
        return Folder(
            spec=self._json(TASK_SPEC) if is_typed else None,
            page=None if page is None else page.decode("utf-8", "replace"),
            progress=self._json(PROGRESS, is_needed=True),
            directions=self._json(DIRECTIONS),
            findings=self._lines(FINDINGS),
        )

    def _bytes(self, name: str, *, is_needed: bool = False) -> bytes | None:
        try:
            descriptor = open_inside(
                self._path, f"{self._prefix}{name}"
            )  # no link: it would lead out of the folder
            try:
                data = b"".join(read_chunks(descriptor, LIMIT_BYTES))
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            if is_needed:
                self._fault(name, "", "it is missing")
            return None
        except WorkspaceFault as error:
            self._fault(name, "", error.message)
            return None
        except OSError as error:
            self._fault(name, "", f"it cannot be read: {error.strerror or type(error).__name__}")
            return None
        self.digests[f"{self._prefix}{name}"] = sha256(data).hexdigest()
        return data

    def _json(self, name: str, *, is_needed: bool = False) -> Any:
        data = self._bytes(name, is_needed=is_needed)
        try:
            return None if data is None else json_codec.decode_document(data)
        except ValueError as error:
            self._fault(name, "", str(error))
            return None

    def _lines(self, name: str) -> tuple[tuple[int, Any], ...]:
        found: list[tuple[int, Any]] = []
        lines = (self._bytes(name) or b"").split(b"\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                found.append((number, json_codec.decode(line)))
            except ValueError as error:
                if number == len(lines):  # no newline: whoever wrote it was cut off
                    self.notes.append(f"{name} line {number} is torn and was left out")
                else:
                    self.faults.append(AdoptionFault(name, f"line {number}", str(error)))
        return tuple(found)

    def _fault(self, name: str, json_path: str, cause: str) -> None:
        self.unread.add(name)
        self.faults.append(AdoptionFault(name, json_path, cause))
