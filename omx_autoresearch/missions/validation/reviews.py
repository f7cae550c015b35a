"""Reviews: a verdict on the output artifact that does not come from the agent under review.

A reviewer command is launched by the runtime in a session of its own and must end with one JSON line that carries the
nonce of its prompt (``runs``); a person at a terminal outside of the agent may review; another session only where the
contract says so. Only the exact word ``approved`` approves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.missions.records.lifecycle import MissionUnblocked
from omx_autoresearch.missions.records.work import ValidationFinished
from omx_autoresearch.missions.rules.reviews import refuse_settled
from omx_autoresearch.missions.rules.run_reports import RunReport
from omx_autoresearch.missions.store import MissionStore, refuse_ended
from omx_autoresearch.missions.validation.exhibits import keep_reviewed
from omx_autoresearch.missions.validation.runs import attestation_of
from omx_autoresearch.missions.workspace import snapshot_workspace

if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import Reviewer
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Contract, Mission

_WORKED = ("session_bound", "session_forked")
"""Records that name a session which knows the work from within."""
WAITS_FOR_REVIEW = ("review-needed", "reviews-spent")
"""Codes of the blockers that a verdict takes away."""


def record_review(  # noqa: PLR0913  # what a verdict says, and nothing else
    runtime: Runtime,
    task_id: str,
    by: Reviewer,
    *,
    is_approved: bool,
    summary: str = "",
    session_id: str = "",
    digest: str = "",
) -> Mission:
    """Record the verdict of a person, or of another session; a mission that was blocked for one runs again.

    Args:
        runtime: the world.
        task_id: of the mission.
        by: ``person`` or ``session``.
        is_approved: the verdict.
        summary: one sentence.
        session_id: of the reviewing session.
        digest: sha256 of the content that the verdict is about; empty for the artifact as it is.

    Raises:
        StepIllegal: the mission has no artifact under review, this reviewer is not admitted, the artifact is missing or
            another one than the verdict is about, the session is the one under review, or a session judges content that
            was rejected or has no review left.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    contract = require_reviewer(mission, by)
    if by == "session":
        refuse_itself(runtime, mission, session_id)
    folder = runtime.home.mission(task_id)
    look = snapshot_workspace(folder, mission)
    if look.changed_pins:
        raise StepIllegal(
            f"pinned files changed, so no review counts: {', '.join(look.changed_pins[:5])}",
            next_step=f"omx-autoresearch restore {task_id}",
        )
    if not look.output_artifact_digest:
        raise StepIllegal(
            f"there is nothing to review: {look.artifact_fault}",
            next_step=f"write {contract.output_artifact_path}",
        )
    if digest and digest != look.output_artifact_digest:
        raise StepIllegal(
            f"{contract.output_artifact_path} is not the content that the verdict names: it is sha256 "
            f"{look.output_artifact_digest} now, and {digest[:64]} was named",
            next_step=f"read it again, then: omx-autoresearch review {task_id} (at a terminal, or with --digest)",
        )
    if by == "session":
        refuse_settled(mission, look)
    now = runtime.now()
    verdict = "approved" if is_approved else "rejected"
    report = RunReport("passed" if is_approved else "failed", f"{verdict}-by-{by}", summary or verdict)
    attestation = attestation_of(mission, f"r-{runtime.new_id()}", (now, now), report, look, is_fresh=True)
    with store.transaction(task_id, now) as transaction:
        mission = transaction.record(ValidationFinished(attestation))
        if mission.blocker is not None and mission.blocker.reason_code in WAITS_FOR_REVIEW:
            mission = transaction.record(MissionUnblocked.taken(mission, f"reviewed by a {by}"))
    keep_reviewed(folder, mission, look)
    return mission


def require_reviewer(mission: Mission, by: Reviewer) -> Contract:
    """The contract of a mission whose artifact this reviewer may judge.

    Raises:
        StepIllegal: no review completes it, this reviewer is not admitted, or it has ended.
    """
    contract, task_id = mission.contract, mission.task_id
    if contract is None or not contract.is_review:
        raise StepIllegal(
            "this mission is not completed by a review", next_step=f"omx-autoresearch validate {task_id}"
        )
    if by not in contract.reviewed_by:
        raise StepIllegal(
            f"the contract does not allow a review by a {by}; it allows: {', '.join(contract.reviewed_by)}",
            next_step=f"omx-autoresearch review {task_id}",
        )
    refuse_ended(mission, "a review changes nothing")
    return contract


def refuse_itself(runtime: Runtime, mission: Mission, session_id: str) -> None:
    """A session may not review what it has worked on, nor may a fork; an anonymous one cannot prove that it is another.

    Raises:
        StepIllegal: it is one of these, or has no id.
    """
    if not session_id:
        raise StepIllegal(
            "a session's review needs its session id, which this agent CLI does not tell its shell",
            next_step="ask a session of another agent CLI, or have the owner name this one as the reviewer "
            f"(omx-autoresearch amend {mission.task_id} --reviewer ...)",
        )
    worked = (
        entry.data["session_id"]
        for entry in MissionStore(runtime.home).journal(mission.task_id).read()
        if entry.kind in _WORKED
    )
    if session_id in worked:
        raise StepIllegal(
            "the session under review cannot review itself", next_step="ask another session or a person"
        )
