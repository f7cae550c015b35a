"""Launching a mission: the contract is compiled, the evaluators are frozen, a baseline is run, the owner approves.

``start`` is the owner's; run by an agent it launches only a draft, approves nothing, and binds the session only when
the client itself confirms it. What was edited in the intake files since their owner accepted them is launched only
once the owner takes it (``missions/accepted.py``).
"""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import AutoresearchError, CommandFault
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing import light_pins, pins
from omx_autoresearch.freezing.evaluator_commands import program_of
from omx_autoresearch.freezing.work import Work, classes_of, project_files
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.journal.layout import task_id as make_task_id
from omx_autoresearch.journal.safe_files import read_bounded, replace_file
from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.accepted import (
    accepted_draft,
    edits_between,
    keep_accepted,
    refuse_edits,
    terms_digest,
)
from omx_autoresearch.missions.baseline import Baseline, mounts_by_default
from omx_autoresearch.missions.contracts import (
    captured_secrets,
    compile_contract,
    contract_digest,
    declared_names,
)
from omx_autoresearch.missions.intake import read_intake, write_intake
from omx_autoresearch.missions.launch_tree import keep_launch_tree
from omx_autoresearch.missions.lifecycle_commands import marks_of_agent
from omx_autoresearch.missions.records.lifecycle import MissionAmended, MissionCreated, MissionLaunched
from omx_autoresearch.missions.records.work import CommandsApproved
from omx_autoresearch.missions.rules.mission import next_phase
from omx_autoresearch.missions.secrets import keep_secrets, with_secrets
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.approvals import approval_key, approve
from omx_autoresearch.missions.validation.named_tests import keep_names
from omx_autoresearch.missions.validation.runs import is_narrowed
from omx_autoresearch.system.blind_spots import blind_spots
from omx_autoresearch.system.sandbox import box, can_isolate, no_box

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.freezing.manifest import FileClasses
    from omx_autoresearch.missions.accepted import Edit, Take
    from omx_autoresearch.missions.rules.intake import IntakeRecord, MissionDraft
    from omx_autoresearch.missions.rules.mission import Contract, Mission
    from omx_autoresearch.missions.rules.run_reports import RunReport

_NONCE_NAME = "start.nonce"


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
        take: decides on edits of the intake files that the owner has not accepted; refuses them by default.
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
    take: Take | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The result of ``start``.

    Attributes:
        mission: running.
        nonce: for ``OMX_AUTORESEARCH_TASK=TASK:NONCE``; empty when an agent started it.
        token: to print last, when an agent's shell knows no session id.
        baseline: the validator's verdict before any work; None without a baseline.
        notes: what the owner should know, a line each.
        classes: the project's files by what the mission does with them; None where it was not launched now.
    """

    mission: Mission
    nonce: str = ""
    token: str = ""
    baseline: RunReport | None = None
    notes: tuple[str, ...] = ()
    classes: FileClasses | None = None


def create_mission(runtime: Runtime, project_path: str, draft: MissionDraft) -> Mission:
    """Write a mission down: its specs folder, and a journal with its first record, phase ``draft``.

    Made from inside an agent, nothing of it counts as accepted by the owner.

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
    mission = store.create(task_id, runtime.now(), creation_of(task_id, project_path, record, draft))
    if not marks_of_agent(runtime):
        keep_accepted(runtime, task_id, replace(draft, slug=record.slug))
    return mission


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
        StepIllegal: the phase does not allow it, the validator passes already, or the owner did not take an edit of
            the intake files.
        CommandFault: the validator could not be started, or nothing here enforces what the mission forbids.
        MissionInvalid: the intake cannot be compiled.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if options.is_agent:
        sessions.check_free(runtime, task_id, options.session_id)
        for held in sessions.missions_around(runtime):
            sessions.check_not_held(runtime, task_id, held)
    is_running = mission.phase == "running"
    nonce = _kept_nonce(runtime, mission) if is_running and not options.is_agent else ""
    launched = Started(mission, nonce) if is_running else _launch(runtime, mission, options)
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
    files = project_files(workspace_path)
    contract, manifest = compile_contract(runtime, workspace_path=workspace_path, draft=draft, files=files)
    if not options.is_agent:
        take = options.take or refuse_edits(mission.task_id, "start")
        _take(
            runtime, mission, draft, lambda edits: take(edits, terms_digest(contract_digest(contract), draft))
        )
    _refuse_unenforceable(mission.task_id, contract)
    folder, secrets = (
        runtime.home.mission(mission.task_id),
        captured_secrets(runtime, declared_names(draft)),
    )
    pins.pin(folder.frozen_path, manifest, workspace_path)
    baseline = None
    if options.has_baseline and not contract.is_review:
        seconds = options.baseline_seconds or contract.timeout_seconds
        baseline = Baseline(
            with_secrets(replace(contract, timeout_seconds=min(seconds, contract.timeout_seconds)), secrets),
            manifest,
            workspace_path,
            folder.frozen_path,
            files=files,
            is_agent=options.is_agent,
            is_sandboxed=options.is_sandboxed,
        ).run()
        manifest = baseline.manifest
    contract = replace(
        contract, mounts_pins=baseline.mounts_pins if baseline else mounts_by_default(contract)
    )
    report = None
    if baseline is not None and baseline.tryout is not None:
        report = baseline.tryout.report
        if report.cause == "not-started":
            raise _unstartable(mission.task_id, contract, workspace_path, report.summary)
        # without a score, progress is measured by the number of tests that pass
        contract = replace(
            contract,
            baseline_tests=report.tests,
            baseline_score=report.score,
            baseline_reports=baseline.tryout.has_reported,
            baseline_skipped=report.tests_skipped,
            named_tests=len(baseline.named_tests),
            named_tests_digest=keep_names(folder, baseline.named_tests),
            pin_digest=manifest.digest,
            pinned_count=manifest.frozen_count,
            written_by_check=baseline.written,
        )
    light_pins.keep(folder.frozen_path, manifest, workspace_path)
    keep_secrets(folder, secrets)
    nonce = "" if options.is_agent else runtime.new_id()
    if nonce:
        replace_file(os.path.join(folder.root_path, _NONCE_NAME), nonce.encode())
    digest = contract_digest(contract)
    record = MissionLaunched(
        phase,
        contract,
        digest,
        sessions.nonce_digest(nonce) if nonce else "",
        options.reason,
        options.workspace_path,
        *keep_launch_tree(folder, workspace_path),
    )
    is_unsandboxed = None if options.is_agent else options.is_unsandboxed
    mission = record_contract(runtime, mission.task_id, record, is_unsandboxed=is_unsandboxed)
    if not options.is_agent:
        keep_accepted(runtime, mission.task_id, draft)
    notes = manifest.notes + blind_spots(workspace_path) + (baseline.notes if baseline else ())
    if report is not None and report.cause == "timed-out":
        notes += (f"no baseline: the validator {report.summary}; the number of tests is not compared",)
    classes = classes_of(files, Work(contract.work), manifest)
    return Started(mission, nonce=nonce, baseline=report, notes=notes, classes=classes)


def _kept_nonce(runtime: Runtime, mission: Mission) -> str:
    """The nonce that the launch made, so that another ``start`` shows it again; empty once it is used."""
    path = os.path.join(runtime.home.mission(mission.task_id).root_path, _NONCE_NAME)
    try:
        nonce = read_bounded(path, 64).decode("ascii", "replace")
    except (OSError, AutoresearchError):
        return ""
    return nonce if sessions.nonce_digest(nonce) == mission.nonce_digest else ""


def _refuse_unenforceable(task_id: str, contract: Contract) -> None:
    """Refuse a contract that forbids what no box of this machine can keep from its runs."""
    if is_narrowed(contract) and not can_isolate():
        forbidden = [name for name in contract.forbidden if name != "publish"]
        allow = " ".join(f"--allow {name}" for name in forbidden)
        raise CommandFault(
            f"the mission forbids {' and '.join(forbidden)}, and {no_box()}",
            next_step=f"{box().cure}, or: omx-autoresearch amend {task_id} {allow}",
        )


def _unstartable(task_id: str, contract: Contract, workspace_path: str, why: str) -> CommandFault:
    """The validator cannot be started, and only its owner can change that."""
    program, _ = program_of(contract.validator_command)
    cure = f"fix that, then: omx-autoresearch start {task_id}"
    if "/" not in program and os.path.isfile(os.path.join(workspace_path, program)):
        validator = contract.validator_command.replace(program, f"./{program}", 1)
        cure = f"omx-autoresearch amend {task_id} --validator {shlex.quote(validator)}"
    return CommandFault(
        f"the validator could not be started: {why}",
        next_step=f"{cure}; or leave this first run out: omx-autoresearch start {task_id} --no-baseline",
    )


def _take(
    runtime: Runtime, mission: Mission, draft: MissionDraft, take: Callable[[tuple[Edit, ...]], None]
) -> None:
    if edits := edits_between(accepted_draft(runtime, mission), draft):
        take(edits)


def record_contract(
    runtime: Runtime, task_id: str, record: MissionLaunched | MissionAmended, *, is_unsandboxed: bool | None
) -> Mission:
    """Write the new contract and the owner's approval: also of unsandboxed runs, or (None) no approval at all."""
    now = runtime.now()
    with MissionStore(runtime.home).transaction(task_id, now) as transaction:
        next_phase(transaction.mission.phase, record.step, task_id=task_id)  # it may have changed meanwhile
        if is_unsandboxed is None:
            return transaction.record(record)
        project_path = getattr(record, "project_path", "") or transaction.mission.project_path
        key = approval_key(project_path, task_id, record.contract_digest, record.contract.pin_digest)
        approve(runtime.home, key, is_unsandboxed=is_unsandboxed, ts=now)
        return transaction.record(record, CommandsApproved(key, is_unsandboxed))
