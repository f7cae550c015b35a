"""Another runtime's task folder, read: what of it a mission can begin with, and every fault in it.

host      ``.reasonix/autoresearch/ID``: task_spec.json, progress.json, directions_tried.json, findings.jsonl
own       the same names as our own projections show them, where the state behind them was lost
protocol  the layout of the long-horizon protocol: task_spec.md instead of task_spec.json

Nothing in such a folder is evidence: whoever wrote it, nobody attested it. Findings become claims that say where they
come from, directions are remembered as tried, criteria without a rule wait for the owner's word. Pure.
"""

from __future__ import annotations

import re

from omx_autoresearch.foundation.records import dataclass, field, replace
from omx_autoresearch.missions.rules.criteria import Criterion, CriterionFault, rule_of
from omx_autoresearch.missions.rules.directions import (
    SUMMARY_LIMIT,
    Direction,
    direction_faults,
    direction_of,
    entry_words,
)
from omx_autoresearch.missions.rules.findings import FINDING_KINDS, Finding, finding_faults
from omx_autoresearch.missions.rules.mission import OPERATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from omx_autoresearch.foundation.types import Operation

TASK_SPEC, TASK_PAGE = "task_spec.json", "task_spec.md"
PROGRESS, DIRECTIONS, FINDINGS = "progress.json", "directions_tried.json", "findings.jsonl"
_STATUSES = (
    "running",
    "blocked",
    "complete",
    "completed",
    "stopped",
    "draft",
    "paused",
    "cancelled",
    "stalled",
)
_CRITERION_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class AdoptionFault:
    """One thing that cannot be taken over.

    Attributes:
        file: its name in the folder.
        json_path: ``$.success_criteria[0].id``, ``line 3: $.kind``; empty for the whole file.
        cause: what is wrong with it, one clause.
    """

    file: str
    json_path: str
    cause: str

    def __str__(self) -> str:
        return (
            f"{self.file}: {self.json_path}: {self.cause}" if self.json_path else f"{self.file}: {self.cause}"
        )


@dataclass(frozen=True, slots=True)
class Folder:
    """What stands in a task folder, parsed.

    Attributes:
        spec: of task_spec.json; None where there is none.
        page: the text of task_spec.md; None where there is none.
        progress: of progress.json.
        directions: of directions_tried.json.
        findings: of findings.jsonl, with the number of each line.
    """

    spec: Any = None
    page: str | None = None
    progress: Any = None
    directions: Any = None
    findings: Sequence[tuple[int, Any]] = ()


@dataclass(frozen=True, slots=True)
class Adoptable:
    """What a mission can begin with.

    Attributes:
        task_id: that the folder's files say; empty where they say none.
        goal: what was asked.
        scope: what belongs to it.
        non_goals: what does not.
        milestones: what is reached on the way.
        forbid: operations that were not allowed.
        criteria: conditions; without a rule of their own they accept the owner's word.
        status: that was said last.
        iteration: that was reached.
        findings: claims.
        directions: what was tried.
    """

    task_id: str = ""
    goal: str = ""
    scope: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    milestones: tuple[str, ...] = ()
    forbid: tuple[Operation, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    status: str = ""
    iteration: int = 0
    findings: tuple[Finding, ...] = ()
    directions: tuple[Direction, ...] = field(default_factory=tuple)


def adoptable(folder: Folder, origin: str) -> tuple[Adoptable, list[AdoptionFault]]:
    """What a folder gives, and every fault in it; with a fault nothing of it is to be used.

    Args:
        folder: what stands in it.
        origin: where it stands; each claim says so.
    """
    reader = _Reader()
    found = reader.spec(folder.spec) if folder.page is None else reader.page(folder.page)
    status, iteration = reader.progress(folder.progress)
    return (
        replace(
            found,
            status=status,
            iteration=iteration,
            findings=reader.findings(folder.findings, origin),
            directions=reader.directions(folder.directions),
        ),
        reader.faults,
    )


class _Reader:
    """One pass over a folder; what is wrong is collected."""

    def __init__(self) -> None:
        self.faults: list[AdoptionFault] = []

    def fault(self, file: str, json_path: str, cause: str) -> None:
        self.faults.append(AdoptionFault(file, json_path, cause))

    # --- what was asked

    def spec(self, value: Any) -> Adoptable:
        if not isinstance(value, dict):
            self.fault(TASK_SPEC, "$", f"an object is needed, received {_kind(value)}")
            return Adoptable()
        allowed = value.get("allowed_operations", {})
        if not isinstance(allowed, dict) or any(type(allowed[name]) is not bool for name in allowed):
            self.fault(TASK_SPEC, "$.allowed_operations", "an object of true and false is needed")
            allowed = {}
        return Adoptable(
            task_id=self._text(value, "task_id", is_needed=False),
            goal=self._text(value, "goal", is_needed=True),
            scope=self._texts(value, "scope"),
            non_goals=self._texts(value, "non_goals"),
            milestones=self._texts(value, "milestones"),
            forbid=tuple(name for name in OPERATIONS if allowed.get(name) is False),
            criteria=self._criteria(value.get("success_criteria", [])),
        )

    def _text(self, value: dict[str, Any], name: str, *, is_needed: bool) -> str:
        text = value.get(name, "")
        if not isinstance(text, str) or (is_needed and not text.strip()):
            cause = "it is missing" if name not in value else f"a text is needed, received {_kind(text)}"
            self.fault(TASK_SPEC, f"$.{name}", cause)
            return ""
        return text

    def _texts(self, value: dict[str, Any], name: str) -> tuple[str, ...]:
        items = value.get(name)
        if items is None:
            return ()
        if not isinstance(items, list):
            self.fault(TASK_SPEC, f"$.{name}", f"a list is needed, received {_kind(items)}")
            return ()
        for number, item in enumerate(items):
            if not isinstance(item, str) or not item.strip():
                self.fault(TASK_SPEC, f"$.{name}[{number}]", f"a text is needed, received {_kind(item)}")
        return tuple(item for item in items if isinstance(item, str) and item.strip())

    def _criteria(self, items: Any) -> tuple[Criterion, ...]:
        if not isinstance(items, list):
            self.fault(TASK_SPEC, "$.success_criteria", f"a list is needed, received {_kind(items)}")
            return ()
        found: dict[str, Criterion] = {}
        for number, item in enumerate(items):
            criterion = self._criterion(f"$.success_criteria[{number}]", item)
            if criterion is not None and criterion.id in found:
                self.fault(TASK_SPEC, f"$.success_criteria[{number}].id", f"{criterion.id!r} stands twice")
            elif criterion is not None:
                found[criterion.id] = criterion
        return tuple(found.values())

    def _criterion(self, path: str, item: Any) -> Criterion | None:
        if not isinstance(item, dict):
            self.fault(TASK_SPEC, path, f"an object is needed, received {_kind(item)}")
            return None
        name, text, required = item.get("id"), item.get("description"), item.get("required", True)
        before = len(self.faults)
        if not isinstance(name, str) or not _CRITERION_ID.match(name):
            self.fault(TASK_SPEC, f"{path}.id", f"a-z, 0-9, - and _ are needed, received {_shown(name)}")
        if not isinstance(text, str) or not text.strip():
            self.fault(TASK_SPEC, f"{path}.description", f"a text is needed, received {_kind(text)}")
        if type(required) is not bool:
            self.fault(TASK_SPEC, f"{path}.required", f"true or false is needed, received {_kind(required)}")
        rule = rule_of("person")
        if "accepts" in item:
            try:
                rule = rule_of(str(item["accepts"]))
            except CriterionFault as error:
                self.fault(TASK_SPEC, f"{path}.accepts", str(error))
        return Criterion(str(name), str(text), rule, required) if len(self.faults) == before else None

    def page(self, text: str) -> Adoptable:
        """task_spec.md: its sections by their headings, whatever their level."""
        sections = _sections(text)
        goal = " ".join(sections.get("goal") or sections.get("", ())[:1])
        if not goal.strip():
            self.fault(TASK_PAGE, "", "it says no goal: a section `Goal`, or a first paragraph, is needed")
        criteria = tuple(
            Criterion(f"criterion-{number}", item, rule_of("person"))
            for number, item in enumerate(sections.get("criteria", ()), start=1)
        )
        return Adoptable(
            goal=goal,
            scope=tuple(sections.get("scope", ())),
            non_goals=tuple(sections.get("non_goals", ())),
            milestones=tuple(sections.get("milestones", ())),
            criteria=criteria,
        )

    # --- how far it came

    def progress(self, value: Any) -> tuple[str, int]:
        if not isinstance(value, dict):
            self.fault(PROGRESS, "$", f"an object is needed, received {_kind(value)}")
            return "", 0
        status, iteration = value.get("status"), value.get("iteration", 0)
        if status not in _STATUSES:
            self.fault(
                PROGRESS, "$.status", f"one of {', '.join(_STATUSES)} is needed, received {_shown(status)}"
            )
        if type(iteration) is not int or iteration < 0:
            self.fault(
                PROGRESS, "$.iteration", f"a whole number from 0 on is needed, received {_shown(iteration)}"
            )
            iteration = 0
        for name in ("stale_count", "pivot_count", "total_findings"):
            number = value.get(name, 0)
            if type(number) is not int or number < 0:
                self.fault(
                    PROGRESS, f"$.{name}", f"a whole number from 0 on is needed, received {_shown(number)}"
                )
        return str(status), iteration

    def directions(self, value: Any) -> tuple[Direction, ...]:
        if value is None:
            return ()
        if not isinstance(value, list):
            self.fault(DIRECTIONS, "$", f"a list is needed, received {_kind(value)}")
            return ()
        found: dict[str, Direction] = {}
        for number, item in enumerate(value):
            text = item if isinstance(item, str) else entry_words(item)
            direction = direction_of(text[:SUMMARY_LIMIT], {}, by="claim")
            if faults := direction_faults(direction.summary, {}):
                self.fault(DIRECTIONS, f"$[{number}]", "; ".join(faults))
            found.setdefault(direction.fingerprint, direction)
        return tuple(found.values())

    def findings(self, lines: Sequence[tuple[int, Any]], origin: str) -> tuple[Finding, ...]:
        found: dict[str, Finding] = {}
        for number, item in lines:
            finding = self._finding(number, item, origin)
            if finding is not None and finding.id in found:
                self.fault(FINDINGS, f"line {number}: $.id", f"{finding.id!r} stands twice")
            elif finding is not None:
                found[finding.id] = finding
        return tuple(found.values())

    def _finding(self, number: int, item: Any, origin: str) -> Finding | None:
        where = f"line {number}: $"
        if not isinstance(item, dict):
            self.fault(FINDINGS, where, f"an object is needed, received {_kind(item)}")
            return None
        kind = item.get("kind", "manual")
        paths = item.get("paths", [])
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            self.fault(FINDINGS, f"{where}.paths", "a list of texts is needed")
            paths = []
        said = "accepted" if item.get("accepted") is True else "not accepted"
        finding = Finding(
            id=str(item.get("id") or f"line-{number}"),
            kind=kind if kind in FINDING_KINDS else "manual",
            summary=entry_words(item),
            source="adoption",
            command=_if_text(item.get("command")),
            paths=tuple(paths),
            claim_reason=f"adopted from {origin}, {FINDINGS} line {number}, which calls it {said}: nobody attested it",
        )
        faults = finding_faults(finding)
        for fault in faults:
            self.fault(FINDINGS, where, fault)
        return None if faults else finding


def _if_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


_HEADINGS = (
    ("non_goals", ("non-goal", "non goal", "out of scope", "not part")),
    ("criteria", ("criteri", "success", "\u6210\u529f", "\u6807\u51c6")),
    ("milestones", ("milestone", "\u91cc\u7a0b\u7891")),
    ("scope", ("scope", "\u8303\u56f4")),
    ("goal", ("goal", "objective", "\u76ee\u6807")),
)


def _sections(text: str) -> dict[str, list[str]]:
    """The items or paragraphs below each known heading; those below none stand under an empty name."""
    found: dict[str, list[str]] = {}
    name, is_open = "", False
    for line in text.splitlines():
        heading = re.match(r"#{1,6}\s+(.*)", line)
        item = re.match(r"\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(.*)", line)
        if heading:
            name, is_open = _heading(heading[1]), False
        elif item:
            found.setdefault(name, []).append(item[1].strip())
            is_open = True
        elif not line.strip():
            is_open = False
        elif is_open:
            found[name][-1] += f" {line.strip()}"
        else:
            found.setdefault(name, []).append(line.strip())
            is_open = True
    return found


def _heading(text: str) -> str:
    lowered = text.lower()
    return next((name for name, words in _HEADINGS if any(word in lowered for word in words)), "")


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return {dict: "an object", list: "a list", str: "a text", bool: "true or false"}.get(
        type(value), "a number"
    )


def _shown(value: Any) -> str:
    return repr(value)[:80]
