"""What ``missions/rules/readiness.py`` judges, looked up: workspace, state files and journal as they are now."""

from __future__ import annotations

import os
from dataclasses import replace

from omx_autoresearch.foundation.errors import StateUntrusted, WorkspaceFault
from omx_autoresearch.journal.layout import ProjectFolder, Runtime
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.missions import projection_texts
from omx_autoresearch.missions.claims import take_in_quietly
from omx_autoresearch.missions.looks import take_look
from omx_autoresearch.missions.store import MissionStore, changed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.criteria import Look
    from omx_autoresearch.missions.rules.mission import Mission

_STATE_BYTES = 16 * 1024 * 1024


def whole_look(runtime: Runtime, mission: Mission) -> Look:
    """The workspace and the state files as they are now, whatever is missing beside them.

    Raises:
        WorkspaceFault: the workspace cannot be looked at.
        StateUntrusted: the mission was never launched.
    """
    look = take_look(runtime.home.mission(mission.task_id), mission)
    return replace(look, state_fault=state_fault(runtime, mission))


def state_fault(runtime: Runtime, mission: Mission) -> str:
    """Why task_spec.json and progress.json are not as the journal has them; empty when they are.

    A project that nobody can write to is no fault of the mission: nothing is asked for there.
    """
    if runtime.home.mission(mission.task_id).root_path in changed:
        take_in_quietly(runtime, mission.task_id)  # what this process recorded is in none of them yet
    found = _state_fault(mission)
    if found:  # perhaps somebody recorded something since the mission was read
        found = _state_fault(MissionStore(runtime.home).load(mission.task_id))
    return found


def _state_fault(mission: Mission) -> str:
    task_path = ProjectFolder(mission.project_path).task_path(mission.task_id)
    path = os.path.join(os.path.relpath(task_path, mission.project_path), "state")
    if not _is_writable(os.path.join(mission.project_path, path), mission.project_path):
        return ""
    expected = projection_texts.states(mission)
    try:
        with OmxFolder(mission.project_path, path) as folder:
            for name in (projection_texts.TASK_SPEC, projection_texts.PROGRESS):
                leaf = os.path.basename(name)
                if folder.read(leaf, _STATE_BYTES) != expected[name]:
                    return f"{os.path.join(task_path, name)} does not say what the journal says"
    except FileNotFoundError as error:
        return f"{os.path.join(task_path, 'state', error.filename or '')} is missing"
    except (WorkspaceFault, OSError) as error:
        return f"the state files cannot be read: {error}"
    return ""


def _is_writable(path: str, root_path: str) -> bool:
    """True when the nearest folder of the path that exists can be written."""
    while not os.path.lexists(path) and path != root_path:
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
    journal = MissionStore(runtime.home).journal(mission.task_id)
    try:
        recorded = journal.by_ids([f"finding:{finding_id}" for finding_id in rests_on])
    finally:
        journal.close()
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
            f"mission {mission.task_id} rests on evidence that its journal does not hold: {', '.join(unresolved[:5])}",
            next_step=f"omx-autoresearch repair {mission.task_id}",
        )
