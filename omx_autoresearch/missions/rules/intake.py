"""The answers to ``init``, and their faults: placeholders, two modes or none, unknown names."""

from __future__ import annotations

import re
from typing import Any, Literal

from omx_autoresearch.foundation.records import dataclass, field, fields, replace
from omx_autoresearch.foundation.types import Operation, TaskType, ValidationMode
from omx_autoresearch.freezing.manifest import glob_faults
from omx_autoresearch.missions.rules.allowances import Limits, check_limits
from omx_autoresearch.missions.rules.criteria import Criterion, criteria_faults, has_measured
from omx_autoresearch.missions.rules.mission import OPERATIONS, VALIDATION_MODES, JudgingTerms

SCRIPT: ValidationMode = "mission-validator-script"
REVIEW: ValidationMode = "prompt-architect-artifact"
TIMEOUT_LIMIT_SECONDS = 7 * 24 * 3600.0
TEXT_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class MissionDraft(JudgingTerms):
    """A mission as asked for, before anything of it is compiled.

    Attributes:
        validation_mode: follows from the other fields where empty.
        goal: what shall be true in the end, in the owner's words.
        slug: short name of its folder; made from the goal where empty.
        protect: globs of further files to freeze; ``!glob`` takes files out.
        environment_names: further variables that the commands may see.
        scope: what belongs to the mission.
        non_goals: what does not.
        milestones: what is reached on the way, in order; said, never judged.
        forbid: operations that the mission does without: ``network``, ``write``, ``publish``.
        track: leave the specs folder to be committed.
        limits: allowances that differ from the defaults, by name.
        criteria: further conditions, each with its own rule.
        task_type: the kind of mission.
        experiment: what the ``experiment:`` block of sandbox.md says; it is read where an experiment is started.
        intake_digests: of mission.md and sandbox.md as read; empty for a draft that was not read from files.
    """

    validation_mode: ValidationMode | Literal[""] = ""  # type: ignore[assignment]
    goal: str = ""
    slug: str = ""
    protect: tuple[str, ...] = ()
    environment_names: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    forbid: tuple[Operation, ...] = ()
    track: bool = False
    limits: dict[str, int | float] = field(default_factory=dict)
    criteria: tuple[Criterion, ...] = ()
    task_type: TaskType = "standard"
    experiment: dict[str, Any] = field(default_factory=dict)
    intake_digests: dict[str, str] = field(default_factory=dict)


TAKEN_OVER = (*(item.name for item in fields(JudgingTerms)), "criteria")
"""The fields that a contract copies from its draft, and ``amend`` back into a draft."""


@dataclass(frozen=True, slots=True)
class IntakeRecord:
    """result.json: what intake made of the answers.

    Attributes:
        schema_version: of this record.
        slug: the mission's short name, with its suffix where the slug was taken.
        goal: what was asked.
        task_type: kind of mission.
        validation_mode: how it is judged.
        specs_path: the folder, relative to the project.
        mission_path: mission.md, relative to the project.
        sandbox_path: sandbox.md, relative to the project.
        digests: sha256 of the two files as written.
        created_at: ISO 8601 UTC.
    """

    schema_version: int
    slug: str
    goal: str
    task_type: TaskType
    validation_mode: ValidationMode
    specs_path: str
    mission_path: str
    sandbox_path: str
    digests: dict[str, str]
    created_at: str


def settled(draft: MissionDraft) -> MissionDraft:
    """The draft with its mode filled in where the other fields leave no doubt."""
    if draft.validation_mode or bool(draft.validator_command) == bool(draft.validator_prompt):
        return draft
    return replace(draft, validation_mode=SCRIPT if draft.validator_command else REVIEW)


def limits_of(draft: MissionDraft) -> Limits:
    """The defaults with the draft's own allowances; the names have been checked."""
    return Limits(**{name: _as_declared(name, value) for name, value in draft.limits.items()})


def _as_declared(name: str, value: int | float) -> Any:
    is_exact = isinstance(value, int) and abs(value) < 2**53
    return float(value) if is_exact and isinstance(getattr(Limits(), name), float) else value


# --- placeholders

_ANGLE = re.compile(
    r"^\s*<[^<>]*>\s*$|<(?:your|the|a|an|my|insert|command|cmd|goal|path|file|script|validator|prompt|name|todo|slug)"
    r"\b[^<>]*>(?=\s|$)",
    re.IGNORECASE,
)
_WHOLE = re.compile(
    r"(?:todo|tbd|tba|fixme|xxx+|n/?a|none|null|undefined|placeholder|change[ _-]?me|replace[ _-]?me"
    r"|fill[ _-]?(?:me[ _-]?)?in"
    r"|goal|command|validator|prompt|string|text|\?+|-+|_+|\.{2,}|…)[.!:]*|(?:todo|tbd|fixme|xxx)\s*[:(].*",
    re.IGNORECASE | re.DOTALL,
)
_YOUR_HERE = re.compile(
    r"(?:(?:enter|put|insert|describe|write|type|add)\s+)?(?:your|the|a)\s+[\w -]{1,40}\s+(?:goes\s+)?here[.!]*"
    r"|(?:enter|insert|describe)\s+(?:your|the)\s+[\w -]{1,40}[.!]*"
    r"|your\s+(?:goal|command|validator|prompt|mission)[.!]*",
    re.IGNORECASE,
)
_LOREM = re.compile(r"\Alorem\s+ipsum\b", re.IGNORECASE)
_BRACED = re.compile(r"\A(?:\{\{[^{}]*\}\}|\[(?:your|insert|todo|the)\b[^\]]*\])\Z", re.IGNORECASE)


def placeholder_reason(text: str) -> str:
    """The reason why a text is a placeholder and no answer; empty for an answer."""
    plain = text.strip()
    if not plain:
        return "it is empty"
    for pattern, reason in (
        (_ANGLE, "it holds a placeholder in angle brackets"),
        (_BRACED, "it holds a placeholder in brackets"),
        (_LOREM, "it is filler text"),
    ):
        if found := pattern.search(plain):
            return f"{reason}: {found[0].strip()[:60]!r}"
    if _WHOLE.fullmatch(plain) or _YOUR_HERE.fullmatch(plain):
        return f"it is a placeholder: {plain[:60]!r}"
    return ""


# --- checks


def draft_faults(draft: MissionDraft) -> list[str]:
    """The faults of a draft, a sentence each with the name of the field; empty for a valid one."""
    draft = settled(draft)
    return [
        *_text_faults(draft),
        *_mode_faults(draft),
        *_limit_faults(draft),
        *(fault for glob in draft.protect for fault in glob_faults(glob)),
        *_work_faults(draft),
        *(fault for glob in draft.reviews for fault in glob_faults(glob, "reviews")),
        *_environment_faults(draft.environment_names),
        *_criteria_faults(draft),
        *_operation_faults(draft.forbid),
        *_confirmation_faults(draft),
    ]


def _text_faults(draft: MissionDraft) -> list[str]:
    found = _answer_faults("goal", draft.goal)
    for name in ("validator_command", "validator_prompt", "reviewer_command", "unfrozen_reason"):
        if value := getattr(draft, name):
            found += _answer_faults(name, value)
    for name in ("validator_command", "reviewer_command"):
        if _has_open_quote(getattr(draft, name)):
            found.append(f"{name}: a quotation mark is not closed")
    for name in ("scope", "non_goals", "milestones"):
        for item in getattr(draft, name):
            found += _answer_faults(name, item)
    return found


def _has_open_quote(command: str) -> bool:
    """True where a command of one line ends inside quotes; of several lines only the shell knows."""
    if "\n" in command or not {"'", '"'}.intersection(command):
        return False
    import shlex

    try:
        shlex.split(command, comments=True)
    except ValueError as error:
        return "quotation" in str(error)
    return False


def _answer_faults(name: str, text: str) -> list[str]:
    if reason := placeholder_reason(text):
        return [f"{name}: {reason}"]
    if len(text) > TEXT_LIMIT:
        return [f"{name}: it has {len(text)} characters, at most {TEXT_LIMIT} are allowed"]
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        return [f"{name}: it holds NUL or half of a surrogate pair"]
    return []


def _mode_faults(draft: MissionDraft) -> list[str]:
    one = "exactly one of validator_command (--validator) and validator_prompt (--prompt) is needed"
    if draft.validator_command and draft.validator_prompt:
        return [f"validation_mode: both modes are given; {one}"]
    if not draft.validator_command and not draft.validator_prompt:
        return [f"validation_mode: no mode is given; {one}"]
    if draft.validation_mode not in VALIDATION_MODES:
        known = " or ".join(VALIDATION_MODES)
        return [f"validation_mode: must be {known}, received {draft.validation_mode[:60]!r}"]
    if (draft.validation_mode == SCRIPT) != bool(draft.validator_command):
        other = "validator_command" if draft.validator_command else "validator_prompt"
        return [f"validation_mode: {draft.validation_mode} is given, but with {other}; {one}"]
    if draft.validation_mode == REVIEW:
        return _review_faults(draft)
    if draft.reviews:
        return ["reviews: it belongs to prompt-architect-artifact; a validator sees the whole workspace"]
    if draft.reviewer_command:
        return ["reviewer_command: it belongs to prompt-architect-artifact; the validator needs no reviewer"]
    return []


def _confirmation_faults(draft: MissionDraft) -> list[str]:
    if draft.confirm not in ("", "clean"):
        return [f"confirm: {draft.confirm[:60]!r} is not known; choose clean, or leave it out"]
    if draft.confirm and draft.validation_mode == REVIEW:
        return ["confirm: only the pass of a validator can be confirmed in a clean copy"]
    if not draft.confirm and (draft.keep or draft.link):
        return ["keep, link: they belong to a clean copy (--confirm clean)"]
    return []


def _review_faults(draft: MissionDraft) -> list[str]:
    found = []
    if not draft.output_artifact_path:
        found.append("output_artifact_path: the file under review is needed (--output)")
    elif reason := placeholder_reason(draft.output_artifact_path):
        found.append(f"output_artifact_path: {reason}")
    if not draft.reviewed_by:
        found.append("reviewed_by: the list is empty; name command, person or session")
    elif draft.reviewed_by == ("command",) and not draft.reviewer_command:
        found.append("reviewer_command: only a command may review, but none is given (--reviewer)")
    return found


def _limit_faults(draft: MissionDraft) -> list[str]:
    known = [item.name for item in fields(Limits)]
    unknown = [name for name in draft.limits if name not in known]
    found = [f"limits: {name[:60]!r} is unknown; known are {', '.join(known)}" for name in unknown]
    if not found:
        found = check_limits(limits_of(draft))
    if not 0 < draft.timeout_seconds <= TIMEOUT_LIMIT_SECONDS:
        most = f"{TIMEOUT_LIMIT_SECONDS:g}"
        found.append(
            f"timeout_seconds: must be above 0 and at most {most}, received {draft.timeout_seconds!r}"
        )
    return found


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _work_faults(draft: MissionDraft) -> list[str]:
    found = [fault for glob in draft.work for fault in glob_faults(glob, "work")]
    if draft.work and all(glob.startswith("!") for glob in draft.work):
        found.append(f"work: {draft.work[0]!r} takes paths out, but no glob names any work")
    return found + [
        f"work: {glob!r} is protected as well; a file cannot be frozen and free"
        for glob in draft.work
        if glob in draft.protect and not glob.startswith("!")
    ]


def _criteria_faults(draft: MissionDraft) -> list[str]:
    found = [f"criteria: {fault}" for fault in criteria_faults(draft.criteria, draft.validation_mode)]
    if draft.task_type == "experiment" and not has_measured(draft.criteria):
        found.append(
            "criteria: an experiment needs a required one, `ID: TEXT :: trial METRIC GAIN%` (--criterion)"
        )
    reasons = ((item.id, placeholder_reason(item.description)) for item in draft.criteria)
    return found + [f"criteria: {name}: {reason}" for name, reason in reasons if reason]


def _operation_faults(names: tuple[str, ...]) -> list[str]:
    return [
        f"forbid: {name[:60]!r} is not an operation; choose from {', '.join(OPERATIONS)}"
        for name in names
        if name not in OPERATIONS
    ]


def _environment_faults(names: tuple[str, ...]) -> list[str]:
    return [
        f"env: {name[:60]!r} is not the name of a variable; the value is taken from your environment at the start"
        for name in names
        if not _VARIABLE.match(name)
    ]
