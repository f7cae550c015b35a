"""The story of the typed mission: what was found, tried and worn out is remembered, and only evidence ends it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import omx_autoresearch
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.directions import declare
from omx_autoresearch.missions.findings import list_findings, list_iterations
from omx_autoresearch.missions.rules.directions import direction_of
from tests.support.scratch import OTHER, SESSION, Answer, Scratch

if TYPE_CHECKING:
    from pathlib import Path

WORKED = {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": {"stdout": "", "stderr": ""}}


@pytest.fixture
def world(tmp_path: Path) -> Scratch:
    return Scratch.make(tmp_path)


def turn(world: Scratch, session: str = SESSION, *, words: str = "Done.") -> Answer:
    """The agent uses a tool and wants to stop."""
    world.hook(world.payload("PostToolUse", session, **WORKED))
    return world.hook(world.payload("Stop", session, last_assistant_message=words))


def projected(world: Scratch, task_id: str, name: str) -> Any:
    text = (world.project / ".omx" / "autoresearch" / task_id / "state" / name).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


class Story:
    """One mission, chapter by chapter.

    Attributes:
        world: in which it happens.
        store: of another program, which began it.
        task_id: of the mission.
    """

    def __init__(self, world: Scratch) -> None:
        self.world = world
        self.store = omx_autoresearch.Store(
            str(world.project), home_path=str(world.home_path), environ=world.environ
        )
        options = omx_autoresearch.CreateOptions(
            validator_command="./check.sh",
            milestones=("reproduce", "explain", "answer"),
            criteria=(
                omx_autoresearch.criterion_of("cause: it is written down :: file: cause.md ~ because"),
            ),
        )
        self.task_id = self.store.create_task("find out why the answer is wrong", options).spec.task_id

    def begins(self) -> None:
        """Typed state, a bound session, a direction, and a claim, because no rule accepted it."""
        world, task_id = self.world, self.task_id
        assert projected(world, task_id, "task_spec.json")["milestones"] == ["reproduce", "explain", "answer"]
        said = world.hook(world.payload("UserPromptSubmit", prompt=f"$autoresearch {task_id}"))
        assert "Open criteria: cause" in said.json["hookSpecificOutput"]["additionalContext"]
        self.store.record_direction(task_id, "read the answer's history", {"source_class": "history"})
        claim = self.store.append_finding(task_id, omx_autoresearch.Submission("it was 41 once"))
        assert not claim.was_accepted
        assert "(validation)" in turn(world).reason

    def is_worn_out(self) -> None:
        """Nothing more comes of it; a pivot is demanded in words, and the same in other words is none."""
        world, task_id = self.world, self.task_id
        answers: list[Answer] = []
        while world.load(task_id).usage.stale < 2:
            answers.append(turn(world, words=f"Still reading ({len(answers)})."))
            assert len(answers) < 6
        assert "a structural pivot is required" in answers[-1].reason
        assert world.kinds(task_id).count("pivot_required") == 1
        assert self.store.load_task(task_id).progress.pivot_required
        same = direction_of("The answer's HISTORY, read!", {}, is_pivot=True)
        assert declare(world.runtime(), task_id, same).faults
        self.store.record_direction(
            task_id, "ask the validator instead", {"representation": "its output"}, is_pivot=True
        )
        assert self.store.load_task(task_id).progress.pivot_count == 1

    def is_taken_up_again(self) -> None:
        """The session is gone; another one resumes by the path of the folder, and is told where it stands."""
        world = self.world
        lifecycle_commands.pause(world.runtime(), self.task_id)
        assert world.hook(world.payload("Stop")).is_silent
        prompt = f"$autoresearch resume '/elsewhere/.omx/autoresearch/{self.task_id}/'."
        resumed = world.hook(world.payload("UserPromptSubmit", OTHER, prompt=prompt))
        context = resumed.json["hookSpecificOutput"]["additionalContext"]
        assert 'Direction: "ask the validator instead".' in context
        assert "pivots 1" in context

    def is_not_ready(self) -> None:
        """The validator passes, and a criterion is still open."""
        self.world.write("answer.txt", "42\n")
        assert "cause" in turn(self.world, OTHER).reason
        assert "readiness_blocked" in self.world.kinds(self.task_id)
        assert not self.store.readiness(self.task_id).is_ready

    def ends(self) -> str:
        """Evidence by the criterion's own rule completes the mission, once; returns its id."""
        world = self.world
        world.write("cause.md", "It was 41 because nobody counted.\n")
        submission = omx_autoresearch.Submission("the cause is known", kind="file", criterion_id="cause")
        accepted = self.store.append_finding(self.task_id, submission)
        assert accepted.was_accepted
        done = turn(world, OTHER)
        assert f"mission {self.task_id} is complete" in done.json["systemMessage"]
        assert world.hook(world.payload("Stop", OTHER)).is_silent
        return accepted.finding.id


@pytest.mark.requirement("API-02", "API-03", "DIR-01", "BRIEF-03", "RESUME-02")
def test_a_mission_remembers_from_its_creation_to_its_completion_across_sessions(world: Scratch) -> None:
    story = Story(world)
    story.begins()
    story.is_worn_out()
    story.is_taken_up_again()
    story.is_not_ready()
    evidence_id = story.ends()

    task_id, mission = story.task_id, world.load(story.task_id)
    assert (mission.phase, mission.evidence_ids) == ("complete", {"cause": (evidence_id,)})
    found = [item["summary"] for item in list_findings(world.runtime(), task_id)]
    assert found == ["the cause is known", "it was 41 once"], "evidence first"
    assert projected(world, task_id, "progress.json")["status"] == "complete"
    assert [item["accepted"] for item in projected(world, task_id, "findings.jsonl")] == [False, True]
    assert len(projected(world, task_id, "directions_tried.json")) == 2
    assert list_iterations(world.runtime(), task_id)[0]["verdict"] == "passed"
    kinds = {notice.kind for notice in mission.notices}
    assert kinds >= {
        "mission_created",
        "pivot_required",
        "mission_resumed",
        "readiness_blocked",
        "mission_completed",
    }
    assert story.store.validate_task(task_id).is_valid
    text = f"go on with .omx/autoresearch/{task_id}/"
    assert story.store.resume_from_goal_text(text) == story.store.load_task(task_id)
