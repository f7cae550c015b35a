"""A run that a person or an agent asks for at once: where it may not begin, or left no verdict, they are told why."""

from __future__ import annotations

from omx_autoresearch.foundation.errors import CommandFault, StepIllegal, WorkspaceFault
from omx_autoresearch.journal.safe_files import require_writable
from omx_autoresearch.missions.rules.evidence import is_passing, judging_command
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.rules.reviews import refuse_settled
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.runs import Ask, permission, validate, wait_here
from omx_autoresearch.missions.workspace import snapshot_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.validation.runs import Waits


def validate_now(
    runtime: Runtime,
    mission: Mission,
    *,
    wait_seconds: float,
    is_sandboxed: bool = False,
    waits: Waits = wait_here,
) -> bool:
    """Validate at once for a person or an agent; as :func:`validate`.

    Raises:
        CommandFault: the owner has to let the command run first, no process could be started, or the run left no
            verdict.
        StepIllegal: the mission ended meanwhile, so the run has no verdict.
        WorkspaceFault: the workspace cannot be looked at, or there is no artifact to review.
        StorageFailed: no verdict could be recorded.
    """
    require_writable(runtime.home.mission(mission.task_id).root_path)
    look = snapshot_workspace(runtime.home.mission(mission.task_id), mission)
    permit = permission(runtime, mission, is_sandboxed=is_sandboxed)
    if not permit.may_run and not look.changed_pins:
        raise CommandFault(permit.why, next_step=f"the owner types: {permit.command}")
    if look.artifact_fault:
        path = mission.contract.output_artifact_path if mission.contract else ""
        raise WorkspaceFault(f"there is nothing to review: {look.artifact_fault}", next_step=f"write {path}")
    if mission.contract is not None and mission.contract.is_review:
        if is_passing(mission, look):
            return True  # this content has its verdict
        refuse_settled(mission, look)
    ask = Ask(permit.isolation, look)
    has_ended = validate(runtime, mission.task_id, ask, wait_seconds=wait_seconds, waits=waits)
    if has_ended:
        _refuse_unrecorded(mission, MissionStore(runtime.home).load(mission.task_id))
    return has_ended


def _refuse_unrecorded(before: Mission, mission: Mission) -> None:
    """Refuse to take the verdict of an older run for that of a run that recorded none.

    Raises:
        CommandFault: no run was recorded since ``before``.
        StepIllegal: nor could one be, since the mission ended.
    """
    if mission.attestation is not None and mission.attestation != before.attestation:
        return
    task_id = mission.task_id
    if mission.phase in FINAL_PHASES:
        raise StepIllegal(
            f"the run ended without a verdict, because mission {task_id} became {mission.phase}",
            next_step=f"omx-autoresearch status {task_id}",
        )
    raise CommandFault(
        "the run ended without a verdict, because its process was killed or could not record one",
        next_step=judging_command(mission),
    )
