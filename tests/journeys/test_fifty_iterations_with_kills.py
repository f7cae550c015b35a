"""Fifty iterations with a kill -9 in each end where fifty undisturbed ones end."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.journal.log import Journal
from omx_autoresearch.missions.directions import declare
from omx_autoresearch.missions.findings import Submission, add_finding, find_finding
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.rules.directions import direction_of
from tests.support.scratch import Scratch, finish

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from omx_autoresearch.missions.rules.mission import Mission

ITERATIONS = 50
POLL_SECONDS = 0.002


def began(world: Scratch) -> Mission:
    criteria = tuple(
        criterion_of(f"part-{number}: part {number} is there :: file: parts/{number}.txt ~ done")
        for number in range(ITERATIONS)
    )
    return world.mission(criteria=criteria)


def journal_size(world: Scratch, mission: Mission) -> int:
    return os.stat(world.home.mission(mission.task_id).journal_path).st_size


def kill_at(process: subprocess.Popen[bytes], is_due: Callable[[], bool]) -> None:
    """Kill a process as soon as something is so, or leave it when it ended before."""
    while not is_due():
        try:
            process.wait(POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.communicate()


def killed_stop(world: Scratch, mission: Mission, payload: dict[str, Any], number: int) -> None:
    """A hook process that dies: before its event, with it in hand, after its first record, or some records later."""
    before = journal_size(world, mission)
    process = world.begin_hook()
    if number % 4:
        assert process.stdin is not None
        process.stdin.write(json.dumps(payload).encode())
        process.stdin.close()
        process.stdin = None
    records = {0: 0, 1: 0, 2: 1, 3: 500 + 40 * number}[number % 4]
    kill_at(process, lambda: journal_size(world, mission) >= before + records)


def killed_writer(world: Scratch, mission: Mission, submission: Submission, number: int) -> None:
    """A process that records a finding and dies before, while or after it does."""
    before = journal_size(world, mission)
    child = os.fork()
    if child == 0:
        try:
            add_finding(world.runtime(), mission.task_id, submission, source="cli")
        finally:
            os._exit(0)
    records = (0, 1, 400)[number % 3]
    while journal_size(world, mission) < before + records and os.waitpid(child, os.WNOHANG) == (0, 0):
        continue
    try:
        os.kill(child, 9)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        return  # it had ended by itself


def played(world: Scratch, *, is_disturbed: bool) -> Mission:
    mission = began(world)
    for number in range(ITERATIONS):
        declare(world.runtime(), mission.task_id, direction_of(f"build part {number}", {}))
        world.tool()
        world.write(f"parts/{number}.txt", "done\n")
        if number == ITERATIONS - 1:
            world.write("answer.txt", "42\n")
        submission = Submission(
            f"part {number} stands", kind="file", id=f"found-{number}", criterion_id=f"part-{number}"
        )
        if is_disturbed and number % 2:
            killed_writer(world, mission, submission, number)
        add_finding(world.runtime(), mission.task_id, submission, source="cli")
        payload = world.payload("Stop", last_assistant_message=f"Part {number} is done.")
        if is_disturbed and not number % 2:
            killed_stop(world, mission, payload, number // 2)
        answer = finish(world.begin_hook(), payload)
        assert answer.exit_status == 0, answer.stderr
    return world.load(mission)


def remembered(world: Scratch, mission: Mission) -> dict[str, Any]:
    """What a kill may not change.

    A hook that died behind its record, and never answered, has refused all the same: the stop that its client comes
    with again is another one. So much more was refused, and nothing else.
    """
    kinds = ("stop_refused", "stop_allowed")
    stops = [line["data"]["stop"]["payload_digest"] for line in world.records(mission, *kinds)]
    unanswered = len(stops) - len(set(stops))
    usage = mission.usage
    return {
        "phase": mission.phase,
        "iterations": mission.iteration - unanswered,
        "evidence": mission.evidence_ids,
        "findings": (mission.finding_count, mission.accepted_count),
        "directions": [(item.fingerprint, item.count) for item in mission.directions],
        "refusals": usage.refusals - unanswered,
        "spent": (usage.idle_refusals, usage.stale, usage.weak_holds, usage.wait_refusals),
        "pivots": mission.pivot_count,
    }


@pytest.mark.slow
@pytest.mark.requirement("STATE-03")
def test_fifty_iterations_with_a_kill_in_each_end_as_undisturbed_ones(tmp_path: Path) -> None:
    calm, harried = Scratch.make(tmp_path / "calm"), Scratch.make(tmp_path / "harried")
    expected = played(calm, is_disturbed=False)
    found = played(harried, is_disturbed=True)
    assert expected.phase == "complete"
    assert remembered(harried, found) == remembered(calm, expected)
    for number in range(ITERATIONS):
        finding = find_finding(harried.runtime(), found.task_id, f"found-{number}")
        assert finding is not None
        assert finding.evidence
    assert Journal(harried.home.mission(found.task_id)).verify().ok
