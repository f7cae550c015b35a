"""Starting and amending: what is compiled, frozen, approved and measured before the first turn."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import CommandFault, MissionInvalid, StepIllegal
from omx_autoresearch.journal.layout import is_safe_task_id
from omx_autoresearch.missions import launch, lifecycle_commands
from omx_autoresearch.missions.amending import AmendOptions, amend_mission
from omx_autoresearch.missions.launch import StartOptions
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.views import view
from omx_autoresearch.missions.workspace import snapshot_workspace
from omx_autoresearch.system.clock import SystemClock
from tests.support.needs import needs_bubblewrap
from tests.support.scratch import CHECK, SESSION, Scratch

if TYPE_CHECKING:
    from datetime import datetime

    from omx_autoresearch.missions.rules.mission import Contract, Mission

NO_BASELINE = StartOptions(has_baseline=False)


class StillClock(SystemClock):
    """A clock that stands still."""

    __slots__ = ("moment",)

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


def contract_of(world: Scratch, mission: Mission) -> Contract:
    contract = world.load(mission).contract
    assert contract is not None
    return contract


def amended(world: Scratch, mission: Mission, **changes: Any) -> launch.Started:
    return amend_mission(
        world.runtime(),
        mission.task_id,
        lambda draft: replace(draft, **changes),
        AmendOptions(reason="better", takes_edits=True),
    )


# --- drafts


@pytest.mark.requirement("STATE-10", "LIFE-01")
def test_a_draft_has_a_journal_of_its_own_and_holds_nobody(world: Scratch) -> None:
    draft = world.draft(slug="parser", scope=("src",), non_goals=("speed",))
    assert (draft.phase, draft.contract, draft.binding) == ("draft", None, None)
    assert draft.task_id.endswith("-parser")
    assert is_safe_task_id(draft.task_id)
    assert (draft.scope, draft.non_goals) == (("src",), ("speed",))
    assert world.kinds(draft) == ["mission_created"]
    assert world.stop().is_silent
    assert view(world.runtime(), draft.task_id).next_command == f"omx-autoresearch start {draft.task_id}"


@pytest.mark.requirement("STATE-10")
def test_two_missions_of_one_second_and_one_name_are_two(world: Scratch) -> None:
    draft = MissionDraft(goal="write", validator_command="./check.sh")
    still = StillClock(world.clock.now())
    runtime = replace(world.runtime(), clock=still)
    projects = [world.root / name for name in ("one", "two", "three")]
    for project in projects:
        project.mkdir()
    ids = [launch.create_mission(runtime, str(project), draft).task_id for project in projects]
    assert len(set(ids)) == 3


# --- start


@pytest.mark.requirement("DONE-04", "DONE-14", "DONE-17", "GATE-17")
def test_a_start_compiles_freezes_and_approves(world: Scratch) -> None:
    world.environ |= {"DECLARED": "1", "SECRET_TOKEN": "x", "CUDA_HOME": "/cuda", "CLAUDECODE_X": "1"}
    draft = world.draft(environment_names=("DECLARED",), limits={"idle_refusals": 5})
    started = launch.start(world.runtime(), draft.task_id, NO_BASELINE)
    contract = contract_of(world, draft)
    assert world.kinds(draft) == ["mission_created", "mission_launched", "commands_approved"]
    assert contract.validator_command == "./check.sh"
    assert contract.limits.idle_refusals == 5
    assert (contract.environment["DECLARED"], contract.environment["CUDA_HOME"]) == ("1", "/cuda")
    assert not {"SECRET_TOKEN", "CLAUDECODE_X"} & set(contract.environment)
    assert contract.pinned_count == 1
    frozen = Path(world.home.mission(draft.task_id).frozen_path)
    assert CHECK.encode() in [path.read_bytes() for path in frozen.iterdir()]
    assert runs.permission(world.runtime(), started.mission).isolation == "none"
    assert len(started.nonce) >= 12
    assert started.token == ""


@pytest.mark.requirement("DONE-17", "SESS-04")
def test_a_start_by_an_agent_approves_nothing_and_gives_no_nonce(world: Scratch) -> None:
    draft = world.draft()
    options = StartOptions(session_id=SESSION, client="claude", is_agent=True, has_baseline=False)
    started = launch.start(world.runtime(), draft.task_id, options)
    assert started.nonce == ""
    assert world.load(draft).nonce_digest == ""
    assert world.kinds(draft) == ["mission_created", "mission_launched"]
    assert not os.path.exists(world.home.approved_path)
    permit = runs.permission(world.runtime(), world.load(draft))
    assert permit.isolation == "bubblewrap" or not permit.may_run


@pytest.mark.requirement("LIFE-03")
@pytest.mark.parametrize("is_agent", [False, pytest.param(True, marks=needs_bubblewrap)])
def test_what_passes_already_is_refused_and_may_be_started_without_a_baseline(
    world: Scratch, is_agent: bool
) -> None:
    world.write("answer.txt", "42\n")
    draft = world.draft()
    with pytest.raises(StepIllegal, match="already passes") as error:
        launch.start(world.runtime(), draft.task_id, StartOptions(is_agent=is_agent))
    assert "--no-baseline" in error.value.next_step
    assert world.kinds(draft) == ["mission_created"]
    launch.start(world.runtime(), draft.task_id, NO_BASELINE)
    assert world.load(draft).phase == "running"


@pytest.mark.requirement("LIFE-03", "DONE-06")
def test_the_baseline_is_told_and_kept(world: Scratch) -> None:
    world.write(
        "check.sh",
        "#!/bin/sh\n# pytest\necho '== 2 passed, 1 failed in 0.1s =='\n"
        'echo \'{"passed": false, "score": 2.5, "summary": "one is left"}\'\nexit 1\n',
        executable=True,
    )
    draft = world.draft(validator_command="./check.sh # pytest")
    started = launch.start(world.runtime(), draft.task_id, StartOptions())
    assert started.baseline is not None
    assert (started.baseline.verdict, started.baseline.summary) == ("failed", "one is left")
    contract = contract_of(world, draft)
    assert (contract.baseline_tests, contract.baseline_score) == (3, 2.5)
    assert (started.mission.best_score, started.mission.last_score) == (2.5, 2.5)
    assert world.git("status", "--short") == "M check.sh", "a baseline leaves nothing in the workspace"
    assert not list(Path(world.home.root_path).rglob("scratch/*"))


@pytest.mark.requirement("LIFE-03")
def test_a_baseline_that_was_given_up_is_said(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\nexec sleep 300\n", executable=True)
    draft = world.draft()
    started = launch.start(world.runtime(), draft.task_id, StartOptions(baseline_seconds=0.2))
    assert started.mission.phase == "running"
    assert any("no baseline" in note for note in started.notes)


@pytest.mark.requirement("DONE-16")
def test_a_validator_without_a_file_to_freeze_needs_a_reason(world: Scratch) -> None:
    draft = world.draft(validator_command="sh -c true")
    with pytest.raises(MissionInvalid, match="an agent could change what judges it"):
        launch.start(world.runtime(), draft.task_id, NO_BASELINE)
    assert world.load(draft).phase == "draft"
    reasoned = world.mission(
        goal="again", session="", validator_command="sh -c true", unfrozen_reason="a mere file"
    )
    assert contract_of(world, reasoned).pinned_count == 0
    assert "no file is pinned: a mere file" in view(world.runtime(), reasoned.task_id).notices


@pytest.mark.requirement("LIFE-01", "LIFE-02")
def test_a_start_that_the_phase_does_not_allow_is_refused_with_the_way_back(world: Scratch) -> None:
    mission = world.mission(session="")
    before = world.kinds(mission)
    again = launch.start(world.runtime(), mission.task_id, StartOptions(session_id=SESSION))
    assert world.kinds(mission) == [*before, "session_bound"], "a running one is only bound"
    assert again.mission.binding is not None
    lifecycle_commands.pause(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal, match="a paused mission cannot be started") as error:
        launch.start(world.runtime(), mission.task_id, NO_BASELINE)
    assert error.value.next_step == f"omx-autoresearch resume {mission.task_id}"
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal, match="it cannot be reopened"):
        launch.start(world.runtime(), mission.task_id, NO_BASELINE)


@pytest.mark.requirement("LIFE-01")
def test_two_starts_at_once_launch_once(world: Scratch) -> None:
    draft = world.draft()
    go_read, go_write = os.pipe()
    children = []
    for _ in range(4):
        pid = os.fork()
        if not pid:
            status = 3
            try:
                os.read(go_read, 1)
                launch.start(world.runtime(), draft.task_id, NO_BASELINE)
                status = 0
            except StepIllegal:
                status = 5
            finally:
                os._exit(status)
        children.append(pid)
    os.write(go_write, b"gogo")
    statuses = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
    assert set(statuses) <= {0, 5}
    assert statuses[0] == 0
    assert world.kinds(draft).count("mission_launched") == 1


@pytest.mark.requirement("SESS-06")
def test_a_mission_may_be_started_for_another_worktree(world: Scratch) -> None:
    tree = world.root / "tree"
    world.git("worktree", "add", "-q", str(tree), "-b", "work")
    (tree / "check.sh").write_text("#!/bin/sh\nexit 1\n")
    draft = world.draft()
    launch.start(
        world.runtime(),
        draft.task_id,
        StartOptions(session_id=SESSION, has_baseline=False, workspace_path=str(tree)),
    )
    assert world.load(draft).workspace_path == str(tree)
    assert "(validation)" in world.stop().refusal
    (tree / "check.sh").write_text("#!/bin/sh\nexit 0\n")
    assert "(tampered)" in world.stop().refusal, "pinned as it stood in that worktree"


# --- validators that cannot be started


@pytest.mark.requirement("LIFE-03")
def test_a_validator_that_could_not_be_started_is_not_launched_and_its_cure_starts_it(world: Scratch) -> None:
    (world.project / "check.sh").chmod(0o644)
    mission = world.draft()
    with pytest.raises(CommandFault, match=r"chmod \+x ./check.sh") as refused:
        launch.start(world.runtime(), mission.task_id, launch.StartOptions())
    assert f"omx-autoresearch start {mission.task_id} --no-baseline" in refused.value.next_step
    assert world.load(mission).phase == "draft"
    (world.project / "check.sh").chmod(0o755)
    assert launch.start(world.runtime(), mission.task_id, launch.StartOptions()).mission.phase == "running"


@pytest.mark.requirement("LIFE-03")
def test_a_file_of_the_workspace_that_is_named_without_its_folder_is_pointed_out(world: Scratch) -> None:
    mission = world.draft(validator_command="check.sh --all")
    with pytest.raises(CommandFault) as refused:
        launch.start(world.runtime(), mission.task_id, launch.StartOptions())
    cure = f"omx-autoresearch amend {mission.task_id} --validator './check.sh --all'"
    assert refused.value.next_step.startswith(cure)


@pytest.mark.requirement("LIFE-03")
def test_a_program_that_the_work_is_to_bring_does_not_hinder_a_start(world: Scratch) -> None:
    mission = world.draft(validator_command="sh check.sh && ./build/program")
    started = launch.start(world.runtime(), mission.task_id, launch.StartOptions())
    assert started.mission.phase == "running"


@pytest.mark.requirement("LIFE-03", "DONE-14")
def test_a_validator_that_may_be_run_only_since_its_start_is_no_tampering_and_runs(world: Scratch) -> None:
    (world.project / "check.sh").chmod(0o644)
    world.mission()
    (world.project / "check.sh").chmod(0o755)
    assert "failed (exit-nonzero)" in world.stop().refusal
    world.write("answer.txt", "42\n")
    assert "is complete" in world.stop().person_message


@pytest.mark.requirement("DONE-14")
def test_content_that_changed_with_the_right_to_run_is_tampering(world: Scratch) -> None:
    (world.project / "check.sh").chmod(0o644)
    world.mission()
    world.write("check.sh", "#!/bin/sh\nexit 0\n", executable=True)
    assert "(tampered)" in world.stop().refusal


@pytest.mark.requirement("API-05")
def test_a_mission_that_forbids_what_nothing_here_can_enforce_is_not_launched(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "can_isolate", lambda: False)
    mission = world.draft(forbid=("network", "publish"))
    with pytest.raises(CommandFault, match="forbids network") as refused:
        launch.start(world.runtime(), mission.task_id, launch.StartOptions(has_baseline=False))
    assert f"omx-autoresearch amend {mission.task_id} --allow network" in refused.value.next_step
    only_asked = world.draft(forbid=("publish",))
    options = launch.StartOptions(has_baseline=False)
    assert launch.start(world.runtime(), only_asked.task_id, options).mission.phase == "running"


# --- amend


@pytest.mark.requirement("LIFE-05")
def test_an_edit_of_sandbox_md_is_reported_and_obeyed_only_by_amend(world: Scratch) -> None:
    world.write("easy.sh", "#!/bin/sh\nexit 0\n", executable=True)
    mission = world.mission()
    page = world.project / mission.specs_path / "sandbox.md"
    page.write_text(page.read_text().replace("./check.sh", "./easy.sh"))
    assert "`./check.sh`" in world.stop().refusal
    assert any("sandbox.md was edited" in notice for notice in view(world.runtime(), mission.task_id).notices)
    amended(world, mission)
    assert contract_of(world, mission).validator_command == "./easy.sh"
    assert not any("was edited" in notice for notice in view(world.runtime(), mission.task_id).notices)
    assert "is complete" in world.stop().person_message


@pytest.mark.requirement("LIFE-05", "DONE-07")
def test_a_verdict_under_an_older_contract_completes_nothing(world: Scratch) -> None:
    world.write("answer.txt", "42\n")
    mission = world.mission()
    runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60)
    run = world.load(mission).attestation
    assert run is not None
    assert run.verdict == "passed"
    world.write("strict.sh", "#!/bin/sh\nexit 1\n", executable=True)
    runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60)
    amended(world, mission, validator_command="./strict.sh")
    assert "`./strict.sh`" in world.stop().refusal
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("LIFE-05", "GATE-08", "DONE-14")
@pytest.mark.case("VAL-08")
def test_an_amend_takes_the_pins_anew_and_gives_fresh_patience(world: Scratch) -> None:
    mission = world.mission()
    world.write("check.sh", CHECK + "# clearer\n")
    assert "(tampered)" in world.stop().refusal
    started = amended(world, mission)
    after = world.load(mission)
    assert (after.usage.tamper_refusals, after.usage.refusals) == (0, 1)
    look = snapshot_workspace(world.home.mission(mission.task_id), after)
    assert look.changed_pins == ()
    assert runs.permission(world.runtime(), started.mission).isolation == "none"
    assert "(validation)" in world.stop().refusal


@pytest.mark.requirement("LIFE-05", "LIFE-02")
def test_an_amend_changes_no_phase_and_nothing_that_ended(world: Scratch) -> None:
    mission = world.mission()
    for _ in range(4):
        world.stop()
    assert world.load(mission).phase == "blocked"
    amended(world, mission, timeout_seconds=5.0)
    assert world.load(mission).phase == "blocked"
    assert contract_of(world, mission).timeout_seconds == 5.0
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal, match="cannot be amended"):
        amended(world, mission)
    with pytest.raises(StepIllegal, match="no longer pins anything"):
        lifecycle_commands.restore(world.runtime(), mission.task_id)
