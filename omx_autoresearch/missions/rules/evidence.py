"""Whether a completion contract is met: the proof of a run, and every item that is still missing.

All checks have one shape: a tuple of :class:`Missing`, empty when there is nothing left to prove. What a model wrote
about itself is a claim and appears nowhere here. Pure.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.foundation.text import quoted
from omx_autoresearch.missions.rules.criteria import Facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.foundation.types import CriterionStatus
    from omx_autoresearch.missions.rules.criteria import Criterion, CriterionCheck, WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Attestation, Contract, Mission

IGNORED_OUTPUT = "files that a run writes belong in an ignored path"


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that the contract still lacks.

    Attributes:
        code: stable word, for machines.
        what: what is missing, one sentence.
        received: what was there instead.
        next_command: the one command or act that helps, legal in the mission's phase.
        is_owners: only the owner can bring it.
    """

    code: str
    what: str
    received: str
    next_command: str
    is_owners: bool = False


def is_fresh(run: Attestation | None, mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when ``run`` belongs to this contract and nothing that it depended on has moved since it began.

    A validator depends on HEAD, the whole tree and the pinned files; a review on the artifact and the pinned files.
    What has no digest was not seen, and is never the same as something else that was not seen.
    """
    if run is None or not run.is_fresh or run.contract_digest != mission.contract_digest:
        return False
    now = _inputs(look, mission)
    return bool(now[-1]) and now == _inputs(run, mission)


def _inputs(seen: Attestation | WorkspaceSnapshot, mission: Mission) -> tuple[str, ...]:
    """The digests of everything that a run depends on."""
    if mission.contract is not None and mission.contract.is_review:
        return seen.pin_digest, seen.output_artifact_digest
    return seen.pin_digest, seen.head, seen.tree_digest


def has_moved(before: WorkspaceSnapshot, after: WorkspaceSnapshot, mission: Mission) -> bool:
    """True when an input of a run changed while it ran."""
    return _inputs(before, mission) != _inputs(after, mission)


def is_same_artifact(run: Attestation, look: WorkspaceSnapshot) -> bool:
    """True when the artifact under review is the one that ``run`` saw; trivially so without an artifact."""
    return run.output_artifact_digest == look.output_artifact_digest


def is_reusable_failure(mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when the newest run failed on exactly this workspace and no person spoke since: it need not run again."""
    run = mission.attestation
    return (
        run is not None
        and run.verdict == "failed"
        and not mission.is_recheck_due
        and is_fresh(run, mission, look)
    )


def is_passing(mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when the newest run passed, under this contract, on exactly what stands there now."""
    run = mission.attestation
    if run is None or run.verdict != "passed" or not is_fresh(run, mission, look):
        return False
    if not mission.rejections:
        return is_same_artifact(run, look)
    from omx_autoresearch.missions.rules.reviews import rejection_of

    return is_same_artifact(run, look) and rejection_of(mission, look) is None


def judging_command(mission: Mission) -> str:
    """The command that has the mission judged now; where only a person can judge, the one that the person types."""
    contract = mission.contract
    if contract is None or not contract.is_review:
        return f"omx-autoresearch validate {mission.task_id}"
    return f"omx-autoresearch review {mission.task_id}"


def missing_items(mission: Mission, look: WorkspaceSnapshot) -> tuple[Missing, ...]:
    """Everything that the completion contract still lacks at this look; empty means that it is met."""
    contract = mission.contract
    if contract is None:
        return (
            Missing(
                "launch",
                "the mission was not launched",
                "a draft",
                f"omx-autoresearch start {mission.task_id}",
            ),
        )
    if contract.accept_unattested and look.artifact_claim == "passed":
        return ()
    if contract.is_review and not look.output_artifact_digest:
        return (
            Missing(
                "output-artifact",
                f"a non-empty output artifact at {contract.output_artifact_path}",
                look.artifact_fault or "no such file",
                f"write {contract.output_artifact_path}",
            ),
        )
    if is_passing(mission, look):
        return ()
    return (_lacking_run(mission, contract, look),)


def _lacking_run(mission: Mission, contract: Contract, look: WorkspaceSnapshot) -> Missing:
    kind, command = "validation", contract.validator_command
    what = f"a passing run of the validator `{command}`, by the runtime, on the workspace as it is now"
    moved = "the workspace, HEAD or a pinned file"
    if contract.is_review:
        kind, moved = "review", "the artifact or a pinned file"
        what = f"an approving review of {contract.output_artifact_path} as it is now"
    run = mission.attestation
    if run is None or run.contract_digest != mission.contract_digest:
        received = "no run under this contract yet"
    elif mission.lost_run_id:
        received = (
            f"run {mission.lost_run_id} left no verdict: its process was killed or could not record one"
        )
    elif run.verdict == "passed":  # and yet it is missing
        since = "since it began" if run.is_fresh else f"while it ran; {IGNORED_OUTPUT}"
        received = f"run {run.run_id} passed, but {moved} changed {since}"
    else:
        received = f"run {run.run_id}: {run.verdict} ({run.cause}): {run.summary}"
    item = Missing(kind, what, received, judging_command(mission))
    if contract.is_review:
        from omx_autoresearch.missions.rules.reviews import known_of

        item = replace(item, **known_of(mission, look, received))
    if look.artifact_report:  # first, since a long summary is cut
        item = replace(item, received=f"{look.artifact_report}; {item.received}")
    return item


def needs_run(mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when a run of the contract's command, or a look at its open criteria, could bring the mission forward."""
    contract = mission.contract
    if contract is None:
        return False
    if not missing_items(mission, look):
        return bool(unsettled_criteria(mission, look))
    if contract.is_review:
        from omx_autoresearch.missions.rules.reviews import are_reviews_spent, rejection_of

        is_ready = bool(contract.reviewer_command) and bool(look.output_artifact_digest)
        return is_ready and rejection_of(mission, look) is None and not are_reviews_spent(mission)
    return True


def is_known_to_miss(mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when what would be run missed on exactly this workspace, and took long enough to be remembered."""
    if missing_items(mission, look):
        return is_reusable_failure(mission, look)
    return all(is_reusable_miss(mission, item, look) for item in unsettled_criteria(mission, look))


def run_score(run: Attestation, contract: Contract | None = None) -> float | None:
    """The measure of progress: the validator's score, else the number of tests that passed.

    One mission is measured in one unit: tests are no substitute where the validator had a score at intake, nor where a
    lower one is better. A run that could not tell, or that met changed pins, has no score.
    """
    if run.verdict not in ("passed", "failed"):
        return None
    if run.score is not None:
        return run.score
    is_by_tests = contract is None or (
        contract.baseline_score is None and contract.score_direction == "higher"
    )
    return float(run.tests_passed) if is_by_tests and run.tests_passed is not None else None


def better_of(best: float | None, score: float | None, direction: str) -> float | None:
    """The better of two scores; None counts as no score, never as zero."""
    if score is None or best is None:
        return best if score is None else score
    return max(best, score) if direction == "higher" else min(best, score)


def is_better(best: float | None, score: float | None, direction: str) -> bool:
    """True when ``score`` beats ``best`` strictly; the first score of a mission without a baseline does not."""
    if score is None or best is None:
        return False
    return score > best if direction == "higher" else score < best


# --- what stands in a hand-written artifact


def read_artifact(artifact: Any, mission: Mission) -> tuple[bool, str]:
    """A hand-written completion artifact in the agreed shape: (it says passed, what to report of it).

    Only exact values count: ``status == "passed"`` with ``passed`` JSON true, or a review verdict from the closed set.
    The document is a claim all the same; it completes a mission only where the owner set ``accept_unattested``.
    """
    contract = mission.contract
    if contract is None:
        return False, ""
    said = "a hand-written completion artifact"
    if not isinstance(artifact, dict):
        return False, f"{said} is not an object but {type(artifact).__name__}"
    status, passed = artifact.get("status"), artifact.get("passed")
    facts = f"status={quoted(status)}, passed={quoted(passed)}"
    is_claimed, word = status == "passed" and passed is True, "passed"
    if contract.is_review:
        review, path = artifact.get("architect_review"), artifact.get("output_artifact_path")
        verdict = review.get("verdict") if isinstance(review, dict) else None
        facts = f"verdict={quoted(verdict)}, output_artifact_path={quoted(path)}, {facts}"
        is_contradictory = "verdict" in artifact or artifact.get("status", "passed") != "passed"
        is_contradictory = is_contradictory or artifact.get("passed", True) is not True
        word = "approved"
        is_claimed = (verdict, path) == (word, contract.output_artifact_path) and not is_contradictory
    if is_claimed:
        return True, f"{said} says {word}; it is unattested and does not count"
    return False, f"{said} has {facts}; it does not count"


# --- Readiness: every line of the completion gate, beside the contract's own verdict.
#
# Evidence alone completes nothing: what counts is the newest check of a criterion, and only while everything that it
# depends on is as it was. A passing attested verdict counts as the final iteration's evidence.

SHOWN_PATHS = 5
_PROSE = (
    ".adoc", ".bib", ".gif", ".jpeg", ".jpg", ".md", ".markdown", ".pdf", ".png", ".rst", ".svg", ".tex", ".text",
    ".txt", ".webp",
)  # fmt: skip
"""Ends of names that are no code: prose and pictures. Everything else is code, data and configuration too."""


@dataclass(frozen=True, slots=True)
class CriterionView:
    """One criterion as it stands, for every surface.

    Attributes:
        id: of the criterion.
        description: what must be true.
        accepts: its rule, as people write it.
        required: an optional one may stay open.
        status: ``satisfied`` when the runtime accepted it and nothing that it depends on has moved; ``blocked`` when
            it waits for the owner; else ``open``.
        evidence_ids: the newest accepted findings, newest last.
        evidence_count: of these; the mission keeps sixteen.
        received: what was there instead; empty when it is satisfied.
        checked_at: when the runtime last looked, ISO 8601 UTC; empty for never.
        next_command: the command that helps; empty when it is satisfied.
    """

    id: str
    description: str
    accepts: str
    required: bool
    status: CriterionStatus
    evidence_ids: tuple[str, ...] = ()
    evidence_count: int = 0
    received: str = ""
    checked_at: str = ""
    next_command: str = ""


def completion_items(mission: Mission, look: WorkspaceSnapshot) -> tuple[Missing, ...]:
    """Everything that a completion still lacks: the verdict, then every other line; empty means ready."""
    return (*missing_items(mission, look), *readiness_items(mission, look))


def readiness_items(mission: Mission, look: WorkspaceSnapshot) -> tuple[Missing, ...]:
    """The missing items beside the contract's own verdict."""
    contract = mission.contract
    if contract is None:
        return ()
    found = [
        _lacking_criterion(view, item)
        for view, item in zip(criteria_of(mission, look), contract.criteria, strict=True)
        if view.required and view.status != "satisfied"
    ]
    verification = _lacking_verification(mission, look)
    if verification is not None:
        found.append(verification)
    if look.state_fault:
        found.append(_lacking_state(mission, look))
    if is_final_iteration_bare(mission, look):
        found.append(_lacking_iteration(mission))
    return tuple(found)


# --- criteria


def criteria_of(
    mission: Mission, look: WorkspaceSnapshot | None = None, drafted: tuple[Criterion, ...] = ()
) -> tuple[CriterionView, ...]:
    """Every criterion: how it stands at ``look``, else at the newest check under this contract.

    A mission without a contract will have ``drafted``.
    """
    found = []
    for item in mission.contract.criteria if mission.contract is not None else drafted:
        is_met, check = is_criterion_met(mission, item, look), check_of(mission, item)
        is_blocked = item.rule.is_owners or mission.phase == "blocked"
        ids = mission.evidence_ids.get(item.id, ())
        helps = item.rule.next_command(mission.task_id, item.id)
        if mission.contract is None:
            helps = f"omx-autoresearch start {mission.task_id}"
        view = CriterionView(
            id=item.id,
            description=item.description,
            accepts=str(item.rule),
            required=item.is_required,
            status="satisfied" if is_met else "blocked" if is_blocked else "open",
            evidence_ids=ids,
            evidence_count=len(ids),
            received="" if is_met else _received(mission, item, look),
            checked_at=check.at if check is not None else "",
            next_command="" if is_met else helps,
        )
        found.append(view)
    return tuple(found)


def open_criteria(mission: Mission, look: WorkspaceSnapshot | None = None) -> tuple[str, ...]:
    """Ids of required criteria that are not met; see :func:`criteria_of`."""
    return tuple(
        view.id for view in criteria_of(mission, look) if view.required and view.status != "satisfied"
    )


def is_criterion_met(mission: Mission, criterion: Criterion, look: WorkspaceSnapshot | None) -> bool:
    """True when the runtime accepted this criterion under this contract, and nothing that it depends on has moved."""
    check = check_of(mission, criterion)
    return (
        check is not None
        and check.is_met
        and bool(check.finding_id)
        and _is_current(check, mission, criterion, look)
    )


def check_of(mission: Mission, criterion: Criterion) -> CriterionCheck | None:
    """The newest check of a criterion; None when there was none."""
    return next((check for check in mission.checks if check.criterion_id == criterion.id), None)


def _facts_of(mission: Mission, look: WorkspaceSnapshot) -> Facts:
    return Facts(look, is_passing(mission, look), mission.claim_digests)


def _is_current(
    check: CriterionCheck, mission: Mission, criterion: Criterion, look: WorkspaceSnapshot | None
) -> bool:
    """True when a check is of this contract and, where there is a look, saw the same inputs."""
    if check.contract_digest != mission.contract_digest:
        return False
    return look is None or criterion.rule.is_current(check, _facts_of(mission, look))


def unsettled_criteria(mission: Mission, look: WorkspaceSnapshot) -> tuple[Criterion, ...]:
    """The required criteria that are not met and that a look of the runtime could settle; a person's word it cannot."""
    facts, lacking = _facts_of(mission, look), open_criteria(mission, look)
    criteria = mission.contract.criteria if mission.contract is not None else ()
    return tuple(item for item in criteria if item.id in lacking and item.rule.is_ready(facts))


def is_reusable_miss(mission: Mission, criterion: Criterion, look: WorkspaceSnapshot) -> bool:
    """True when the newest check missed on exactly this workspace, took long, and no person spoke since."""
    check = check_of(mission, criterion)
    return (
        check is not None
        and not check.is_met
        and check.is_reusable
        and check.at >= mission.prompted_at
        and _is_current(check, mission, criterion, look)
    )


def _lacking_criterion(view: CriterionView, criterion: Criterion) -> Missing:
    return Missing(
        f"criterion:{view.id}",
        f"evidence for `{view.id}` ({view.description}), which accepts only: {view.accepts}",
        view.received,
        view.next_command,
        is_owners=criterion.rule.is_owners,
    )


def _received(mission: Mission, criterion: Criterion, look: WorkspaceSnapshot | None) -> str:
    if mission.contract is None:
        return "the mission is a draft"
    if look is not None and (known := criterion.rule.missing(_facts_of(mission, look))):
        return known
    check = check_of(mission, criterion)
    if check is None or check.contract_digest != mission.contract_digest:
        return "the runtime has checked nothing for it under this contract yet"
    return check.received or f"evidence {check.finding_id}, but its inputs have changed since"


# --- as it was last seen


def recorded_codes(mission: Mission) -> tuple[str, ...]:
    """Codes of the items that were missing at the newest run or check: the verdict, required criteria."""
    contract = mission.contract
    if contract is None or mission.phase in ("complete", "cancelled"):
        return ()
    run = mission.attestation
    is_told = run is not None and (run.verdict, run.contract_digest) == ("passed", mission.contract_digest)
    what = "review" if contract.is_review else "validation"
    return (*(() if is_told else (what,)), *(f"criterion:{name}" for name in open_criteria(mission)))


def checked_at(mission: Mission) -> str:
    """The time of the newest run or check under this contract, ISO 8601 UTC; empty for never."""
    digest, run = mission.contract_digest, mission.attestation
    times = [check.at for check in mission.checks if check.contract_digest == digest]
    if run is not None and run.contract_digest == digest:
        times.append(run.finished_at)
    return max(times, default="")


# --- verification of changed code


def is_code(path: str) -> bool:
    """True for a path that is not prose and no picture."""
    return not path.casefold().endswith(_PROSE)


def is_verified(mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when changed code was verified by something that ran: the attested validator, or a criterion's command."""
    contract = mission.contract
    if contract is None:
        return False
    if not contract.is_review:
        return is_passing(mission, look) or (contract.accept_unattested and look.artifact_claim == "passed")
    return any(
        bool(criterion.rule.argv) and is_criterion_met(mission, criterion, look)
        for criterion in contract.criteria
    )


def _lacking_verification(mission: Mission, look: WorkspaceSnapshot) -> Missing | None:
    contract = mission.contract
    if contract is None or not look.changed_code or mission.verification_excuse or is_verified(mission, look):
        return None
    commands = [criterion for criterion in contract.criteria if criterion.rule.argv]
    shown = ", ".join(look.changed_code[:SHOWN_PATHS])
    more = len(look.changed_code) - SHOWN_PATHS
    task_id = mission.task_id
    return Missing(
        "verification",
        "verification of the code that changed since the launch, by a command of a criterion, or the owner's reason"
        " why none could run",
        f"changed but not verified: {shown}{f' and {more} more' if more > 0 else ''}",
        f"omx-autoresearch criterion check {task_id} {commands[0].id}"
        if commands
        else f'omx-autoresearch excuse {task_id} --reason "..."',
        is_owners=not commands,
    )


# --- the rest


def _lacking_state(mission: Mission, look: WorkspaceSnapshot) -> Missing:
    return Missing(
        "state-files",
        "task_spec.json and progress.json as the journal has them",
        look.state_fault,
        f"omx-autoresearch repair {mission.task_id}",
    )


def is_final_iteration_bare(mission: Mission, look: WorkspaceSnapshot) -> bool:
    """True when a stale mission would end with an iteration that brought no evidence."""
    if missing_items(mission, look):
        return False  # the verdict that is missing would be that evidence
    if mission.usage.stale == 0 or mission.turn_evidence_ids or is_passing(mission, look):
        return False
    # Without criteria nothing could bring evidence, and the hand-written verdict is all that the owner asked for.
    return mission.contract is None or bool(mission.contract.criteria)


def _lacking_iteration(mission: Mission) -> Missing:
    return Missing(
        "final-iteration",
        "evidence of the last iteration, since the mission was stale",
        f"{mission.usage.stale} iterations without progress, and no evidence in the last one",
        f"omx-autoresearch finding add {mission.task_id} --criterion ID --summary '...'",
    )
