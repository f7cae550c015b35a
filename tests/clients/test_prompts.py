"""A person's prompt commands everything on the real agent CLIs; one that the model had submitted commands nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.clients.support.owned_mission import EVIDENCE, PRODUCT, REFUSED, OwnedMission
from tests.clients.support.wire_formats import ToolCall, Turn

if TYPE_CHECKING:
    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import Stage

pytestmark = pytest.mark.client
COMMAND = "$autoresearch cancel"


@pytest.mark.requirement("SESS-17")
def test_a_prompt_that_a_person_gives_is_proven_new_and_resumed(stage: Stage) -> None:
    mission = OwnedMission(stage)
    stage.run(
        "$autoresearch", Turn("I am done."), stage.cli.does("So.", EVIDENCE, needs=REFUSED), Turn("Now.")
    )
    mission.find()
    mission.assert_let_go_with_evidence()
    stage.owner(PRODUCT, "init", "--goal", "Do it again", "--validator", "./check.sh", "--slug", "again")
    mission.task_id = stage.owner_json(PRODUCT, "start", "--no-baseline", "--json")["task_id"]
    stage.run(f"$autoresearch cancel {mission.task_id}", Turn("Cancelled."), resume=True)
    assert mission.status()["phase"] == "cancelled"
    assert mission.records("unproven_prompt") == []


@pytest.mark.requirement("SESS-18")
def test_doctor_tries_a_real_prompt_on_the_client(stage: Stage) -> None:
    OwnedMission(stage)
    said = stage.owner(PRODUCT, "doctor", stage.cli.name, "--prompt", may_fail=True).stdout
    assert "a real prompt is proven to come from the client itself" in said


@pytest.mark.requirement("SESS-19")
@pytest.mark.parametrize(
    "message",
    [
        {"message": COMMAND},
        {"items": [{"type": "text", "text": "$auto"}, {"type": "text", "text": "research cancel"}]},
    ],
    ids=["whole", "in parts"],
)
def test_a_command_that_codex_was_made_to_submit_is_no_persons(
    codex_stage: Stage, message: dict[str, object]
) -> None:
    mission = OwnedMission(codex_stage).start()

    def send(_: Request) -> Turn:
        call = ToolCall("send_input", {"target": mission.status()["session_id"], **message}, "multi_agent_v1")
        return Turn("I will be the person.", (call,))

    def claim(_: Request) -> Turn:
        assert mission.status()["status"] == "running"
        return Turn("I am done.")

    run = codex_stage.run(
        mission.prompt_line,
        send,
        claim,
        codex_stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
    )
    assert run.exit_code == 0, run
    assert [record["verb"] for record in mission.records("owner_verb_refused")] == [COMMAND]
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("SESS-19")
def test_a_wake_up_that_claude_was_made_to_set_is_no_persons(claude_stage: Stage) -> None:
    mission = OwnedMission(claude_stage).start()
    wake_up = {"delaySeconds": 60, "reason": "to leave", "prompt": COMMAND}
    run = claude_stage.run(
        mission.prompt_line,
        Turn("Later.", (ToolCall("ScheduleWakeup", wake_up),)),
        Turn("I am done."),
        claude_stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
        Turn("I was woken."),
    )
    assert run.exit_code == 0, run
    mission.assert_let_go_with_evidence()
    assert (claude_stage.place.home / ".local/state/omx-autoresearch/handed-texts").exists()
