"""Readiness: every line of the completion gate, beside the contract's own verdict.

    state-files     task_spec.json and progress.json stand and say what the journal says
    criterion:ID    each required criterion has evidence, and its rule accepts the workspace as it is now
    evidence-ids    each id that a criterion rests on is a recorded, accepted finding of that criterion
    verification    code that changed since the launch was verified, or the owner accepted a reason why not
    blocked         the mission is not blocked
    final-iteration a stale mission ends with evidence of its last iteration

Evidence alone completes nothing: what counts is the newest :class:`~omx_autoresearch.missions.rules.findings.Check` of
the criterion, and only while everything that it depends on is as it was. A passing attested verdict counts as the final
iteration's evidence. Pure.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.missions.rules.criteria import Criterion, Facts
from omx_autoresearch.missions.rules.evidence import Missing, is_passing, missing_items
from omx_autoresearch.missions.rules.mission import next_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import CriterionStatus
    from omx_autoresearch.missions.rules.findings import Check, Look
    from omx_autoresearch.missions.rules.mission import Mission

_SHOWN_PATHS = 5
_PROSE = (
    ".adoc", ".bib", ".gif", ".jpeg", ".jpg", ".md", ".markdown", ".pdf", ".png", ".rst", ".svg", ".tex", ".text",
    ".txt", ".webp",
)  # fmt: skip
"""Ends of names that are no code: prose and pictures. Everything else is code, data and configuration too."""


@dataclass(frozen=True, slots=True)
class ReadinessLine:
    """One line of the completion gate.

    Attributes:
        code: stable word, for machines.
        what: what must hold, one sentence.
        is_met: it does.
        is_required: completion needs it.
        evidence_ids: findings that it rests on, newest last.
        received: what was there instead, or what it rests on.
        next_command: the one command or act that helps; empty when it is met.
    """

    code: str
    what: str
    is_met: bool
    is_required: bool = True
    evidence_ids: tuple[str, ...] = ()
    received: str = ""
    next_command: str = ""


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


@dataclass(frozen=True, slots=True)
class ReadinessReport:
    """Whether a mission would complete now, line by line.

    Attributes:
        task_id: of the mission.
        is_ready: every required line is met.
        lines: in the order of reading.
        missing: what is not met, each with its next command.
    """

    task_id: str
    is_ready: bool
    lines: tuple[ReadinessLine, ...]
    missing: tuple[Missing, ...]


def completion_items(mission: Mission, look: Look) -> tuple[Missing, ...]:
    """Everything that a completion still lacks: the verdict, then every other line; empty means ready."""
    return (*missing_items(mission, look), *readiness_items(mission, look))


def readiness_items(mission: Mission, look: Look) -> tuple[Missing, ...]:
    """What is missing beside the contract's own verdict."""
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
    mission: Mission, look: Look | None = None, drafted: tuple[Criterion, ...] = ()
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


def open_criteria(mission: Mission, look: Look | None = None) -> tuple[str, ...]:
    """Ids of required criteria that are not met; see :func:`criteria_of`."""
    return tuple(
        view.id for view in criteria_of(mission, look) if view.required and view.status != "satisfied"
    )


def is_criterion_met(mission: Mission, criterion: Criterion, look: Look | None) -> bool:
    """True when the runtime accepted this criterion under this contract, and nothing that it depends on has moved."""
    check = check_of(mission, criterion)
    return (
        check is not None
        and check.is_met
        and bool(check.finding_id)
        and _is_current(check, mission, criterion, look)
    )


def check_of(mission: Mission, criterion: Criterion) -> Check | None:
    """The newest check of a criterion; None when there was none."""
    return next((check for check in mission.checks if check.criterion_id == criterion.id), None)


def _facts_of(mission: Mission, look: Look) -> Facts:
    return Facts(look, is_passing(mission, look), mission.claim_digests)


def _is_current(check: Check, mission: Mission, criterion: Criterion, look: Look | None) -> bool:
    """True when a check is of this contract and saw what stands there now, where somebody looked."""
    if check.contract_digest != mission.contract_digest:
        return False
    return look is None or criterion.rule.is_current(check, _facts_of(mission, look))


def unsettled_criteria(mission: Mission, look: Look) -> tuple[Criterion, ...]:
    """The required criteria that are not met and that a look of the runtime could settle; a person's word it cannot."""
    facts, lacking = _facts_of(mission, look), open_criteria(mission, look)
    criteria = mission.contract.criteria if mission.contract is not None else ()
    return tuple(item for item in criteria if item.id in lacking and item.rule.is_ready(facts))


def is_reusable_miss(mission: Mission, criterion: Criterion, look: Look) -> bool:
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


def _received(mission: Mission, criterion: Criterion, look: Look | None) -> str:
    if mission.contract is None:
        return "the mission is a draft"
    if look is not None and (known := criterion.rule.missing(_facts_of(mission, look))):
        return known
    check = check_of(mission, criterion)
    if check is None or check.contract_digest != mission.contract_digest:
        return "nothing that the runtime itself saw under this contract yet"
    return check.received or f"evidence {check.finding_id}, but what it depends on has changed since"


# --- as it was last seen


def recorded_codes(mission: Mission) -> tuple[str, ...]:
    """What the contract lacked when a run or a check last told something: its own verdict, required criteria."""
    contract = mission.contract
    if contract is None or mission.phase in ("complete", "cancelled"):
        return ()
    run = mission.attestation
    is_told = run is not None and (run.verdict, run.contract_digest) == ("passed", mission.contract_digest)
    what = "review" if contract.validation_mode == "prompt-architect-artifact" else "validation"
    return (*(() if is_told else (what,)), *(f"criterion:{name}" for name in open_criteria(mission)))


def checked_at(mission: Mission) -> str:
    """When a run or a check last told something under this contract, ISO 8601 UTC; empty for never."""
    digest, run = mission.contract_digest, mission.attestation
    times = [check.at for check in mission.checks if check.contract_digest == digest]
    if run is not None and run.contract_digest == digest:
        times.append(run.finished_at)
    return max(times, default="")


# --- verification of changed code


def is_code(path: str) -> bool:
    """True for a path that is not prose and no picture."""
    return not path.casefold().endswith(_PROSE)


def is_verified(mission: Mission, look: Look) -> bool:
    """True when changed code was verified by something that ran: the attested validator, or a criterion's command."""
    contract = mission.contract
    if contract is None:
        return False
    if contract.validation_mode == "mission-validator-script":
        return is_passing(mission, look) or (contract.accept_unattested and look.artifact_claim == "passed")
    return any(
        bool(criterion.rule.argv) and is_criterion_met(mission, criterion, look)
        for criterion in contract.criteria
    )


def _lacking_verification(mission: Mission, look: Look) -> Missing | None:
    contract = mission.contract
    if contract is None or not look.changed_code or mission.verification_excuse or is_verified(mission, look):
        return None
    commands = [criterion for criterion in contract.criteria if criterion.rule.argv]
    shown = ", ".join(look.changed_code[:_SHOWN_PATHS])
    more = len(look.changed_code) - _SHOWN_PATHS
    task_id = mission.task_id
    return Missing(
        "verification",
        "verification of the code that changed since the launch, by a command of a criterion, or the owner's reason"
        " why none could run",
        f"changed and verified by nothing: {shown}{f' and {more} more' if more > 0 else ''}",
        f"omx-autoresearch criterion check {task_id} {commands[0].id}"
        if commands
        else f'omx-autoresearch excuse {task_id} --reason "..."',
        is_owners=not commands,
    )


# --- the rest


def _lacking_state(mission: Mission, look: Look) -> Missing:
    return Missing(
        "state-files",
        "task_spec.json and progress.json as the journal has them",
        look.state_fault,
        f"omx-autoresearch repair {mission.task_id}",
    )


def is_final_iteration_bare(mission: Mission, look: Look) -> bool:
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


# --- the report


def readiness_report(mission: Mission, look: Look, *, unresolved: tuple[str, ...] = ()) -> ReadinessReport:
    """Every line of the completion gate at this look.

    Args:
        mission: the newest state.
        look: the workspace as it is now.
        unresolved: evidence ids that no accepted finding of the journal has; the caller looked them up.
    """
    missing = list(completion_items(mission, look))
    if mission.phase not in ("running", "complete"):
        missing.append(_lacking_phase(mission))
    if unresolved:
        missing.append(_lacking_ids(mission, unresolved))
    lines = _lines(mission, look, {item.code: item for item in missing})
    return ReadinessReport(mission.task_id, not missing, lines, tuple(missing))


def _lacking_phase(mission: Mission) -> Missing:
    blocker = mission.blocker
    return Missing(
        "blocked",
        "a running mission",
        f"it is {mission.phase}" + (f": {blocker.what}" if blocker else ""),
        next_command(mission),
        is_owners=True,
    )


def _lacking_ids(mission: Mission, unresolved: tuple[str, ...]) -> Missing:
    return Missing(
        "evidence-ids",
        "evidence ids that are accepted findings of the journal",
        f"no such finding: {', '.join(unresolved[:_SHOWN_PATHS])}",
        f"omx-autoresearch repair {mission.task_id}",
    )


def _lines(mission: Mission, look: Look, missing: dict[str, Missing]) -> tuple[ReadinessLine, ...]:
    verdicts = [_line(item.what, item.code, item) for item in missing.values() if item.code in _VERDICT_CODES]
    found = (
        ("state-files", "task_spec.json and progress.json stand and say what the journal says"),
        ("evidence-ids", "every evidence id is an accepted finding of the journal"),
        ("blocked", "the mission is running, not blocked"),
        ("final-iteration", "a stale mission ends with evidence of its last iteration"),
    )
    state, ids, *rest = (_line(what, code, missing.get(code)) for code, what in found)
    passed = _line("the contract's own verdict passes on the workspace as it is", "verdict", None)
    criteria = map(_criterion_line, criteria_of(mission, look))
    verification = _verification_line(mission, look, missing.get("verification"))
    return (state, *(verdicts or [passed]), *criteria, ids, verification, *rest)


def _line(what: str, code: str, lacking: Missing | None, *, told: str = "") -> ReadinessLine:
    if lacking is None:
        return ReadinessLine(code, what, True, received=told)
    return ReadinessLine(code, what, False, received=lacking.received, next_command=lacking.next_command)


def _verification_line(mission: Mission, look: Look, lacking: Missing | None) -> ReadinessLine:
    """Where the validator runs the code, its own verdict is the verification: nothing more is asked for."""
    what = "code that changed since the launch was verified, or the owner accepted a reason why not"
    excuse = mission.verification_excuse
    contract = mission.contract
    is_run = contract is not None and contract.validation_mode == "mission-validator-script"
    is_changed = look.tree_digest != mission.launch_tree_digest
    if lacking is None and not excuse and is_run and is_changed and not is_verified(mission, look):
        lacking = Missing(
            "verification",
            what,
            "the content differs from the launch, and the validator has not passed on it",
            f"omx-autoresearch validate {mission.task_id}",
        )
    return _line(what, "verification", lacking, told=f"excused by the owner: {excuse}" if excuse else "")


_VERDICT_CODES = ("launch", "output-artifact", "validation", "review")


def _criterion_line(view: CriterionView) -> ReadinessLine:
    return ReadinessLine(
        f"criterion:{view.id}",
        f"{view.description} ({view.accepts})",
        view.status == "satisfied",
        view.required,
        view.evidence_ids,
        view.received,
        view.next_command,
    )
