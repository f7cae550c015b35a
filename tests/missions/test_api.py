"""The mission store for other programs, as they use it: from the package's root, over real files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omx_autoresearch
from omx_autoresearch.foundation.errors import MissionInvalid, StateUntrusted, StepIllegal, UsageError
from omx_autoresearch.missions.validation import checks
from tests.support.scratch import GOAL

if TYPE_CHECKING:
    from omx_autoresearch.missions.api import Store, Task
    from tests.support.scratch import Scratch


def store_of(world: Scratch) -> Store:
    return omx_autoresearch.Store(str(world.project), home_path=str(world.home_path), environ=world.environ)


def created(world: Scratch, **fields: Any) -> tuple[Store, Task]:
    store = store_of(world)
    options = omx_autoresearch.CreateOptions(validator_command="./check.sh", **fields)
    return store, store.create_task(GOAL, options)


@pytest.mark.requirement("API-01")
def test_the_root_offers_the_store_and_its_types_and_loads_nothing_until_then() -> None:
    program = (
        "import sys, omx_autoresearch as o; early = set(sys.modules);"
        "print(sorted(n for n in early if n.startswith('omx_autoresearch.')));"
        "print(all(hasattr(o, n) for names in o._PUBLIC.values() for n in names), 'Store' in dir(o))"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.splitlines() == ["[]", "True True"]
    with pytest.raises(AttributeError, match="no attribute 'Stor'"):
        omx_autoresearch.Stor  # noqa: B018


@pytest.mark.requirement("API-02")
def test_a_task_is_created_loaded_and_said_as_its_files_say_it(world: Scratch) -> None:
    store, task = created(
        world,
        scope=("answer.txt",),
        non_goals=("speed",),
        milestones=("read", "write"),
        forbid=("publish",),
        criteria=(omx_autoresearch.criterion_of("answer: it is written :: file: answer.txt ~ 42"),),
    )
    assert task.spec.milestones == ("read", "write")
    assert asdict(task.spec.allowed_operations) == {"write": True, "network": True, "publish": False}
    assert [item.id for item in task.spec.success_criteria] == ["answer"]
    assert (task.progress.status, task.progress.phase, task.progress.iteration) == ("running", "running", 0)
    assert store.load_task(task.spec.task_id) == task
    assert (Path(task.task_path) / "state" / "task_spec.json").is_file()


@pytest.mark.requirement("API-02")
def test_options_that_cannot_stand_and_ids_that_nobody_has_are_errors_with_a_next_step(
    world: Scratch,
) -> None:
    store = store_of(world)
    with pytest.raises(MissionInvalid, match="no mode is given"):
        store.create_task(GOAL)
    with pytest.raises(MissionInvalid, match=r"forbid.0: must be 'network', 'write' or 'publish'"):
        created(world, forbid=("sleep",))
    with pytest.raises(UsageError, match="there is no mission"):
        store.load_task("20260102-030405-none")


@pytest.mark.requirement("API-03")
def test_findings_directions_heartbeats_and_a_block_go_through_the_journal(world: Scratch) -> None:
    store, task = created(
        world, criteria=(omx_autoresearch.criterion_of("answer: it is written :: file: answer.txt ~ 42"),)
    )
    task_id = task.spec.task_id
    store.append_heartbeat(task_id, "starting_turn")
    assert store.record_direction(task_id, "guess", {"search_space": "numbers"}).current_direction == "guess"
    with pytest.raises(StepIllegal, match="colour"):
        store.record_direction(task_id, "guess again", {"colour": "blue"})
    claim = store.append_finding(task_id, omx_autoresearch.Submission("I think it is 42"))
    assert not claim.was_accepted
    world.write("answer.txt", "42\n")
    submission = omx_autoresearch.Submission("written", kind="file", criterion_id="answer")
    assert store.append_finding(task_id, submission).was_accepted
    assert store.summary(task_id).findings == ("written",)
    assert store.summary(task_id).open_criteria == ()
    assert store.load_task(task_id).progress.total_findings == 2
    world.write("answer.txt", "0\n")
    checks.check(world.runtime(), task_id, ("answer",), wait_seconds=60)
    assert store.summary(task_id).open_criteria == ("answer",), "what its evidence saw is not there any more"
    world.write("answer.txt", "42\n")
    checks.check(world.runtime(), task_id, ("answer",), wait_seconds=60)
    patch = omx_autoresearch.ProgressPatch("no numbers left", "a number")
    assert store.update_progress(task_id, patch).blocked_reason == "no numbers left"
    assert "blocked" in {item.code for item in store.readiness(task_id).missing}
    assert world.kinds(task_id).count("finding_recorded") == 2


@pytest.mark.requirement("API-03")
def test_a_broken_journal_is_a_report_with_file_line_and_cure_and_an_error_to_everything_else(
    world: Scratch,
) -> None:
    store, task = created(world)
    task_id = task.spec.task_id
    assert store.validate_task(task_id).is_valid
    path = Path(world.home.mission(task_id).journal_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{no json}\n" + b"".join(lines[2:]))
    report = store.validate_task(task_id)
    assert not report.is_valid
    (problem,) = report.problems
    assert (problem.path, problem.json_path) == (str(path), "line 2")
    assert problem.cause
    assert problem.next_command == f"omx-autoresearch repair {task_id}"
    with pytest.raises(StateUntrusted, match="line 2"):
        store.load_task(task_id)


def test_a_state_file_or_a_pinned_file_that_was_changed_is_a_problem_with_its_cure(world: Scratch) -> None:
    store, task = created(world)
    task_id = task.spec.task_id
    progress = Path(task.task_path, "state", "progress.json")
    progress.write_text("{}")
    world.write("check.sh", "#!/bin/sh\nexit 0\n")
    report = store.validate_task(task_id)
    assert not report.is_valid
    assert [(problem.path, problem.next_command) for problem in report.problems] == [
        (str(progress), f"omx-autoresearch repair {task_id}"),
        (str(world.project / "check.sh"), f"omx-autoresearch restore {task_id}"),
    ]


@pytest.mark.requirement("API-04", "RESUME-01")
def test_a_goal_that_names_a_folder_resumes_its_mission_however_it_is_written(world: Scratch) -> None:
    store, task = created(world)
    task_id = task.spec.task_id
    for text in (
        f"go on with .omx/autoresearch/{task_id}/.",
        f"'/another machine/.omx/autoresearch/{task_id}/', please",
        f"C:\\work\\.omx\\autoresearch\\{task_id}\\state\\progress.json",
        f"compare .omx/autoresearch/20200101-000000-gone/ with .omx/autoresearch/{task_id}/",
    ):
        assert store.resume_from_goal_text(text) == task
    assert store.resume_from_goal_text("make the parser pass") is None
    with pytest.raises(UsageError, match="not a mission in this state home") as error:
        store.resume_from_goal_text("see /x/.reasonix/autoresearch/20200101-000000-gone/")
    assert error.value.next_step == "omx-autoresearch adopt /x/.reasonix/autoresearch/20200101-000000-gone"


@pytest.mark.requirement("API-02")
def test_an_argument_of_another_type_is_an_error_of_the_house_that_names_it(world: Scratch) -> None:
    store, task = created(world)
    task_id = task.spec.task_id
    wrong: Any = 5
    before = world.kinds(task_id)
    calls: dict[str, Any] = {
        "goal": lambda: store.create_task(wrong),
        "options": lambda: store.create_task(GOAL, wrong),
        "options: slug": lambda: store.create_task(GOAL, omx_autoresearch.CreateOptions(slug=wrong)),
        "task_id": lambda: store.load_task(wrong),
        "text": lambda: store.resume_from_goal_text(wrong),
        "submission": lambda: store.append_finding(task_id, wrong),
        "submission: summary": lambda: store.append_finding(task_id, omx_autoresearch.Submission(wrong)),
        "submission: kind": lambda: store.append_finding(
            task_id, omx_autoresearch.Submission("x", kind=wrong)
        ),
        "summary": lambda: store.record_direction(task_id, wrong),
        "axes": lambda: store.record_direction(task_id, "x", wrong),
        "axes['search_space']": lambda: store.record_direction(task_id, "x", {"search_space": wrong}),
        "patch": lambda: store.update_progress(task_id, wrong),
        "patch: needs": lambda: store.update_progress(task_id, omx_autoresearch.ProgressPatch("x", wrong)),
        "status": lambda: store.append_heartbeat(task_id, wrong),
        "project_path": lambda: omx_autoresearch.Store(wrong),
    }
    for name, call in calls.items():
        with pytest.raises((UsageError, MissionInvalid)) as raised:
            call()
        assert raised.value.message.startswith(f"{name}:"), raised.value.message
        assert raised.value.next_step
    for ask in (store.validate_task, store.readiness, store.summary):
        with pytest.raises(UsageError, match="task_id: a string is required, received int 5"):
            ask(wrong)
    assert world.kinds(task_id) == before
