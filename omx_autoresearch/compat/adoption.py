"""Adopting another runtime's task folder: it is read, checked as a whole and copied into a new mission, never changed.

host      ``.reasonix/autoresearch/ID``: task_spec.json, progress.json, directions_tried.json, findings.jsonl
own       the same files from our own projections, whose state was lost
protocol  the layout of the long-horizon protocol: task_spec.md instead of task_spec.json

The models below follow the published schemas (``missions/task_files.py``) leniently: other runtimes omit fields and add
their own. A folder with a fault is refused, and the error lists all faults.

Nothing in such a folder is evidence: this runtime attested none of it. Findings become claims that name their origin,
directions count as tried, and criteria without a rule wait for the owner's word. The first write of the new journal has
everything that is taken over, so no mission is ever half adopted.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid, StepIllegal, WorkspaceFault
from omx_autoresearch.foundation.input_validation import checked
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.journal.layout import ProjectFolder, Runtime, is_safe_task_id, slugify
from omx_autoresearch.journal.layout import task_id as make_task_id
from omx_autoresearch.journal.safe_files import read_inside
from omx_autoresearch.missions.intake import read_intake, write_intake
from omx_autoresearch.missions.launch import creation_of
from omx_autoresearch.missions.records.lifecycle import MissionAdopted
from omx_autoresearch.missions.records.work import DirectionDeclared, FindingRecorded
from omx_autoresearch.missions.rules import criteria, directions
from omx_autoresearch.missions.rules.criteria import Criterion, rule_of
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.rules.mission import FINAL_PHASES
from omx_autoresearch.missions.store import MissionStore

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.criteria import Finding
    from omx_autoresearch.missions.rules.directions import Direction
    from omx_autoresearch.missions.rules.mission import Mission

TASK_SPEC, TASK_PAGE = "task_spec.json", "task_spec.md"
PROGRESS, DIRECTIONS, FINDINGS = "progress.json", "directions_tried.json", "findings.jsonl"
LIMIT_BYTES = 256 * 1024 * 1024
"""Of one file in a folder."""
KEPT_DIRECTIONS = directions.DIRECTIONS_LIMIT // 2
"""The newest are kept, and only half the limit, so that the mission can declare directions of its own."""


# --- the files of a folder


def _words(text: str) -> str:
    if not text.strip():
        raise ValueError("text is required, and it is empty")
    return text


def _rule(text: str) -> str:
    rule_of(text)
    return text


def _direction(item: Any) -> Direction:
    text = item if isinstance(item, str) else directions.entry_words(item)
    found = directions.direction_of(text[: directions.SUMMARY_LIMIT], {}, by="claim")
    if faults := directions.direction_faults(found.summary, {}):
        raise ValueError("; ".join(faults))
    return found


_Text = Annotated[str, AfterValidator(_words)]
_Texts = tuple[_Text, ...] | None
_Count = Annotated[int, Field(ge=0)]
_Directions = list[Annotated[Any, AfterValidator(_direction)]]


class _File(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class _CriterionEntry(_File):
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    description: _Text
    required: bool = True
    accepts: Annotated[str, AfterValidator(_rule)] = "person"


def _distinct(items: tuple[_CriterionEntry, ...]) -> tuple[_CriterionEntry, ...]:
    ids = [item.id for item in items]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"{', '.join(map(repr, twice))} appears twice")
    return items


class _Operations(_File):
    network: bool = True
    write: bool = True
    publish: bool = True


class _TaskSpec(_File):
    task_id: str = ""
    task_type: Any = None
    goal: _Text
    scope: _Texts = None
    non_goals: _Texts = None
    milestones: _Texts = None
    allowed_operations: _Operations = _Operations()
    success_criteria: Annotated[tuple[_CriterionEntry, ...], AfterValidator(_distinct)] = ()

    def draft(self) -> MissionDraft:
        allowed = self.allowed_operations
        return MissionDraft(
            goal=self.goal,
            scope=self.scope or (),
            non_goals=self.non_goals or (),
            milestones=self.milestones or (),
            forbid=tuple(name for name in ("network", "write", "publish") if not getattr(allowed, name)),
            criteria=tuple(
                Criterion(item.id, item.description, rule_of(item.accepts), item.required)
                for item in self.success_criteria
            ),
        )


class _Progress(_File):
    status: Literal[
        "running", "blocked", "complete", "completed", "stopped", "draft", "paused", "cancelled", "stalled"
    ]
    iteration: _Count = 0
    stale_count: _Count = 0
    pivot_count: _Count = 0
    total_findings: _Count = 0


class _FindingLine(_File):
    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    id: str | int | None = None
    kind: Any = "manual"
    command: Any = ""
    paths: tuple[str, ...] = ()
    accepted: Any = False

    def finding(self, origin: str, number: int) -> Finding:
        """The line as a claim.

        Raises:
            ValueError: it cannot be recorded.
        """
        said = "accepted" if self.accepted is True else "not accepted"
        found = criteria.Finding(
            id=str(self.id or f"line-{number}"),
            kind=self.kind if self.kind in criteria.FINDING_KINDS else "manual",
            summary=directions.entry_words(self.model_dump()),
            source="adoption",
            command=self.command if isinstance(self.command, str) else "",
            paths=self.paths,
            claim_reason=f"adopted from {origin}, {FINDINGS} line {number}, which calls it {said}: this runtime did "
            "not attest it",
        )
        if faults := criteria.finding_faults(found):
            raise ValueError("; ".join(faults))
        return found


@dataclass(frozen=True, slots=True)
class Origin:
    """A folder that can be adopted.

    Attributes:
        path: the folder's absolute path.
        layout: ``host``, ``own`` or ``protocol``.
        task_id: the task id in the folder's files; empty if they have none.
        status: the task's last status in the files.
        iteration: the last iteration in the files.
        draft: the task; criteria without a rule accept the owner's word.
        findings: claims.
        directions: the tried directions, the newest :data:`KEPT_DIRECTIONS`.
        digests: sha256 of each file that was read, by name.
        notes: things that were left out and commands that the folder contains, a line each.
    """

    path: str
    layout: str
    task_id: str
    status: str
    iteration: int
    draft: MissionDraft
    findings: tuple[Finding, ...]
    directions: tuple[Direction, ...]
    digests: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_origin(path: str) -> Origin:
    """Read and check a task folder.

    Raises:
        WorkspaceFault: there is no such folder, or no task in it.
        MissionInvalid: part of it cannot be taken over; lists every fault by file, place and cause.
    """
    folder = _Folder(os.path.abspath(path))
    path, page = folder.path, None
    spec = None
    if folder.is_typed:
        spec = folder.document(TASK_SPEC, _TaskSpec)
        draft = spec.draft() if spec else MissionDraft()
    else:
        page = folder.data(TASK_PAGE)
        draft = _draft_of_page((page or b"").decode("utf-8", "replace"))
        if page is not None and not draft.goal.strip():
            folder.fault(TASK_PAGE, "it has no goal: write a section `Goal` or a first paragraph")
    progress = folder.document(PROGRESS, _Progress, is_needed=True)
    tried = folder.document(DIRECTIONS, _Directions) or []
    claims = folder.findings()
    if folder.faults or progress is None:
        count = count_of(len(folder.faults), "fault")
        raise MissionInvalid(
            "\n".join([f"{path} cannot be adopted: {count}", *folder.faults]),
            next_step=f"copy the folder, fix the copy, and adopt the copy: cp -r {shlex.quote(path)} COPY",
        )
    kept = tuple({item.fingerprint: item for item in tried}.values())
    if len(kept) > KEPT_DIRECTIONS:
        folder.notes.append(f"the oldest {len(kept) - KEPT_DIRECTIONS} directions were left out")
    folder.notes += [
        f"criterion {item.id} is from that folder and runs a command, which a start approves: {item.rule}"
        for item in draft.criteria
        if item.rule.argv
    ]
    is_own = (spec is not None and spec.task_type is not None) or ".omx" in path.split(os.sep)[-3:]
    return Origin(
        path=path,
        layout="protocol" if not folder.is_typed else "own" if is_own else "host",
        task_id=spec.task_id if spec else "",
        status=progress.status,
        iteration=progress.iteration,
        draft=draft,
        findings=claims,
        directions=kept[-KEPT_DIRECTIONS:],
        digests=folder.digests,
        notes=tuple(folder.notes),
    )


class _Folder:
    """The files of one folder, each opened once and only read; faults are collected.

    Raises:
        WorkspaceFault: there is no such folder, or no task in it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isdir(path):
            raise WorkspaceFault(
                f"there is no folder {path}: the task folder is missing or has another name",
                next_step=f"ls {shlex.quote(os.path.dirname(path))}",
            )
        self._prefix = "state/" if os.path.isdir(os.path.join(path, "state")) else ""
        names = os.listdir(os.path.join(path, self._prefix))
        self.is_typed = TASK_SPEC in names
        if not self.is_typed and TASK_PAGE not in names:
            raise WorkspaceFault(
                f"{path} is not a task folder: it has neither {TASK_SPEC} nor {TASK_PAGE} in it",
                next_step=f"ls -R {shlex.quote(path)}",
            )
        self.digests: dict[str, str] = {}
        self.faults: list[str] = []
        self.notes: list[str] = []

    def fault(self, name: str, cause: object) -> None:
        self.faults.append(f"  - {name}: {cause}")

    def data(self, name: str, *, is_needed: bool = False) -> bytes | None:
        try:
            # it refuses a link, which would lead out of the folder
            data = read_inside(self.path, f"{self._prefix}{name}", LIMIT_BYTES)
        except FileNotFoundError:
            if is_needed:
                self.fault(name, "it is missing")
            return None
        except (AutoresearchError, OSError) as error:
            self.fault(name, error.message if isinstance(error, AutoresearchError) else error.strerror)
            return None
        self.digests[f"{self._prefix}{name}"] = sha256(data).hexdigest()
        return data

    def document(self, name: str, kind: type[Any], *, is_needed: bool = False) -> Any:
        """A JSON file as ``kind``; None if it is missing or has faults."""
        data = self.data(name, is_needed=is_needed)
        try:
            return None if data is None else self._checked(name, "", kind, json_codec.decode_document(data))
        except ValueError as error:
            self.fault(name, error)
            return None

    def findings(self) -> tuple[Finding, ...]:
        """Every line of findings.jsonl, as a claim."""
        found: dict[str, Finding] = {}
        lines = (self.data(FINDINGS) or b"").split(b"\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"line {number}: "
            try:
                read = self._checked(FINDINGS, place, _FindingLine, json_codec.decode(line))
            except ValueError as error:
                if number == len(lines):  # no newline: its writer was interrupted
                    self.notes.append(f"{FINDINGS} line {number} is incomplete and was left out")
                else:
                    self.fault(FINDINGS, f"{place}{error}")
                continue
            try:
                finding = read.finding(self.path, number) if read else None
            except ValueError as error:
                self.fault(FINDINGS, f"{place}$: {error}")
                continue
            if finding is not None and finding.id in found:
                self.fault(FINDINGS, f"{place}$.id: {finding.id!r} appears twice")
            elif finding is not None:
                found[finding.id] = finding
        return tuple(found.values())

    def _checked(self, name: str, place: str, kind: type[Any], value: Any) -> Any:
        found, faults = checked(kind, value, {})
        for fault in faults:
            at = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f".{fault.field}" if fault.field else "")
            self.fault(name, f"{place}${at}: {replace(fault, field='')}")
        return found


# --- the page of the protocol's layout

_HEADINGS = (
    ("non_goals", ("non-goal", "non goal", "out of scope", "not part")),
    ("criteria", ("criteri", "success", "\u6210\u529f", "\u6807\u51c6")),
    ("milestones", ("milestone", "\u91cc\u7a0b\u7891")),
    ("scope", ("scope", "\u8303\u56f4")),
    ("goal", ("goal", "objective", "\u76ee\u6807")),
)


def _draft_of_page(text: str) -> MissionDraft:
    """The task in task_spec.md, from its sections; headings may have any level."""
    sections = _sections(text)
    return MissionDraft(
        goal=" ".join(sections.get("goal") or sections.get("", ())[:1]),
        scope=tuple(sections.get("scope", ())),
        non_goals=tuple(sections.get("non_goals", ())),
        milestones=tuple(sections.get("milestones", ())),
        criteria=tuple(
            Criterion(f"criterion-{number}", item, rule_of("person"))
            for number, item in enumerate(sections.get("criteria", ()), start=1)
        ),
    )


def _sections(text: str) -> dict[str, list[str]]:
    """The items or paragraphs below each known heading; the empty name has those below no heading."""
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


# --- adopting


def draft_of(origin: Origin, project_path: str) -> MissionDraft:
    """The folder's draft of the mission; our own intake, if it still exists, also has the validator."""
    if origin.layout != "own":
        return origin.draft
    slug = slugify(os.path.basename(origin.path).split("-", 2)[-1])
    try:
        return replace(read_intake(ProjectFolder(project_path).specs_path(slug)), slug="", intake_digests={})
    except AutoresearchError:
        return origin.draft


def adopt(runtime: Runtime, project_path: str, origin: Origin, draft: MissionDraft) -> Mission:
    """Make a draft mission from a folder that was read.

    Raises:
        MissionInvalid: the draft is not valid.
        StepIllegal: a mission from this folder is under way.
        StorageFailed: the disk refused; no mission remains.
    """
    store = MissionStore(runtime.home)
    _refuse_adopted(store, origin)
    record = write_intake(runtime, project_path, draft)
    task_id = _task_id(runtime, project_path, origin, record.slug)
    return store.create(
        task_id,
        runtime.now(),
        creation_of(task_id, project_path, record, draft),
        MissionAdopted(
            origin.path,
            origin.layout,
            origin.task_id or os.path.basename(origin.path),
            origin.status,
            origin.iteration,
            len(origin.findings),
            len(origin.directions),
            origin.digests,
        ),
        *map(DirectionDeclared, origin.directions),
        *map(FindingRecorded, origin.findings),
    )


def _refuse_adopted(store: MissionStore, origin: Origin) -> None:
    for task_id in store.task_ids():
        try:
            mission = store.load(task_id)
        except AutoresearchError:
            continue  # a corrupt mission hides no other
        if mission.adopted_from == origin.path and mission.phase not in FINAL_PHASES:
            raise StepIllegal(
                f"{origin.path} is already adopted, as mission {task_id}",
                next_step=f"omx-autoresearch status {task_id}",
            )


def _task_id(runtime: Runtime, project_path: str, origin: Origin, slug: str) -> str:
    """The folder's own id if it is safe and free, else a new one, so that a folder of projections stays unchanged."""
    store, project = MissionStore(runtime.home), ProjectFolder(project_path)
    wanted = os.path.basename(origin.path)
    serial = 1
    while not is_safe_task_id(wanted) or store.exists(wanted) or os.path.lexists(project.task_path(wanted)):
        wanted = make_task_id(runtime.clock.now(), slug if serial == 1 else f"{slug}-{serial}")
        serial += 1
    return wanted
