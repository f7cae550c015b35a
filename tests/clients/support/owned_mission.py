"""A mission of ours on a stage, set up and looked at by its owner through the command line alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import Stage
    from tests.clients.support.wire_formats import Json

PRODUCT = "omx-autoresearch"
REFUSED = "is not complete, so this stop is refused"
"""Stands in every refusal that the agent reads, and in nothing else."""
CHECK = "grep -qx 42 answer.txt"
EVIDENCE = "echo 42 > answer.txt"
"""What makes :data:`CHECK` pass."""


class OwnedMission:
    """One mission whose validator is ``./check.sh`` in the stage's repository.

    Attributes:
        stage: where it runs.
        task_id: set once it was started.
    """

    def __init__(self, stage: Stage, check: str = CHECK) -> None:
        self.stage = stage
        self.task_id = ""
        script_path = stage.place.workspace / "check.sh"
        script_path.write_text(f"#!/bin/sh\n{check}\n")
        script_path.chmod(0o755)
        stage.commit("Add the check")
        stage.owner(PRODUCT, "install", stage.cli.name)
        stage.owner(
            PRODUCT, "init", "--goal", "Write the answer", "--validator", "./check.sh", "--slug", "answer"
        )

    def start(self) -> OwnedMission:
        """Start it, as the owner at the terminal."""
        self.task_id = str(self.stage.owner_json(PRODUCT, "start", "--json")["task_id"])
        return self

    def find(self) -> None:
        """Take the only mission there is, a draft or one that a prompt started."""
        (listed,) = json.loads(self.stage.owner(PRODUCT, "list", "--json").stdout)
        self.task_id = str(listed["task_id"])

    def start_and_take_variable(self) -> str:
        """Start it and give the value of ``OMX_AUTORESEARCH_TASK`` that ``start`` prints for a new session."""
        started = self.stage.owner_json(PRODUCT, "start", "--json")
        self.task_id = str(started["task_id"])
        return str(started["task_variable"])

    @property
    def prompt_line(self) -> str:
        """What the person types to the agent."""
        return f"$autoresearch {self.task_id}"

    def status(self) -> Json:
        """The status that the owner sees."""
        return self.stage.owner_json(PRODUCT, "status", self.task_id, "--json")

    @property
    def journal_path(self) -> Path:
        """The truth on disk."""
        state = self.stage.place.home / ".local/state/omx-autoresearch"
        return state / "missions" / self.task_id / "journal.jsonl"

    def notice(self) -> str:
        """What a person must read."""
        return self.journal_path.with_name("NOTICE").read_text()

    def records(self, kind: str) -> list[Json]:
        """The data of the journal's records of one kind, oldest first."""
        lines = [json.loads(line) for line in self.journal_path.read_text().splitlines()]
        return [line["data"] for line in lines if line["kind"] == kind]

    @property
    def artifact_path(self) -> Path:
        """The completion artifact."""
        return self.stage.place.workspace / ".omx/specs/autoresearch-answer/completion.json"

    def artifact(self) -> Json:
        """What the completion artifact says."""
        value: Json = json.loads(self.artifact_path.read_text())
        return value

    def assert_let_go_with_evidence(self) -> None:
        """It is complete, by a run of the validator that the runtime attests."""
        assert self.status()["status"] == "complete"
        assert len(self.records("mission_completed")) == 1
        artifact = self.artifact()
        assert (artifact["status"], artifact["passed"]) == ("passed", True)
        assert artifact["attestation"]["run_id"] == self.records("mission_completed")[0]["run_id"]


def claims_without_end(request: Request) -> Turn:
    """An agent that only ever says that it is done, in new words each time (Gemini stops on equal ones)."""
    return Turn(f"I am done, for the {request.turn + 1}. time.")
