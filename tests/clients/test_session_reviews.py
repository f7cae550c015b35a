"""Sessions of the real agent CLIs as reviewers: their client's own tool event gives the verdict, a shell gives none."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.clients import KNOWN, SHELL_MARKS
from tests.clients.support.owned_mission import PRODUCT
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from tests.clients.support.stage import Stage
    from tests.clients.support.wire_formats import Json

pytestmark = pytest.mark.client
REPORT = b"The answer is 42, as shown in [1].\n"
DIGEST = sha256(REPORT).hexdigest()
OTHER = "CLAUDE_CODE_SESSION_ID=0a1b2c3d-0000-4000-8000-00000000000b"
UNMARKED = " ".join(f"-u {name}" for name in SHELL_MARKS)


class Reviewed:
    """A mission whose artifact another session may review."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.owner(PRODUCT, "install", stage.cli.name)
        question = (
            "--prompt",
            "Is every claim sourced?",
            "--output",
            "report.md",
            "--reviewed-by",
            "session",
        )
        unfrozen = ("--unfrozen", "--reason", "a session judges")
        stage.owner(PRODUCT, "init", "--goal", "A report", *question, *unfrozen)
        self.task_id = str(stage.owner_json(PRODUCT, "start", "--json")["task_id"])
        stage.place.workspace.joinpath("report.md").write_bytes(REPORT)

    @property
    def command(self) -> str:
        return f"{PRODUCT} review {self.task_id} --approve --digest {DIGEST} --summary 'all sourced'"

    def verdicts(self) -> list[Json]:
        """Every verdict in the journal."""
        state = self.stage.place.home / ".local/state/omx-autoresearch"
        path = state / "missions" / self.task_id / "journal.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line["data"]["attestation"] for line in lines if line["kind"] == "validation_finished"]


@pytest.mark.requirement("DONE-43")
def test_a_session_s_verdict_counts_by_its_client_s_own_event(stage: Stage) -> None:
    reviewed = Reviewed(stage)
    knows_session = bool(KNOWN[stage.cli.name].session_ids)
    told = "once the agent CLI of this session confirms" if knows_session else "does not tell its shell"
    run = stage.run(
        "Review the report.",
        stage.cli.does("I have read it.", f"{reviewed.command}{'' if knows_session else '; true'}"),
        Turn("I gave my verdict.", needs=told),
    )
    assert run.exit_code == 0, run
    verdicts = [(one["cause"], one["summary"]) for one in reviewed.verdicts()]
    assert verdicts == ([("approved-by-session", "all sourced")] if knows_session else [])


@pytest.mark.requirement("DONE-43")
@pytest.mark.parametrize("way", ["", f"env {UNMARKED} {OTHER} "])
def test_the_session_under_review_gives_no_verdict(stage: Stage, way: str) -> None:
    reviewed = Reviewed(stage)
    run = stage.run(
        f"$autoresearch {reviewed.task_id}",
        stage.cli.does("I review it myself.", f"{way}{reviewed.command}; true"),
        Turn("I approved it.", needs="cannot review itself"),
    )
    assert run.exit_code == 0, run
    assert reviewed.verdicts() == []
    assert "review" in stage.owner(PRODUCT, "status", reviewed.task_id).stdout, "its owner is shown it"
