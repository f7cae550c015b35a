"""Readiness: every line of the completion gate as one report, beside the contract's own verdict. Pure."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.missions.rules.evidence import (
    SHOWN_PATHS,
    Missing,
    completion_items,
    criteria_of,
    is_verified,
)
from omx_autoresearch.missions.rules.mission import next_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.evidence import CriterionView
    from omx_autoresearch.missions.rules.mission import Mission

_VERDICT_CODES = ("launch", "output-artifact", "validation", "review")


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


def readiness_report(
    mission: Mission, look: WorkspaceSnapshot, *, unresolved: tuple[str, ...] = ()
) -> ReadinessReport:
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
    if mission.phase == "cancelled":  # nothing that a line names is legal any more
        lines = tuple(line if line.code == "blocked" else replace(line, next_command="") for line in lines)
        missing = [item if item.code == "blocked" else replace(item, next_command="") for item in missing]
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
        f"no such finding: {', '.join(unresolved[:SHOWN_PATHS])}",
        f"omx-autoresearch repair {mission.task_id}",
    )


def _lines(
    mission: Mission, look: WorkspaceSnapshot, missing: dict[str, Missing]
) -> tuple[ReadinessLine, ...]:
    verdicts = [_line(item.what, item.code, item) for item in missing.values() if item.code in _VERDICT_CODES]
    found = (
        ("state-files", "task_spec.json and progress.json exist and match the journal"),
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


def _verification_line(mission: Mission, look: WorkspaceSnapshot, lacking: Missing | None) -> ReadinessLine:
    """In validator mode the validator's verdict is the verification, and nothing more is required."""
    what = "code that changed since the launch was verified, or the owner accepted a reason why not"
    excuse = mission.verification_excuse
    contract = mission.contract
    is_run = contract is not None and not contract.is_review
    is_changed = look.tree_digest != mission.launch_tree_digest
    if lacking is None and not excuse and is_run and is_changed and not is_verified(mission, look):
        lacking = Missing(
            "verification",
            what,
            "the content differs from the launch, and the validator has not passed on it",
            f"omx-autoresearch validate {mission.task_id}",
        )
    return _line(what, "verification", lacking, told=f"excused by the owner: {excuse}" if excuse else "")


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
