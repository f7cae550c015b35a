"""Launching a mission: the contract is compiled, the evaluators are frozen, a baseline is run, the owner approves.

``start`` is the owner's; run by an agent it launches only a draft, approves nothing, and binds the session only when
the client itself confirms it. ``amend`` compiles anew for a live mission.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import MissionInvalid, StepIllegal, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, to_plain
from omx_autoresearch.freezing import pins
from omx_autoresearch.freezing.tree import tree_state
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.journal.layout import task_id as make_task_id
from omx_autoresearch.journal.safe_files import ensure_folder, require_writable
from omx_autoresearch.missions import intake, sessions
from omx_autoresearch.missions.contracts import (
    KEPT_NAMES,
    KEPT_PREFIXES,
    compile_contract,
    contract_digest,
    intake_drift,
    try_validator,
)
from omx_autoresearch.missions.intake import (
    SANDBOX_NAME,
    amended_sandbox,
    read_intake,
    write_intake,
    write_sandbox,
)
from omx_autoresearch.missions.records.lifecycle import MissionAmended, MissionCreated, MissionLaunched
from omx_autoresearch.missions.records.work import CommandsApproved
from omx_autoresearch.missions.rules.criteria import has_measured
from omx_autoresearch.missions.rules.intake import TAKEN_OVER, MissionDraft
from omx_autoresearch.missions.rules.mission import Limits, next_phase
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.runs import (
    approval_key,
    approve,
    is_approved,
    is_narrowed,
    mission_key,
)
from omx_autoresearch.missions.verification import missing_intake
from omx_autoresearch.missions.workspace import keep_launch_tree
from omx_autoresearch.system.sandbox import can_isolate

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.missions.contracts import Tryout
    from omx_autoresearch.missions.rules.evidence import RunReport
    from omx_autoresearch.missions.rules.intake import IntakeRecord
    from omx_autoresearch.missions.rules.mission import Contract, Mission


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Options of a start.

    Attributes:
        reason: for the journal.
        session_id: the session to bind at once (``--session``), or the caller's own when an agent runs ``start``.
        client: that session's agent CLI, where known.
        has_baseline: run the validator once first.
        baseline_seconds: give the baseline up after this long; 0 for the validator's own limit.
        is_agent: the caller is inside an agent.
        is_unsandboxed: the owner approves unsandboxed runs for a sandboxed client too.
        is_sandboxed: a prompt started it in a client whose tools run in a sandbox, so the baseline runs in one too.
        workspace_path: where the agent works; the project itself by default.
    """

    reason: str = ""
    session_id: str = ""
    client: str = ""
    has_baseline: bool = True
    baseline_seconds: float = 0.0
    is_agent: bool = False
    is_unsandboxed: bool = False
    is_sandboxed: bool = False
    workspace_path: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    """The result of ``start``.

    Attributes:
        mission: running.
        nonce: for ``OMX_AUTORESEARCH_TASK=TASK:NONCE``; empty when an agent started it.
        token: to print last, when an agent's shell knows no session id.
        baseline: the validator's verdict before any work; None without a baseline.
        notes: what the owner should know, a line each.
    """

    mission: Mission
    nonce: str = ""
    token: str = ""
    baseline: RunReport | None = None
    notes: tuple[str, ...] = ()


def create_mission(runtime: Runtime, project_path: str, draft: MissionDraft) -> Mission:
    """Write a mission down: its specs folder, and a journal with its first record, phase ``draft``.

    Raises:
        MissionInvalid: the draft cannot stand; every fault is named.
        WorkspaceFault: the project is no folder, or its ``.omx`` is a link or no folder.
        StorageFailed: the system refused.
    """
    record = write_intake(runtime, project_path, draft)
    store = MissionStore(runtime.home)
    moment = runtime.clock.now()
    task_id = make_task_id(moment, record.slug)
    serial = 1
    while store.exists(task_id):
        serial += 1
        task_id = make_task_id(moment, f"{record.slug}-{serial}")
    return store.create(task_id, runtime.now(), creation_of(task_id, project_path, record, draft))


def creation_of(task_id: str, project_path: str, record: IntakeRecord, draft: MissionDraft) -> MissionCreated:
    """The first record of a mission that was taken in."""
    return MissionCreated(
        task_id=task_id,
        slug=record.slug,
        goal=draft.goal,
        task_type=draft.task_type,
        project_path=project_path,
        workspace_path=project_path,
        specs_path=record.specs_path,
        scope=tuple(draft.scope),
        non_goals=tuple(draft.non_goals),
        milestones=tuple(draft.milestones),
    )


def start(runtime: Runtime, task_id: str, options: StartOptions) -> Started:
    """Launch a draft, and bind a session where one is named.

    A mission that runs already is only bound.

    Raises:
        StepIllegal: the phase does not allow it, or the validator passes already.
        MissionInvalid: the intake cannot be compiled.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if options.is_agent:
        sessions.check_free(runtime, task_id, options.session_id)
        for held in sessions.missions_around(runtime):
            sessions.check_not_held(runtime, task_id, held)
    launched = Started(mission) if mission.phase == "running" else _launch(runtime, mission, options)
    if options.is_agent:
        token = sessions.pend(
            runtime,
            task_id,
            session_id=options.session_id,
            client=options.client,
            workspace_path=launched.mission.workspace_path,
        )
        return replace(launched, token=token)
    if options.session_id:
        act = sessions.Act(options.session_id, options.client, "session-option")
        return replace(launched, mission=sessions.bind(runtime, task_id, act))
    return launched


def _launch(runtime: Runtime, mission: Mission, options: StartOptions) -> Started:
    phase = next_phase(mission.phase, "launch", task_id=mission.task_id)
    draft = read_intake(os.path.join(mission.project_path, mission.specs_path))
    workspace_path = options.workspace_path or mission.workspace_path
    contract, manifest = compile_contract(runtime, workspace_path=workspace_path, draft=draft)
    stamps = pins.pin_stamps(manifest, workspace_path)
    baseline = _baseline(mission, contract, options) if options.has_baseline else None
    _refuse_written(pins.touched(stamps, pins.pin_stamps(manifest, workspace_path)))
    if baseline is not None:
        # without a score, progress is measured by the number of tests that pass
        contract = replace(
            contract,
            baseline_tests=baseline.report.tests,
            baseline_score=baseline.report.score,
            baseline_reports=baseline.has_reported,
        )
    pins.pin(runtime.home.mission(mission.task_id).frozen_path, manifest, workspace_path)
    nonce = "" if options.is_agent else runtime.new_id()
    digest = contract_digest(contract)
    record = MissionLaunched(
        phase,
        contract,
        digest,
        sessions.nonce_digest(nonce) if nonce else "",
        options.reason,
        options.workspace_path,
        *_tree_at_launch(runtime, mission, contract, workspace_path),
    )
    is_unsandboxed = None if options.is_agent else options.is_unsandboxed
    mission = _record(runtime, mission.task_id, record, is_unsandboxed=is_unsandboxed)
    notes = manifest.notes
    report = baseline.report if baseline is not None else None
    if report is not None and report.cause == "timed-out":
        notes += (f"no baseline: the validator {report.summary}; the number of tests is not compared",)
    return Started(mission, nonce=nonce, baseline=report, notes=notes)


def _tree_at_launch(
    runtime: Runtime, mission: Mission, contract: Contract, workspace_path: str
) -> tuple[str, str]:
    """HEAD and content digest at launch; the list of the files, too, where code could change that no verdict runs."""
    state = tree_state(workspace_path)
    if contract.validation_mode == "mission-validator-script":
        return state.head, state.digest
    return state.head, keep_launch_tree(runtime.home.mission(mission.task_id), workspace_path)


def _record(
    runtime: Runtime, task_id: str, record: MissionLaunched | MissionAmended, *, is_unsandboxed: bool | None
) -> Mission:
    """Write the new contract and the owner's approval: also of unsandboxed runs, or (None) no approval at all."""
    now = runtime.now()
    with MissionStore(runtime.home).transaction(task_id, now) as transaction:
        next_phase(transaction.mission.phase, record.step, task_id=task_id)  # it may have changed meanwhile
        if is_unsandboxed is None:
            return transaction.record(record)
        key = approval_key(
            transaction.mission.project_path, task_id, record.contract_digest, record.contract.pin_digest
        )
        approve(runtime.home, key, is_unsandboxed=is_unsandboxed, ts=now)
        return transaction.record(record, CommandsApproved(key, is_unsandboxed))


def amend(
    runtime: Runtime, task_id: str, draft: MissionDraft, *, reason: str = "", workspace_path: str = ""
) -> Started:
    """Compile a changed intake for a live mission; pins are taken anew and old verdicts no longer count.

    ``draft`` is what ``read_intake`` gives, with the owner's changes; ``workspace_path`` where the workspace is now,
    when it moved.
    """
    mission = MissionStore(runtime.home).load(task_id)
    next_phase(mission.phase, "amend", task_id=task_id)
    if mission.phase == "draft":
        return Started(mission)
    path = workspace_path or mission.workspace_path
    contract, manifest = compile_contract(runtime, workspace_path=path, draft=draft)
    if mission.contract and contract.validator_command == mission.contract.validator_command:
        contract = replace(
            contract,
            baseline_tests=mission.contract.baseline_tests,
            baseline_score=mission.contract.baseline_score,
            baseline_reports=mission.contract.baseline_reports,
        )
    pins.pin(runtime.home.mission(task_id).frozen_path, manifest, path)
    record = MissionAmended(contract, contract_digest(contract), reason, path)
    approval = is_approved(runtime.home, mission_key(mission))
    is_unsandboxed = approval is not None and approval.is_unsandboxed
    mission = _record(runtime, task_id, record, is_unsandboxed=is_unsandboxed)
    return Started(mission, notes=manifest.notes)


# --- the baseline


def _refuse_written(paths: tuple[str, ...]) -> None:
    """Refuse to freeze a file that the check itself writes: every run would be taken for tampering."""
    if paths:
        raise WorkspaceFault(
            f"{paths[0]} would be frozen, but was written or moved while the check ran",
            next_step=f"if the check itself writes it, exclude it: --protect '!{paths[0].rstrip('/')}'",
        )


def _baseline(mission: Mission, contract: Contract, options: StartOptions) -> Tryout | None:
    """Run the validator once before any work; a reviewer has nothing to review yet.

    Raises:
        StepIllegal: it passes already, so it could not tell whether anything was done.
    """
    if contract.validation_mode != "mission-validator-script":
        return None
    isolation = "bubblewrap" if options.is_agent or options.is_sandboxed else "none"
    if (isolation == "bubblewrap" or is_narrowed(contract)) and not can_isolate():
        return None
    seconds = min(options.baseline_seconds or contract.timeout_seconds, contract.timeout_seconds)
    limited = replace(contract, timeout_seconds=seconds)
    path = options.workspace_path or mission.workspace_path
    tryout = try_validator(limited, path, isolation=isolation)
    if tryout.report.verdict == "passed" and not has_measured(contract.criteria):
        raise StepIllegal(
            f"the validator already passes: {tryout.report.summary}",
            next_step="make it check what is missing, or start with --no-baseline",
        )
    return tryout


# --- What the owner changes of a mission: sandbox.md and the contract stay one, whichever was changed first.
#
# The files are the base, since an edit of them counts from the next ``amend`` on; allowances that grew meanwhile
# (``unblock --add-hours``) are kept, and options win over both. sandbox.md is then written as the contract has it, so
# that the next ``amend`` begins where this one ended.


def amend_mission(
    runtime: Runtime,
    task_id: str,
    change: Callable[[MissionDraft], MissionDraft],
    *,
    reason: str = "",
    workspace_path: str = "",
) -> Started:
    """Change what a mission is held to: a live one's contract and sandbox.md, of a draft sandbox.md alone.

    Raises:
        MissionInvalid: the result cannot stand; nothing was changed.
        StepIllegal: the mission has ended.
        StorageFailed: sandbox.md cannot be written; the message says whether the contract was changed.
    """
    mission = MissionStore(runtime.home).load(task_id)
    next_phase(mission.phase, "amend", task_id=task_id)
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    try:
        ensure_folder(specs_path, mode=0o755)
        require_writable(specs_path)  # before the record: the next amend begins with what the file says
        restore_intake(runtime, mission)
    except StorageFailed as error:
        raise StorageFailed(
            f"nothing was amended: {error.message}",
            next_step="make it writable, then run the same amend again",
        ) from error
    draft, text, replaced = _changed(runtime, mission, change)
    started = amend(runtime, task_id, draft, reason=reason, workspace_path=workspace_path)
    try:
        if replaced:
            os.replace(os.path.join(specs_path, SANDBOX_NAME), os.path.join(specs_path, _REPLACED_NAME))
        write_sandbox(specs_path, text)
    except (OSError, StorageFailed) as error:
        raise StorageFailed(
            f"the contract of {task_id} is amended, but sandbox.md still has the old one: {error}",
            next_step="make it writable, then run the same amend again, so that the file agrees",
        ) from error
    return replace(started, notes=(*started.notes, replaced)) if replaced else started


def amend_draft(runtime: Runtime, task_id: str, change: Callable[[MissionDraft], MissionDraft]) -> None:
    """Change the sandbox.md of a mission that was not launched yet.

    Raises:
        MissionInvalid: the result cannot stand; nothing was changed.
        StepIllegal: the mission was launched; only its owner's ``amend`` changes it.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if mission.phase != "draft":
        raise StepIllegal(
            f"mission {task_id} has already been launched, and its contract stays as it is",
            next_step=f"the owner can change it: omx-autoresearch amend {task_id}",
        )
    restore_intake(runtime, mission)
    _, text, _ = _changed(runtime, mission, change)
    write_sandbox(os.path.join(mission.project_path, mission.specs_path), text)


_REPLACED_NAME = "sandbox.replaced.md"


def _changed(
    runtime: Runtime, mission: Mission, change: Callable[[MissionDraft], MissionDraft]
) -> tuple[MissionDraft, bytes, str]:
    """The changed draft, with the digest of the sandbox.md that it will have; that file's bytes; a note.

    Where the files cannot be read but the owner gives options, the options change the contract in force, and the note
    says so: the present sandbox.md must be kept under another name. The note is empty otherwise.
    """
    specs_path, note = os.path.join(mission.project_path, mission.specs_path), ""
    try:
        base = _draft_of_files(mission, specs_path)
        draft = change(base)
    except MissionInvalid as error:
        if mission.contract is None:
            raise
        base = _draft_of_contract(runtime, mission)
        draft = change(base)
        if draft == base:
            raise
        note = (
            f"mission.md and sandbox.md could not be read, so the options changed the contract in force "
            f"({error.message}). The old sandbox.md is kept beside the new one as {_REPLACED_NAME}"
        )
    text = amended_sandbox(specs_path, draft, is_anew=bool(note))
    digests = {**draft.intake_digests, SANDBOX_NAME: hashlib.sha256(text).hexdigest()}
    return replace(draft, intake_digests=digests), text, note


def _draft_of_files(mission: Mission, specs_path: str) -> MissionDraft:
    """The draft of the files, with the allowances that have grown since they were compiled."""
    draft, contract = read_intake(specs_path), mission.contract
    if contract is not None and SANDBOX_NAME not in intake_drift(mission):
        draft = replace(draft, limits={**draft.limits, **_own_limits(contract.limits)})
    return draft


def restore_intake(runtime: Runtime, mission: Mission) -> None:
    """Write mission.md, sandbox.md and result.json anew where they are gone; of a draft mission.md alone.

    Raises:
        StateUntrusted: the list of the pinned files cannot be read.
        StorageFailed: the system refused.
    """
    if missing_intake(mission):
        draft = _draft_of_contract(runtime, mission)
        intake.restore_intake(runtime, mission.project_path, mission.specs_path, draft)


def _own_limits(limits: Limits) -> dict[str, int | float]:
    """The allowances that differ from the defaults."""
    usual = to_plain(Limits())
    return {name: value for name, value in to_plain(limits).items() if value != usual[name]}


def _draft_of_contract(runtime: Runtime, mission: Mission) -> MissionDraft:
    """The contract as a draft: every pinned file is protected by name, every variable beyond the usual is declared.

    Of a mission that was not launched yet, what the journal knows: no way to judge it.
    """
    draft = MissionDraft(
        goal=mission.goal,
        slug=mission.slug,
        task_type=mission.task_type,
        scope=mission.scope,
        non_goals=mission.non_goals,
        milestones=mission.milestones,
    )
    contract = mission.contract
    if contract is None:
        return draft
    manifest = pins.load_manifest(runtime.home.mission(mission.task_id).frozen_path, contract.pin_digest)
    return replace(
        draft,
        **{name: getattr(contract, name) for name in TAKEN_OVER},
        protect=tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard"),
        environment_names=tuple(
            name
            for name in contract.environment
            if name not in KEPT_NAMES and not name.startswith(KEPT_PREFIXES)
        ),
        limits=_own_limits(contract.limits),
        intake_digests=dict(contract.intake_digests),
    )
