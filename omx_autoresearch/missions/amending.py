"""What the owner changes of a mission: sandbox.md and the contract stay one, whichever was changed first.

Options change the fields that they name and nothing else. What was edited in the files since the owner last gave or
accepted them is shown, and counts once the owner takes it; until then it stays in the files. Allowances that grew
meanwhile (``unblock --add-hours``) are kept. sandbox.md is written with the change, so that the next ``amend`` begins
where this one ended.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import (
    MissionInvalid,
    StateUntrusted,
    StepIllegal,
    StorageFailed,
    WorkspaceFault,
)
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing import light_pins, pins
from omx_autoresearch.freezing.discovery import with_opened
from omx_autoresearch.freezing.work import Work, classes_of, project_files
from omx_autoresearch.journal.safe_files import ensure_folder, require_writable
from omx_autoresearch.missions.accepted import (
    ALL_FROZEN,
    accepted_draft,
    draft_of_contract,
    edits_between,
    edits_of_frozen,
    keep_accepted,
    refuse_edits,
    restore_intake,
    with_grown_limits,
)
from omx_autoresearch.missions.baseline import OF_BASELINE, mounts_by_default
from omx_autoresearch.missions.checkouts import project_root
from omx_autoresearch.missions.contracts import (
    captured_secrets,
    compile_contract,
    contract_digest,
    declared_names,
)
from omx_autoresearch.missions.intake import SANDBOX_NAME, amended_sandbox, read_intake, write_sandbox
from omx_autoresearch.missions.launch import Started, record_contract
from omx_autoresearch.missions.records.lifecycle import OF_MISSION, MissionAmended
from omx_autoresearch.missions.rules.mission import next_phase
from omx_autoresearch.missions.secrets import keep_secrets
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.approvals import is_approved, mission_key
from omx_autoresearch.missions.validation.named_tests import kept_names, refuse_unknown_names
from omx_autoresearch.missions.views import gone_project

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omx_autoresearch.journal.layout import MissionFolder, Runtime
    from omx_autoresearch.missions.accepted import Take
    from omx_autoresearch.missions.rules.intake import MissionDraft
    from omx_autoresearch.missions.rules.mission import Contract, Mission

    Change = Callable[[MissionDraft], MissionDraft]

_REPLACED_NAME = "sandbox.replaced.md"


@dataclass(frozen=True, slots=True)
class AmendOptions:
    """Options of an amendment.

    Attributes:
        reason: for the journal.
        workspace_path: where the workspace is now, when it moved.
        takes_edits: take what was edited in the files, too.
        take: decides on edits where no option changes anything; refuses them by default.
    """

    reason: str = ""
    workspace_path: str = ""
    takes_edits: bool = False
    take: Take | None = None


@dataclass(frozen=True, slots=True)
class _Changed:
    """A changed draft, with the bytes of the sandbox.md that follows from it.

    Attributes:
        draft: what is compiled.
        text: of sandbox.md.
        note: what the owner should know; empty for nothing.
        is_replaced: the present sandbox.md must be kept under another name.
        left_out: frozen files whose edits the owner did not take; they stay frozen as they were.
    """

    draft: MissionDraft
    text: bytes
    note: str = ""
    is_replaced: bool = False
    left_out: tuple[str, ...] = ()


def amend_mission(
    runtime: Runtime, task_id: str, change: Change, options: AmendOptions | None = None
) -> Started:
    """Change what a mission is held to: a live one's contract and sandbox.md, of a draft sandbox.md alone.

    Raises:
        MissionInvalid: the result cannot stand; nothing was changed.
        StepIllegal: the mission has ended, or the owner did not take the edits; nothing was changed.
        StorageFailed: sandbox.md cannot be written; the message says whether the contract was changed.
    """
    options = options or AmendOptions()
    mission = _followed(MissionStore(runtime.home).load(task_id), options.workspace_path)
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
    changed = _changed(runtime, mission, change, options)
    started = _amend(runtime, mission, changed, options)
    try:
        if changed.is_replaced:
            os.replace(os.path.join(specs_path, SANDBOX_NAME), os.path.join(specs_path, _REPLACED_NAME))
        write_sandbox(specs_path, changed.text)
    except (OSError, StorageFailed) as error:
        raise StorageFailed(
            f"the contract of {task_id} is amended, but sandbox.md still has the old one: {error}",
            next_step="make it writable, then run the same amend again, so that the file agrees",
        ) from error
    keep_accepted(runtime, task_id, changed.draft)
    return replace(started, notes=(*started.notes, changed.note)) if changed.note else started


def _followed(mission: Mission, workspace_path: str) -> Mission:
    """The mission, in its project as it stands now if that was moved.

    Raises:
        WorkspaceFault: the project is gone, and ``workspace_path`` leads to no other place that has its files.
    """
    gone = gone_project(mission)
    if not gone:
        return mission
    project_path = project_root(workspace_path) if workspace_path else ""
    if mission.phase == "draft" or not os.path.isdir(os.path.join(project_path, mission.specs_path)):
        lacks = f"; {project_path} has no {mission.specs_path}" if project_path else ""
        raise WorkspaceFault(f"{gone[0]}{lacks}", next_step=gone[1])
    return replace(mission, project_path=project_path)


def amend_draft(runtime: Runtime, task_id: str, change: Change, *, is_agent: bool) -> None:
    """Change the sandbox.md of a mission that was not launched yet; what was edited in it stays to be taken.

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
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    write_sandbox(specs_path, amended_sandbox(specs_path, change(read_intake(specs_path))))
    accepted = None if is_agent else accepted_draft(runtime, mission)
    if accepted is not None:
        keep_accepted(runtime, task_id, change(accepted))


def _amend(runtime: Runtime, mission: Mission, changed: _Changed, options: AmendOptions) -> Started:
    """Compile a changed intake for a live mission; pins are taken anew and old verdicts no longer count."""
    draft = changed.draft
    if mission.phase == "draft":
        return Started(mission)
    path = options.workspace_path or mission.workspace_path
    files = project_files(path)
    contract, manifest = compile_contract(runtime, workspace_path=path, draft=draft, files=files)
    contract = replace(contract, mounts_pins=mounts_by_default(contract))
    folder = runtime.home.mission(mission.task_id)
    if mission.contract and contract.validator_command == mission.contract.validator_command:
        opened = _opened_at_launch(folder, mission.contract)
        manifest = with_opened(manifest, path, opened, work=contract.work, files=files)
        manifest = pins.without(manifest, mission.contract.written_by_check)
        contract = replace(
            contract,
            pin_digest=manifest.digest,
            pinned_count=manifest.frozen_count,
            **{name: getattr(mission.contract, name) for name in OF_BASELINE},
        )
        contract = replace(contract, mounts_pins=contract.mounts_pins and contract.mounts)
    refuse_unknown_names(folder, contract, mission.task_id)
    if kept_names(folder, contract) is None:  # lost: from now on tests count by number
        contract = replace(contract, named_tests=0, named_tests_digest="")
    if mission.contract and changed.left_out:
        released = {glob[1:] for glob in draft.protect if glob.startswith("!")}
        old = pins.load_manifest(folder.frozen_path, mission.contract.pin_digest)
        manifest = pins.carried_over(
            manifest, old, [path for path in changed.left_out if path not in released]
        )
        contract = replace(contract, pin_digest=manifest.digest, pinned_count=manifest.frozen_count)
    pins.pin(folder.frozen_path, manifest, path)
    light_pins.keep(folder.frozen_path, manifest, path)
    keep_secrets(folder, captured_secrets(runtime, declared_names(draft)))
    stated = {name: getattr(draft, name) for name in OF_MISSION}
    digest = contract_digest(contract)
    if _asks_the_same(mission, contract, stated):
        digest = mission.contract_digest
    notes = (
        manifest.notes if digest == mission.contract_digest else (*manifest.notes, *_void(mission, contract))
    )
    record = MissionAmended(contract, digest, options.reason, path, mission.project_path, **stated)
    approval = is_approved(runtime.home, mission_key(mission))
    is_unsandboxed = approval is not None and approval.is_unsandboxed
    mission = record_contract(runtime, mission.task_id, record, is_unsandboxed=is_unsandboxed)
    classes = classes_of(files, Work(contract.work), manifest)
    return Started(mission, notes=notes, classes=classes)


def _opened_at_launch(folder: MissionFolder, contract: Contract) -> tuple[str, ...]:
    """What the baseline was seen to open; nothing where the list of the pinned files is lost."""
    try:
        return pins.load_manifest(folder.frozen_path, contract.pin_digest).opened
    except StateUntrusted:
        return ()


def _asks_the_same(mission: Mission, contract: Contract, stated: Mapping[str, object]) -> bool:
    """Whether only allowances change: then what was proven stays so."""
    old = mission.contract
    return (
        old is not None
        and replace(contract, limits=old.limits, intake_digests=old.intake_digests) == old
        and all(getattr(mission, name) == value for name, value in stated.items())
    )


def _void(mission: Mission, contract: Contract) -> list[str]:
    """Notes for the owner: what was proven under the contract before and must be proven anew."""
    before = {item.id: item.rule for item in mission.contract.criteria} if mission.contract else {}
    found = [
        f"run {run.run_id}" for run in (mission.attestation,) if run is not None and run.verdict == "passed"
    ]
    found += [
        f"the evidence for {item.id}"
        for item in contract.criteria
        if mission.evidence_ids.get(item.id) and before.get(item.id) != item.rule
    ]
    judge = "review" if contract.is_review else "validate"
    return [
        f"{what} was under the contract before this change and does not count any more; the next stop asks anew, or: "
        f"omx-autoresearch {judge} {mission.task_id}"
        for what in found
    ]


def _changed(runtime: Runtime, mission: Mission, change: Change, options: AmendOptions) -> _Changed:
    """The change on what the owner accepted, or on the files where the owner takes what was edited in them."""
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    accepted = accepted_draft(runtime, mission)
    try:
        filed = change(with_grown_limits(runtime, mission, read_intake(specs_path)))
    except MissionInvalid as error:
        return _changed_unread(runtime, mission, change, accepted, error)
    text = amended_sandbox(specs_path, filed)
    taken = _Changed(_with_digest(filed, text), text)
    draft = accepted and change(accepted)
    fields, frozen = edits_between(draft, filed), edits_of_frozen(runtime, mission)
    edits = (*fields, *frozen)
    if options.takes_edits or not edits:
        return taken
    if draft is None or draft == accepted or any(edit.name == ALL_FROZEN for edit in frozen):
        (options.take or refuse_edits(mission.task_id, "amend"))(edits, "")
        return taken
    note = (
        f"edits that you have not accepted were left out: {'; '.join(map(str, edits))}. "
        f"To take them: omx-autoresearch amend {mission.task_id} --take-edits"
    )
    if frozen:
        note += f"; to put frozen files back: omx-autoresearch restore {mission.task_id}"
    left_out = tuple(edit.name for edit in frozen)
    if not fields:
        return replace(taken, note=note, left_out=left_out)
    digests = mission.contract.intake_digests if mission.contract else {}
    return _Changed(replace(draft, intake_digests=dict(digests)), text, note, left_out=left_out)


def _changed_unread(
    runtime: Runtime,
    mission: Mission,
    change: Change,
    accepted: MissionDraft | None,
    error: MissionInvalid,
) -> _Changed:
    """The change on the contract in force, where the files cannot be read.

    Raises:
        MissionInvalid: ``error``, where nothing is in force or the owner changes nothing.
    """
    if mission.contract is None:
        raise error
    base = accepted or draft_of_contract(runtime, mission)
    draft = change(base)
    if draft == base:
        raise error
    note = (
        f"mission.md and sandbox.md could not be read, so the options changed the contract in force "
        f"({error.message}). The old sandbox.md is kept beside the new one as {_REPLACED_NAME}"
    )
    text = amended_sandbox(os.path.join(mission.project_path, mission.specs_path), draft, is_anew=True)
    base_digests = {**mission.contract.intake_digests, **draft.intake_digests}
    return _Changed(
        _with_digest(replace(draft, intake_digests=base_digests), text), text, note, is_replaced=True
    )


def _with_digest(draft: MissionDraft, text: bytes) -> MissionDraft:
    """The draft with the digest of the sandbox.md that it will have."""
    digests = {**draft.intake_digests, SANDBOX_NAME: hashlib.sha256(text).hexdigest()}
    return replace(draft, intake_digests=digests)
