"""Readiness: every line of the completion gate, beside the contract's own verdict.

    state-files     task_spec.json and progress.json stand and say what the journal says
    criterion:ID    each required criterion has evidence, and its rule accepts the workspace as it is now
    evidence-ids    each id that a criterion rests on is a recorded, accepted finding of that criterion
    verification    code that changed since the launch was verified, or the owner accepted a reason why not
    blocked         the mission is not blocked
    final-iteration a stale mission ends with evidence of its last iteration

Evidence alone completes nothing: what counts is the newest :class:`~omx_autoresearch.core.findings.Check` of the
criterion, and only while everything that it depends on is as it was. A passing attested verdict counts as the final
iteration's evidence. Pure.
"""

from __future__ import annotations

from omx_autoresearch.core.evidence import Missing, is_passing, missing_items
from omx_autoresearch.core.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.criteria import Criterion
    from omx_autoresearch.core.evidence import Look
    from omx_autoresearch.core.findings import Check
    from omx_autoresearch.core.mission import Mission

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
        _lacking_criterion(mission, criterion, look)
        for criterion in contract.criteria
        if criterion.is_required and not is_criterion_met(mission, criterion, look)
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


def is_criterion_met(mission: Mission, criterion: Criterion, look: Look) -> bool:
    """True when the runtime accepted this criterion under this contract, and nothing that it depends on has moved."""
    check = check_of(mission, criterion)
    return (
        check is not None
        and check.is_met
        and bool(check.finding_id)
        and is_current(check, mission, criterion, look)
    )


def check_of(mission: Mission, criterion: Criterion) -> Check | None:
    """The newest check of a criterion; None when there was none."""
    return next((check for check in mission.checks if check.criterion_id == criterion.id), None)


def open_criteria(mission: Mission) -> tuple[str, ...]:
    """Ids of required criteria that the newest check under this contract did not find met; without a look of now."""
    contract = mission.contract
    if contract is None:
        return ()
    met = {
        check.criterion_id
        for check in mission.checks
        if check.is_met and check.contract_digest == mission.contract_digest
    }
    return tuple(item.id for item in contract.criteria if item.is_required and item.id not in met)


def is_current(check: Check, mission: Mission, criterion: Criterion, look: Look) -> bool:
    """True when a check saw what stands there now.

    A command depends on HEAD, the whole tree and the pinned files, as a validation does; a file on its content alone;
    validator and review on the attestation, which is judged anew; a trial on the newest claim about its metric; a
    person's word on the contract.
    """
    if check.contract_digest != mission.contract_digest:
        return False
    kind, rule, digest = criterion.rule.kind, criterion.rule, check.content_digest
    if kind == "command":
        seen = (check.head, check.tree_digest, check.pin_digest)
        is_same = seen == (look.head, look.tree_digest, look.pin_digest)
        return bool(look.tree_digest) and is_same and not look.changed_pins
    if kind == "file":
        return bool(digest) and look.file_digests.get(rule.path) == digest
    if kind in ("validator", "review"):
        return is_passing(mission, look)
    if kind == "trial":
        return bool(digest) and mission.claim_digests.get(rule.metric) == digest
    return True


def unsettled_criteria(mission: Mission, look: Look) -> tuple[Criterion, ...]:
    """The required criteria that are not met and that a look of the runtime could settle; a person's word it cannot."""
    contract = mission.contract
    if contract is None:
        return ()
    return tuple(
        criterion
        for criterion in contract.criteria
        if criterion.is_required
        and criterion.rule.kind != "person"
        and not is_criterion_met(mission, criterion, look)
        and not (criterion.rule.kind in ("validator", "review") and not is_passing(mission, look))
    )


def is_reusable_miss(mission: Mission, criterion: Criterion, look: Look) -> bool:
    """True when the newest check missed on exactly this workspace, took long, and no person spoke since."""
    check = check_of(mission, criterion)
    return (
        check is not None
        and not check.is_met
        and check.is_reusable
        and check.at >= mission.prompted_at
        and is_current(check, mission, criterion, look)
    )


def _lacking_criterion(mission: Mission, criterion: Criterion, look: Look) -> Missing:
    task_id, kind = mission.task_id, criterion.rule.kind
    commands = {
        "validator": f"omx-autoresearch validate {task_id}",
        "review": f"omx-autoresearch review {task_id}",
        "person": f'omx-autoresearch criterion accept {task_id} {criterion.id} --reason "..."',
    }
    return Missing(
        f"criterion:{criterion.id}",
        f"evidence for `{criterion.id}` ({criterion.description}), which accepts only: {criterion.rule}",
        _received(mission, criterion, look),
        commands.get(kind, f"omx-autoresearch criterion check {task_id} {criterion.id}"),
        is_owners=kind == "person",
    )


def _received(mission: Mission, criterion: Criterion, look: Look) -> str:
    check = check_of(mission, criterion)
    kind = criterion.rule.kind
    if kind == "person":
        return "the owner has not said so under this contract"
    if kind == "file" and criterion.rule.path in look.file_faults:
        return look.file_faults[criterion.rule.path]
    if check is None or check.contract_digest != mission.contract_digest:
        return "nothing that the runtime itself saw under this contract yet"
    if check.received:
        return check.received
    return f"evidence {check.finding_id}, but what it depends on has changed since"


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
        criterion.rule.kind == "command" and is_criterion_met(mission, criterion, look)
        for criterion in contract.criteria
    )


def _lacking_verification(mission: Mission, look: Look) -> Missing | None:
    contract = mission.contract
    if contract is None or not look.changed_code or mission.verification_excuse or is_verified(mission, look):
        return None
    commands = [criterion for criterion in contract.criteria if criterion.rule.kind == "command"]
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
    from omx_autoresearch.core.lifecycle import COMMAND_FOR

    blocker = mission.blocker
    return Missing(
        "blocked",
        "a running mission",
        f"it is {mission.phase}" + (f": {blocker.what}" if blocker else ""),
        COMMAND_FOR[mission.phase].format(task=mission.task_id),
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
    contract = mission.contract

    def line(code: str, what: str) -> ReadinessLine:
        lacking = missing.get(code)
        if lacking is None:
            return ReadinessLine(code, what, True)
        return ReadinessLine(code, what, False, received=lacking.received, next_command=lacking.next_command)

    lines = [
        line("state-files", "task_spec.json and progress.json stand and say what the journal says"),
        *(_verdict_line(item) for item in missing.values() if item.code in _VERDICT_CODES),
    ]
    if not any(code in missing for code in _VERDICT_CODES):
        lines.append(
            ReadinessLine("verdict", "the contract's own verdict passes on the workspace as it is", True)
        )
    if contract is not None:
        lines += [_criterion_line(mission, criterion, look) for criterion in contract.criteria]
    lines += [
        line("evidence-ids", "every evidence id is an accepted finding of the journal"),
        _verification_line(mission, look, missing.get("verification")),
        line("blocked", "the mission is running, not blocked"),
        line("final-iteration", "a stale mission ends with evidence of its last iteration"),
    ]
    return tuple(lines)


def _verification_line(mission: Mission, look: Look, lacking: Missing | None) -> ReadinessLine:
    """Where the validator runs the code, its own verdict is the verification: nothing more is asked for."""
    what = "code that changed since the launch was verified, or the owner accepted a reason why not"
    if lacking is not None:
        return ReadinessLine(
            "verification", what, False, received=lacking.received, next_command=lacking.next_command
        )
    if mission.verification_excuse:
        return ReadinessLine(
            "verification", what, True, received=f"excused by the owner: {mission.verification_excuse}"
        )
    contract = mission.contract
    is_run = contract is not None and contract.validation_mode == "mission-validator-script"
    if is_run and look.tree_digest != mission.launch_tree_digest and not is_verified(mission, look):
        return ReadinessLine(
            "verification",
            what,
            False,
            received="the content differs from the launch, and the validator has not passed on it",
            next_command=f"omx-autoresearch validate {mission.task_id}",
        )
    return ReadinessLine("verification", what, True)


_VERDICT_CODES = ("launch", "output-artifact", "validation", "review")


def _verdict_line(item: Missing) -> ReadinessLine:
    return ReadinessLine(item.code, item.what, False, received=item.received, next_command=item.next_command)


def _criterion_line(mission: Mission, criterion: Criterion, look: Look) -> ReadinessLine:
    is_met = is_criterion_met(mission, criterion, look)
    lacking = None if is_met else _lacking_criterion(mission, criterion, look)
    return ReadinessLine(
        f"criterion:{criterion.id}",
        f"{criterion.description} ({criterion.rule})",
        is_met,
        criterion.is_required,
        mission.evidence_ids.get(criterion.id, ()),
        lacking.received if lacking else "",
        lacking.next_command if lacking else "",
    )
