"""Comparing the disk with the journal: state files, evidence, every file under ``.omx``, the pins.

The completion gate asks for the state files and the evidence; :func:`validation_report` looks at everything.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.foundation.json_codec import decode
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.journal.layout import INTAKE_NAMES, ProjectFolder
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.journal.safe_files import open_regular
from omx_autoresearch.missions import projection_texts, store
from omx_autoresearch.missions.claims import take_in_quietly
from omx_autoresearch.missions.projections import fault_of
from omx_autoresearch.missions.rules.briefing import completion_path
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.workspace import snapshot_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Mission

_MODE_BYTES = 64 * 1024


# --- what the completion gate asks for


def whole_look(runtime: Runtime, mission: Mission) -> WorkspaceSnapshot:
    """The workspace and the state files as they are now, whatever is missing beside them.

    Raises:
        WorkspaceFault: the workspace cannot be looked at.
        StateUntrusted: the mission was never launched.
    """
    look = snapshot_workspace(runtime.home.mission(mission.task_id), mission)
    return replace(look, state_fault=state_fault(runtime, mission))


def state_fault(runtime: Runtime, mission: Mission) -> str:
    """Why task_spec.json and progress.json are not as the journal has them; empty when they are.

    A project that cannot be written is no fault of the mission, so nothing is asked for there.
    """
    if runtime.home.mission(mission.task_id).root_path in store.changed:
        take_in_quietly(runtime, mission.task_id)  # the records of this process are not in the files yet
    found = _state_fault(mission)
    if found:  # another process may have recorded something since the mission was read
        found = _state_fault(MissionStore(runtime.home).load(mission.task_id))
    return found


def _state_fault(mission: Mission) -> str:
    if not _is_writable(mission):
        return ""
    expected = projection_texts.states(mission)
    task_path = ProjectFolder(mission.project_path).task_path(mission.task_id)
    for name in (projection_texts.TASK_SPEC, projection_texts.PROGRESS):
        path = os.path.join(task_path, name)
        _, fault = fault_of(mission, os.path.relpath(path, mission.project_path), (expected[name],))
        if fault:
            return f"{path} {fault}"
    return ""


def _is_writable(mission: Mission) -> bool:
    """True when the folder of the state files, or the nearest one above it that exists, can be written."""
    path = os.path.join(ProjectFolder(mission.project_path).task_path(mission.task_id), "state")
    while not os.path.lexists(path) and path != mission.project_path:
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)


def unresolved_ids(runtime: Runtime, mission: Mission) -> tuple[str, ...]:
    """Evidence ids that the mission rests on and that are no accepted finding of their criterion in the journal.

    Raises:
        JournalBroken: a line of the journal is broken.
    """
    rests_on = {check.finding_id: check.criterion_id for check in mission.checks if check.is_met}
    for criterion_id, ids in mission.evidence_ids.items():
        rests_on |= dict.fromkeys(ids, criterion_id)
    if not rests_on:
        return ()
    with MissionStore(runtime.home).journal(mission.task_id) as journal:
        recorded = journal.by_ids([f"finding:{finding_id}" for finding_id in rests_on])
    found = []
    for finding_id, criterion_id in rests_on.items():
        entry = recorded.get(f"finding:{finding_id}")
        evidence = entry.data["finding"]["evidence"] if entry is not None else None
        if evidence is None or evidence["criterion_id"] != criterion_id:
            found.append(finding_id)
    return tuple(found)


def refuse_unresolved(runtime: Runtime, mission: Mission) -> None:
    """The last look before a completion is recorded.

    Raises:
        StateUntrusted: the mission rests on evidence that the journal does not hold.
    """
    unresolved = unresolved_ids(runtime, mission)
    if unresolved:
        raise StateUntrusted(
            f"mission {mission.task_id} rests on evidence that its journal does not have: {', '.join(unresolved[:5])}",
            next_step=f"omx-autoresearch repair {mission.task_id}",
        )


# --- everything


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a mission's files.

    Attributes:
        path: the file.
        json_path: the place in it, ``line 12``; empty for the whole file.
        cause: what is wrong.
        next_command: what mends it.
    """

    path: str
    json_path: str
    cause: str
    next_command: str


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The result of checking a mission's files.

    Attributes:
        task_id: of the mission.
        is_valid: nothing is wrong.
        records: records that could be read.
        problems: what is wrong, file by file.
    """

    task_id: str
    is_valid: bool
    records: int
    problems: tuple[Problem, ...] = ()


def validation_report(runtime: Runtime, task_id: str) -> ValidationReport:
    """Check the whole journal, every file of the mission under ``.omx`` and the pinned files; nothing is written.

    A file that lags behind a writer that has not ended yet is wrong until it ends.
    """
    journal = MissionStore(runtime.home).journal(task_id)
    checked = journal.verify()
    if not checked.ok:
        place = f"line {checked.line}" if checked.line else ""
        problem = Problem(checked.file, place, checked.cause, f"omx-autoresearch repair {task_id}")
        return ValidationReport(task_id, False, checked.entries, (problem,))
    try:
        problems = tuple(_Check(runtime, task_id).problems())
    except StateUntrusted as error:
        problems = (Problem(checked.file, "", error.message, error.next_step),)
    return ValidationReport(task_id, not problems, checked.entries, problems)


class _Check:
    """Compares the files of a mission with its journal, one by one."""

    def __init__(self, runtime: Runtime, task_id: str) -> None:
        missions = MissionStore(runtime.home)
        self._mission = missions.load(task_id)
        self._journal = missions.journal(task_id)
        self._folder = runtime.home.mission(task_id)
        self._sessions: set[str] = set()

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong: first the files under ``.omx``, then the pinned files."""
        mission = self._mission
        if _is_writable(mission):  # else the runtime could not keep them up
            for path, place, cause in self._projections():
                absolute = os.path.join(mission.project_path, path)
                yield Problem(absolute, place, cause, f"omx-autoresearch repair {mission.task_id}")
        if mission.contract is None or mission.phase in FINAL_PHASES:
            return  # nothing is pinned
        try:
            changed = snapshot_workspace(self._folder, mission).changed_pins
        except WorkspaceFault as error:
            yield Problem(mission.workspace_path, "", error.message, error.next_step)
            return
        for path in changed:
            absolute = os.path.join(mission.workspace_path, path)
            cure = f"omx-autoresearch restore {mission.task_id}"
            yield Problem(absolute, "", "this pinned file is not as it was frozen", cure)

    def _projections(self) -> Iterator[tuple[str, str, str]]:
        """Yield path (relative to the project), place and cause of each file that is not as the journal has it."""
        mission = self._mission
        task_path = os.path.relpath(
            ProjectFolder(mission.project_path).task_path(mission.task_id), mission.project_path
        )
        held = mission.binding.session_id if mission.binding is not None else ""
        whole = {
            os.path.join(task_path, name): data for name, data in projection_texts.states(mission).items()
        }
        if held:
            mode = projection_texts.mode_state(mission, held)
            whole[projection_texts.mode_path(held)] = projection_texts.pretty(mode)
        if mission.phase == "complete":
            whole[completion_path(mission)] = projection_texts.completion(mission)
        for path, data in whole.items():
            if fault := fault_of(mission, path, (data,))[1]:
                yield path, "", f"this file {fault}"
        lines = [(name, self._lines(name), False) for name in projection_texts.LINE_FILES]
        for name, parts, may_lag in (*lines, (projection_texts.HEARTBEAT, self._heartbeats(), True)):
            path = os.path.join(task_path, name)
            number, fault = fault_of(mission, path, parts, may_lag=may_lag)
            if fault:
                yield path, f"line {number}" if number else "", f"this {'line' if number else 'file'} {fault}"
        for session_id in sorted(self._sessions - {held}):
            path = projection_texts.mode_path(session_id)
            if self._claims_hold(path):
                yield path, "", "this file says that the mission holds a session that it let go"
        for path in missing_intake(mission):
            yield path, "", "this file is missing"

    def _lines(self, name: str) -> Iterator[bytes]:
        for entry in self._journal.read():
            if entry.kind == "session_bound":
                self._sessions.add(entry.data["session_id"])
            if line := projection_texts.line_of(name, entry):
                yield line

    def _heartbeats(self) -> Iterator[bytes]:
        try:
            with os.fdopen(open_regular(self._folder.heartbeat_path), "rb") as stream:
                yield from stream
        except FileNotFoundError:
            return

    def _claims_hold(self, path: str) -> bool:
        sub, leaf = os.path.split(path)
        try:
            with OmxFolder(self._mission.project_path, sub) as folder:
                state = decode(folder.read(leaf, _MODE_BYTES))
        except (OSError, WorkspaceFault, ValueError):
            return False  # nothing that a tool could read as a hold
        said = (state.get("task_id"), state.get("active")) if isinstance(state, dict) else ()
        return said == (self._mission.task_id, True)


def missing_intake(mission: Mission) -> tuple[str, ...]:
    """The intake files that are gone, relative to the project; an edit of one is no fault, since ``amend`` takes it."""
    paths = (os.path.join(mission.specs_path, name) for name in INTAKE_NAMES)
    return tuple(path for path in paths if not os.path.lexists(os.path.join(mission.project_path, path)))
