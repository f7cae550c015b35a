"""What only the owner can mend: a workspace or contract that cannot be seen, a command that may not or cannot run."""

from __future__ import annotations

from omx_autoresearch.core.evidence import missing_items
from omx_autoresearch.core.gate import OwnerNeed
from omx_autoresearch.errors import JournalBroken, StorageFailed, WorkspaceFault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.evidence import Missing
    from omx_autoresearch.core.findings import Look
    from omx_autoresearch.core.mission import Attestation, Mission
    from omx_autoresearch.errors import AutoresearchError
    from omx_autoresearch.runtime.validation import Permission


def unseen(error: AutoresearchError, task_id: str) -> OwnerNeed:
    """The workspace cannot be looked at, or the contract's own files are damaged."""
    if isinstance(error, (JournalBroken, StorageFailed)):
        raise error  # no state of the mission but a fault of ours, or of the machine
    if isinstance(error, WorkspaceFault):
        code, needs = "workspace-fault", "a workspace that can be read"
    else:
        code, needs = "contract-broken", "a contract whose files are whole"
    return OwnerNeed(
        code,
        error.message,
        f"{needs} ({error.next_step.replace('TASK', task_id)})" if error.next_step else needs,
        f"omx-autoresearch unblock {task_id}",
    )


def unrunnable(mission: Mission, permit: Permission | None, run: Attestation | None) -> OwnerNeed | None:
    """Why the contract's command cannot run: not allowed, or a run of this very stop could not be started."""
    task_id = mission.task_id
    if permit is not None and not permit.may_run:
        return OwnerNeed("approval-missing", permit.why, "the owner's approval", permit.command)
    if run is not None and run.cause == "not-started" and run.contract_digest == mission.contract_digest:
        return OwnerNeed(
            "validator-gone",
            f"the validator cannot be started: {run.summary}",
            "a validator that runs",
            f"omx-autoresearch amend {task_id} --validator '...'",
        )
    return None


def unreviewed(mission: Mission, look: Look) -> OwnerNeed | None:
    """An artifact waits for a person's review, and no command can give one: the agent can do nothing more."""
    contract = mission.contract
    if contract is None or contract.reviewer_command or not look.output_artifact_digest:
        return None
    if contract.validation_mode != "prompt-architect-artifact" or not missing_items(mission, look):
        return None
    run = mission.attestation
    if (
        run is not None
        and run.verdict == "failed"
        and run.output_artifact_digest == look.output_artifact_digest
    ):
        return None  # rejected as it is: the agent has work to do
    task_id = mission.task_id
    others = [who for who in contract.reviewed_by if who != "command"]  # there is no command: see above
    return OwnerNeed(
        "review-needed",
        f"{contract.output_artifact_path} waits for a review by a {' or a '.join(others)}",
        "a verdict on the artifact",
        f"omx-autoresearch review {task_id} --approve && omx-autoresearch unblock {task_id}",
    )


def left_to_owner(mission: Mission, missing: tuple[Missing, ...]) -> OwnerNeed | None:
    """Everything that is still missing is the owner's to bring: the agent can do nothing more."""
    if not missing or not all(item.is_owners for item in missing):
        return None
    commands = " && ".join(item.next_command for item in missing)
    return OwnerNeed(
        missing[0].code,
        "; ".join(f"{item.what} (received: {item.received})" for item in missing),
        "the owner's word",
        f"{commands} && omx-autoresearch unblock {mission.task_id}",
    )
