"""What the owner changes of a mission: sandbox.md and the contract stay one, whichever was changed first.

The files are the base, since an edit of them counts from the next ``amend`` on; allowances that grew meanwhile
(``unblock --add-hours``) are kept, and options win over both. sandbox.md is then written as the contract has it, so
that the next ``amend`` begins where this one ended.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from omx_autoresearch.core.budget import Limits
from omx_autoresearch.core.shape import to_plain
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import StepIllegal
from omx_autoresearch.runtime.contracts import KEPT_NAMES, KEPT_PREFIXES, intake_drift
from omx_autoresearch.runtime.intake import (
    FILE_MODE,
    MISSION_NAME,
    SANDBOX_NAME,
    MissionDraft,
    amended_sandbox,
    read_intake,
)
from omx_autoresearch.runtime.launch import Started, amend
from omx_autoresearch.storage.atomic import ensure_folder, replace_file
from omx_autoresearch.storage.missions import MissionStore
from omx_autoresearch.storage.pins import load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.runtime.context import Runtime


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
    """
    mission = MissionStore(runtime.home).load(task_id)
    draft, text = _changed(runtime, mission, change)
    started = amend(runtime, task_id, draft, reason=reason, workspace_path=workspace_path)
    _write(mission, text)
    return started


def amend_draft(runtime: Runtime, task_id: str, change: Callable[[MissionDraft], MissionDraft]) -> None:
    """Change the sandbox.md of a mission that was not launched yet.

    Raises:
        MissionInvalid: the result cannot stand; nothing was changed.
        StepIllegal: the mission was launched; only its owner's ``amend`` changes it.
    """
    mission = MissionStore(runtime.home).load(task_id)
    if mission.phase != "draft":
        raise StepIllegal(
            f"mission {task_id} was launched already; its contract stands",
            next_step=f"the owner changes it: omx-autoresearch amend {task_id}",
        )
    _write(mission, _changed(runtime, mission, change)[1])


def _changed(
    runtime: Runtime, mission: Mission, change: Callable[[MissionDraft], MissionDraft]
) -> tuple[MissionDraft, bytes]:
    """The changed draft, with the digest of the sandbox.md that it will have, and that file's bytes."""
    draft = change(draft_in_force(runtime, mission))
    text = amended_sandbox(os.path.join(mission.project_path, mission.specs_path), draft)
    digests = {**draft.intake_digests, SANDBOX_NAME: hashlib.sha256(text).hexdigest()}
    return replace(draft, intake_digests=digests), text


def _write(mission: Mission, text: bytes) -> None:
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    ensure_folder(specs_path, mode=0o755)
    replace_file(os.path.join(specs_path, SANDBOX_NAME), text, mode=FILE_MODE)


def draft_in_force(runtime: Runtime, mission: Mission) -> MissionDraft:
    """The draft that an ``amend`` begins with: the files, or the contract where they are gone."""
    specs_path = os.path.join(mission.project_path, mission.specs_path)
    contract = mission.contract
    if contract is not None and not _has_files(specs_path):
        return _draft_of_contract(runtime, mission)
    draft = read_intake(specs_path)
    if contract is not None and SANDBOX_NAME not in intake_drift(mission):
        draft = replace(draft, limits={**draft.limits, **_own_limits(contract.limits)})
    return draft


def _has_files(specs_path: str) -> bool:
    return all(os.path.exists(os.path.join(specs_path, name)) for name in (MISSION_NAME, SANDBOX_NAME))


def _own_limits(limits: Limits) -> dict[str, int | float]:
    """The allowances that differ from the defaults."""
    usual = to_plain(Limits())
    return {name: value for name, value in to_plain(limits).items() if value != usual[name]}


def _draft_of_contract(runtime: Runtime, mission: Mission) -> MissionDraft:
    """The contract as a draft: every pinned file is protected by name, every variable beyond the usual is declared."""
    contract = mission.contract
    assert contract is not None
    manifest = load_manifest(runtime.home.mission(mission.task_id).frozen_path, contract.pin_digest)
    return MissionDraft(
        goal=mission.goal,
        slug=mission.slug,
        validation_mode=contract.validation_mode,
        validator_command=contract.validator_command,
        validator_prompt=contract.validator_prompt,
        output_artifact_path=contract.output_artifact_path,
        reviewer_command=contract.reviewer_command,
        reviewed_by=contract.reviewed_by,
        protect=tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard"),
        environment_names=tuple(
            name
            for name in contract.environment
            if name not in KEPT_NAMES and not name.startswith(KEPT_PREFIXES)
        ),
        scope=mission.scope,
        non_goals=mission.non_goals,
        limits=_own_limits(contract.limits),
        timeout_seconds=contract.timeout_seconds,
        isolate_home=contract.isolate_home,
        accept_unattested=contract.accept_unattested,
        unfrozen_reason=contract.unfrozen_reason,
        score_direction=contract.score_direction,
        criteria=contract.criteria,
    )
