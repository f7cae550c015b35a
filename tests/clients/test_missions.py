"""Whole missions on real agent CLIs: what a person does, what the agent tries, what the runtime holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.system.sandbox import box
from tests.clients.support.agent_clis import CODEX, GEMINI
from tests.clients.support.owned_mission import EVIDENCE, PRODUCT, REFUSED, OwnedMission, claims_without_end
from tests.clients.support.terminal import ClaudeTerminal
from tests.clients.support.wire_formats import Turn

if TYPE_CHECKING:
    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import OpenStage, Stage

pytestmark = pytest.mark.client
MOST_TURNS = 12
"""More than any mission of this page may take before it lets go: idle 3, stale 4, and the turns that use tools."""


@pytest.mark.requirement("HOOK-09")
@pytest.mark.requirement("DONE-02")
def test_an_agent_is_refused_twice_and_let_go_when_the_evidence_is_there(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    run = stage.run(
        mission.prompt_line,
        Turn("I am done."),
        Turn("I really am done.", needs="refusal 1 of "),
        stage.cli.does("Then I write the answer.", EVIDENCE, needs="refusal 2 of "),
        Turn("Now it is done."),
    )
    assert (run.exit_code, len(run.turns)) == (0, 4), run
    assert run.first_turn_with(REFUSED) == 1
    assert len(mission.records("stop_refused")) == 2
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("HOOK-09")
@pytest.mark.requirement("GATE-11")
@pytest.mark.requirement("GATE-20")
def test_a_validator_that_never_passes_ends_as_blocked_for_an_agent_that_only_talks(stage: Stage) -> None:
    mission = OwnedMission(stage, check="exit 1").start()
    run = stage.run(mission.prompt_line, claims_without_end)
    assert (run.exit_code, run.hit_limit) == (0, False), run
    assert 2 <= len(run.turns) <= MOST_TURNS
    status = mission.status()
    assert status["status"] == "blocked"
    assert status["blocker"]
    assert "blocked" in mission.notice().lower()
    assert mission.records("mission_completed") == []


@pytest.mark.requirement("GATE-18")
def test_a_validator_that_never_passes_ends_as_blocked_for_an_agent_that_works_in_vain(stage: Stage) -> None:
    mission = OwnedMission(stage, check="exit 1").start()

    def work_and_claim(request: Request) -> Turn:
        claim = claims_without_end(request)
        return stage.cli.does("Looking again.", "ls") if request.turn % 2 == 0 else claim

    run = stage.run(mission.prompt_line, work_and_claim)
    assert (run.exit_code, run.hit_limit) == (0, False), run
    assert len(run.turns) <= MOST_TURNS
    assert mission.status()["status"] == "blocked"


@pytest.mark.requirement("GATE-01")
@pytest.mark.requirement("HOOK-05")
def test_another_session_in_the_same_repository_is_untouched(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    bind_and_kill(mission)
    journal = mission.journal_path.read_bytes()
    run = stage.run("Say hello.", stage.cli.does("Looking around.", "ls"), Turn("Hello."))
    assert (run.exit_code, len(run.turns)) == (0, 2), run
    assert not any(mission.task_id in turn.conversation for turn in run.turns)
    assert mission.journal_path.read_bytes() == journal
    assert mission.status()["status"] == "running"


@pytest.mark.requirement("SESS-10")
def test_a_session_that_was_killed_is_held_again_when_it_is_resumed(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    bind_and_kill(mission)
    assert mission.status()["status"] == "running"
    run = stage.run(
        "Go on.",
        Turn("I am done."),
        stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
        resume=True,
    )
    assert (run.exit_code, len(run.turns)) == (0, 3), run
    mission.assert_let_go_with_evidence()


def bind_and_kill(mission: OwnedMission) -> None:
    """Let the person bind a session, the agent work in it, and the client be killed in the middle of a turn."""
    stage = mission.stage

    def kill(_: Request) -> Turn:
        return stage.kill_once_saved(mission.task_id)

    run = stage.run(mission.prompt_line, stage.cli.does("Looking around.", "ls"), kill)
    assert run.exit_code < 0, run


@pytest.mark.requirement("SESS-02")
def test_a_person_pauses_and_resumes_from_the_prompt(stage: Stage) -> None:
    mission = OwnedMission(stage).start()
    bind_and_kill(mission)
    paused = stage.run("$autoresearch pause", Turn("I rest."), resume=True)
    assert (paused.exit_code, len(paused.turns), mission.status()["phase"]) == (0, 1, "paused"), paused
    resumed = stage.run(
        "$autoresearch resume",
        Turn("I am done."),
        stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
        resume=True,
    )
    assert (resumed.exit_code, len(resumed.turns)) == (0, 3), resumed
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("SESS-03")
def test_a_task_in_the_environment_binds_the_first_session_that_starts_with_it(stage: Stage) -> None:
    mission = OwnedMission(stage)
    task_variable = mission.start_and_take_variable()
    run = stage.run(
        "Begin.",
        Turn("I am done."),
        stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
        environment={"OMX_AUTORESEARCH_TASK": task_variable},
    )
    assert (run.exit_code, len(run.turns)) == (0, 3), run
    assert run.turns[0].find(mission.task_id)
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("SESS-04")
def test_an_agent_that_starts_the_mission_itself_is_held_by_it(stage: Stage) -> None:
    mission = OwnedMission(stage)
    run = stage.run(
        "Start the mission that I prepared.",
        stage.cli.does("I start it.", f"{PRODUCT} start"),
        Turn("I am done."),
        stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
    )
    mission.task_id = run.turns[1].find(r"\d{8}-\d{6}-answer")
    assert (run.exit_code, len(run.turns)) == (0, 4), run
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("GATE-20")
def test_the_person_at_claudes_terminal_reads_who_holds_the_session(claude_stage: Stage) -> None:
    mission = OwnedMission(claude_stage).start()
    work = claude_stage.cli.does("Then I write the answer.", EVIDENCE, needs=REFUSED)
    with ClaudeTerminal(claude_stage, Turn("I am done."), work, Turn("Now it is done.")) as terminal:
        terminal.enter(mission.prompt_line)
        screen = terminal.wait_for(f"mission {mission.task_id} is complete")
    assert "Stop says:" in screen
    assert f"mission {mission.task_id} holds this session" in " ".join(screen.split())
    assert terminal.script.misfits == []
    mission.assert_let_go_with_evidence()


@pytest.mark.requirement("GATE-20")
def test_geminis_terminal_shows_who_holds_the_session(open_stage: OpenStage) -> None:
    stage = open_stage(GEMINI)
    mission = OwnedMission(stage).start()
    run = stage.run(
        mission.prompt_line, Turn("I am done."), stage.cli.does("The answer.", EVIDENCE), Turn("Done.")
    )
    assert f"mission {mission.task_id} holds this session" in run.stderr


@pytest.mark.requirement("DONE-17")
@pytest.mark.parametrize(
    ("mode", "isolation"), [("workspace-write", box().backend), ("danger-full-access", "none")]
)
def test_a_validator_gets_no_wider_rights_than_codex_gives_its_tools(
    codex_stage: Stage, mode: str, isolation: str
) -> None:
    CODEX.set_sandbox(codex_stage.place, mode)
    mission = OwnedMission(codex_stage).start()
    run = codex_stage.run(
        mission.prompt_line,
        Turn("I am done."),
        codex_stage.cli.does("The answer, then.", EVIDENCE, needs=REFUSED),
        Turn("Now it is done."),
    )
    assert (run.exit_code, len(run.turns)) == (0, 3), run
    mission.assert_let_go_with_evidence()
    verdicts = [record["attestation"] for record in mission.records("validation_finished")]
    assert {verdict["isolation"] for verdict in verdicts} == {isolation}
    assert [verdict["verdict"] for verdict in verdicts][-1] == "passed"


@pytest.mark.requirement("SESS-16")
@pytest.mark.requirement("LIFE-07")
def test_an_agent_in_codexs_sandbox_can_say_what_it_needs(codex_stage: Stage) -> None:
    CODEX.set_sandbox(codex_stage.place, "workspace-write")
    mission = OwnedMission(codex_stage).start()
    block = f'{PRODUCT} block {mission.task_id} --reason "no corpus" --needs "the corpus in corpus/"'
    run = codex_stage.run(
        mission.prompt_line,
        codex_stage.cli.does("May I write the truth?", f"echo forged >> {mission.journal_path}"),
        Turn("I am done.", needs="Read-only file system"),
        codex_stage.cli.does("A person must act.", block, needs=REFUSED),
        Turn("I stop here."),
    )
    assert (run.exit_code, len(run.turns)) == (0, 4), run
    status = mission.status()
    assert status["status"] == "blocked"
    assert "the corpus in corpus/" in str(status["blocker"])
