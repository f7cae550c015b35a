"""What ``--json`` prints: one class a document; specs/schemas/ is generated from them.

``status`` prints a :class:`~omx_autoresearch.runtime.status.StatusView`, and so does every verb that takes a mission a
step further. The hook is the exception: it speaks its client's own JSON.
"""

from __future__ import annotations

from omx_autoresearch.core.budget import Limits
from omx_autoresearch.core.evidence import RunReport
from omx_autoresearch.core.values import dataclass, field
from omx_autoresearch.core.words import Operation, Verdict
from omx_autoresearch.runtime.hold_proof import Check
from omx_autoresearch.runtime.status import StatusView
from omx_autoresearch.surfaces.cli.adoption_documents import ADOPTION_SCHEMAS, ADOPTION_VERBS
from omx_autoresearch.surfaces.cli.direction_documents import DIRECTION_SCHEMAS, DIRECTION_VERBS
from omx_autoresearch.surfaces.cli.evidence_documents import EVIDENCE_SCHEMAS, EVIDENCE_VERBS
from omx_autoresearch.surfaces.cli.experiment_documents import EXPERIMENT_SCHEMAS, EXPERIMENT_VERBS


@dataclass(frozen=True, slots=True)
class DraftDocument:
    """``init``.

    Attributes:
        task_id: of the new mission; empty after a dry run.
        slug: its short name.
        mission_path: mission.md; empty after a dry run.
        sandbox_path: sandbox.md; empty after a dry run.
        dry_run: nothing was written.
        baseline: what the validator said in a dry run.
        output_tail: the end of what it printed.
        pinned: the files that a start would freeze, as far as a dry run looked.
        warnings: what the owner should mend before the start.
        next: the command that follows.
    """

    task_id: str
    slug: str
    mission_path: str
    sandbox_path: str
    dry_run: bool
    baseline: RunReport | None
    output_tail: str
    pinned: tuple[str, ...]
    warnings: tuple[str, ...]
    next: str


@dataclass(frozen=True, slots=True)
class StartDocument:
    """``start`` and ``amend``.

    Attributes:
        task_id: of the mission.
        phase: of its lifecycle.
        prompt_line: what a person types in the agent.
        task_variable: ``TASK:NONCE`` for OMX_AUTORESEARCH_TASK in the client's environment; empty where none was made.
        bind_token: an agent without a session id shows it to its client; empty otherwise.
        session_id: the bound session; empty when none is bound yet.
        hold: whether a stop is known to be held.
        validation_mode: of the contract.
        validator_command: of the contract; empty in the other mode.
        pinned_count: files that were frozen.
        baseline: what the validator said before any work; null without one.
        limits: every allowance.
        notes: what the owner should know.
        criteria: further conditions, as they are written.
        forbidden: operations that the mission does without: ``network``, ``write``, ``publish``.
    """

    task_id: str
    phase: str
    prompt_line: str
    task_variable: str
    bind_token: str
    session_id: str
    hold: str
    validation_mode: str
    validator_command: str
    pinned_count: int
    baseline: RunReport | None
    limits: Limits
    notes: tuple[str, ...]
    criteria: tuple[str, ...] = ()
    forbidden: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class RunDocument:
    """``validate``, ``review`` and ``wait``.

    Attributes:
        task_id: of the mission.
        is_running: a validation goes on; its verdict is not in this document.
        run_id: of the newest ended run; empty when there was none.
        verdict: of that run; empty when there was none.
        cause: one word for the verdict.
        summary: one line.
        is_fresh: it passed, and the workspace did not move while it ran; of other verdicts nobody asks.
        exit_status: of the command; null where it did not end by itself.
        score: the validator's score, if it printed one.
        tests: tests that a known runner ran, if it said so.
        isolation: what isolated the run.
        duration_seconds: wall time.
        leaked: command lines of processes that outlived the run and were ended.
        output_path: the whole output.
        output_tail: its end.
        next: the command that follows.
    """

    task_id: str
    is_running: bool
    run_id: str
    verdict: Verdict | None
    cause: str
    summary: str
    is_fresh: bool
    exit_status: int | None
    score: float | None
    tests: int | None
    isolation: str
    duration_seconds: float
    leaked: tuple[str, ...]
    output_path: str
    output_tail: str
    next: str


@dataclass(frozen=True, slots=True)
class CurrentDocument:
    """``current``.

    Attributes:
        mission: of the session, or of the project; null for none.
        candidates: where several are under way and none is named.
    """

    mission: StatusView | None
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FolderDocument:
    """``open``.

    Attributes:
        task_id: of the mission.
        task_path: its folder in the project, for people.
        is_revealed: the system's file browser was asked to show it.
    """

    task_id: str
    task_path: str
    is_revealed: bool


@dataclass(frozen=True, slots=True)
class RestoreDocument:
    """``restore``.

    Attributes:
        task_id: of the mission.
        restored: paths that were put back, relative to the workspace.
    """

    task_id: str
    restored: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApprovalDocument:
    """``approve``.

    Attributes:
        task_id: of the mission.
        key: what was approved: project, task, contract and pins.
        is_unsandboxed: for a sandboxed client, too.
    """

    task_id: str
    key: str
    is_unsandboxed: bool


@dataclass(frozen=True, slots=True)
class NoteDocument:
    """``note``.

    Attributes:
        task_id: of the mission.
        text: the claim as kept.
        is_recorded: it stands in the journal; otherwise it waits in the mission's inbox.
    """

    task_id: str
    text: str
    is_recorded: bool


@dataclass(frozen=True, slots=True)
class RelayDocument:
    """``block``, ``validate``, ``note`` and ``direction add`` where a sandbox lets the caller write nothing.

    Attributes:
        task_id: of the mission.
        verb: what was asked.
        relayed: always true: the client's hook, which stands outside, takes it from this very command.
    """

    task_id: str
    verb: str
    relayed: bool = True


@dataclass(frozen=True, slots=True)
class InstallDocument:
    """``install`` and ``uninstall``.

    Attributes:
        client: the agent CLI.
        settings_path: its settings file.
        changed_paths: files that were, or would be, changed; empty when everything was in place.
        diff: of all of them.
        notes: what a person has to know or do.
        dry_run: nothing was written.
    """

    client: str
    settings_path: str
    changed_paths: tuple[str, ...]
    diff: str
    notes: tuple[str, ...]
    dry_run: bool


@dataclass(frozen=True, slots=True)
class ClientDocument:
    """One agent CLI of ``doctor``.

    Attributes:
        client: its name.
        scope: whose settings were looked at.
        is_held: every check that concerns the hold is well; a stop would be held.
        checks: in the order of reading.
    """

    client: str
    scope: str
    is_held: bool
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class DemoDocument:
    """``demo``.

    Attributes:
        task_id: of the scratch mission.
        refusal: what the agent read when it first stopped.
        is_released: it was let go after the validator passed.
        run_id: the attested run that completed the mission.
        completion: the completion artifact.
    """

    task_id: str
    refusal: str
    is_released: bool
    run_id: str
    completion: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErrorText:
    """What went wrong.

    Attributes:
        slug: the heading in specs/errors.md.
        message: what happened, where.
        next: the command or act that mends it.
    """

    slug: str
    message: str
    next: str


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """Any verb that ended with an error."""

    error: ErrorText


StatusList = tuple[StatusView, ...]
"""``list``."""
DoctorList = tuple[ClientDocument, ...]
"""``doctor``."""

SCHEMAS: dict[str, object] = {
    "status": StatusView,
    "status-list": StatusList,
    "init": DraftDocument,
    "start": StartDocument,
    "run": RunDocument,
    "current": CurrentDocument,
    "open": FolderDocument,
    "restore": RestoreDocument,
    "approval": ApprovalDocument,
    "note": NoteDocument,
    **EVIDENCE_SCHEMAS,
    **DIRECTION_SCHEMAS,
    **ADOPTION_SCHEMAS,
    **EXPERIMENT_SCHEMAS,
    "relay": RelayDocument,
    "install": InstallDocument,
    "doctor": DoctorList,
    "demo": DemoDocument,
    "error": ErrorDocument,
}
"""File name in specs/schemas/ to the type of the document."""

DOCUMENT_OF_VERB: dict[str, str] = {
    "init": "init",
    "start": "start",
    "demo": "demo",
    "status": "status",
    "list": "status-list",
    "current": "current",
    "open": "open",
    "wait": "run",
    "doctor": "doctor",
    "validate": "run",
    "review": "run",
    "restore": "restore",
    **EVIDENCE_VERBS,
    "block": "status",
    "note": "note",
    **DIRECTION_VERBS,
    **ADOPTION_VERBS,
    **EXPERIMENT_VERBS,
    "approve": "approval",
    "pause": "status",
    "resume": "status",
    "unblock": "status",
    "cancel": "status",
    "amend": "start",
    "unbind": "status",
    "repair": "status",
    "install": "install",
    "uninstall": "install",
}
"""Which document each verb prints with ``--json``."""
