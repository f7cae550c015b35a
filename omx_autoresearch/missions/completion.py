"""``completion.json``: what a completed mission leaves behind for people and tools, with its attestation."""

from __future__ import annotations

import json
import os

from omx_autoresearch.foundation.errors import WorkspaceFault
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.journal.omx_folder import OmxFolder
from omx_autoresearch.missions.rules.briefing import completion_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.missions.rules.mission import Mission


def completion_document(mission: Mission, ts: str) -> dict[str, Any]:
    """The completion artifact of a mission: the agreed keys and the attestation that they rest on."""
    run, contract = mission.attestation, mission.contract
    is_attested = (
        bool(mission.completed_run_id) and run is not None and run.run_id == mission.completed_run_id
    )
    document: dict[str, Any] = {
        "task_id": mission.task_id,
        "status": "passed",
        "passed": True,
        "summary": run.summary
        if run is not None and is_attested
        else "accepted without attestation by the contract",
        "completed_at": ts,
    }
    if contract is not None and contract.validation_mode == "prompt-architect-artifact":
        document["validator_prompt"] = contract.validator_prompt
        document["architect_review"] = {"verdict": "approved"}
        document["output_artifact_path"] = contract.output_artifact_path
    if run is not None and is_attested:
        document["sandboxed"] = run.isolation != "none"
        document["attestation"] = to_plain(run)
    return document


def write_completion(mission: Mission, ts: str) -> str:
    """Write the artifact into the project; returns why it could not be written, empty when it was.

    The journal has the completion already, so a project that cannot be written loses nothing: ``repair`` writes it.
    """
    data = json.dumps(completion_document(mission, ts), ensure_ascii=False, indent=2) + "\n"
    try:
        # through real folders only: what an agent may write must not choose where we write
        with OmxFolder(mission.project_path, mission.specs_path, make=True) as folder:
            folder.replace(os.path.basename(completion_path(mission)), data.encode("utf-8", "replace"))
    except (OSError, WorkspaceFault) as error:
        said = error.message if isinstance(error, WorkspaceFault) else error.strerror
        return (
            f"The completion artifact could not be written ({said}); `omx-autoresearch repair {mission.task_id}` "
            "writes it."
        )
    return ""
