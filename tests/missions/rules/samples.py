"""Values of the rules' own types, as short as the tests that use them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
from omx_autoresearch.missions.rules.evidence import Missing
from omx_autoresearch.missions.rules.mission import Attestation, Blocker, Contract, Mission

if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import Phase, RunVerdict

TASK = "20260102-030405-parser"
SCRIPT = Contract(
    validation_mode="mission-validator-script", validator_command="./check.sh", pin_digest="pins"
)
REVIEW = Contract(
    validation_mode="prompt-architect-artifact",
    validator_prompt="Review the report.",
    output_artifact_path="report.md",
    reviewer_command="./review.sh",
    pin_digest="pins",
)
NEEDED = Missing("validation", "a passing run", "no run yet", f"omx-autoresearch validate {TASK}")
BLOCKER = Blocker("stalled", "no progress", "a hint", f"omx-autoresearch unblock {TASK}", "gate")
LOOK = WorkspaceSnapshot(
    head="head", tree_digest="tree", pin_digest="pins", output_artifact_digest="artifact"
)


def at(second: int) -> str:
    """A time on the day of all samples."""
    return f"2026-01-02T03:{second // 60:02}:{second % 60:02}.000000Z"


def a_mission(contract: Contract | None = SCRIPT, phase: Phase = "running", **changes: Any) -> Mission:
    """A mission, running under ``contract`` unless said otherwise."""
    mission = Mission(
        task_id=TASK,
        slug="parser",
        goal="make the parser pass the corpus",
        task_type="standard",
        project_path="/project",
        workspace_path="/project",
        specs_path=".omx/specs/autoresearch-parser",
        created_at=at(0),
        phase=phase,
        contract=contract,
        contract_digest="contract" if contract else "",
        updated_at=at(0),
    )
    return replace(mission, **changes)


def a_run(verdict: RunVerdict = "failed", **changes: Any) -> Attestation:
    """An attested run on the workspace of :data:`LOOK`."""
    run = Attestation(
        run_id="r-1",
        verdict="failed",
        cause="exit-0" if verdict == "passed" else "exit-nonzero",
        summary="2 of 3 files parse",
        contract_digest="contract",
        pin_digest="pins",
        head="head",
        tree_digest="tree",
        is_fresh=True,
        started_at=at(1),
        finished_at=at(2),
        exit_status=0 if verdict == "passed" else 1,
        output_digest="output",
        output_mark="mark",
        output_artifact_digest="artifact",
    )
    return replace(run, verdict=verdict, **changes)
