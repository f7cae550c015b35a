"""``direction add``, ``direction list`` and ``direct`` from outside, as agent, owner and from inside a sandbox."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.surfaces.cli.test_json import check
from tests.surfaces.support.command_line import AGENT

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person


def add(person: Person, *arguments: str, status: int = 0) -> str:
    """What the agent reads after ``direction add``."""
    done = person.run("direction", "add", *arguments, env=AGENT)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


@pytest.mark.requirement("DIR-02", "DIR-03")
def test_an_agent_declares_a_direction_and_reads_what_it_nearly_repeats(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    assert "Direction of" in add(person, "Profile markdown rendering", "--axis", "search-space=parser")
    assert "It nearly repeats what was tried in iteration 0: Profile markdown rendering" in add(
        person, task_id, "rendering", "markdown", "profiles"
    )
    view = person.json("status", task_id)
    assert view["current_direction"] == "rendering markdown profiles"
    assert "rendering markdown profiles" in person.ok("status", task_id)
    listed = person.json("direction", "list", task_id)
    check("direction-list", listed)
    assert [item["count"] for item in listed["tried"]] == [1, 1]
    assert "Profile markdown rendering" in person.ok("direction", "list")


@pytest.mark.requirement("DIR-04")
def test_what_may_not_be_declared_ends_with_nine_a_reason_and_a_next_command(person: Person) -> None:
    person.bind(person.start())
    add(person, "one way", "--axis", "search_space=parser")
    for arguments, why in (
        (("...",), "say in words"),
        (("x", "--axis", "speed=more"), "no axis 'speed'"),
        (("x", "--pivot"), "name the axis"),
        (("x", "--pivot", "--axis", "search_space=parser"), "changes no structural axis"),
    ):
        said = add(person, *arguments, status=9)
        assert f"not declared: {'a' if 'words' in why else ''}" in said
        assert why in said
        assert "next: omx-autoresearch direction list" in said
    document = person.json("direction", "add", "x", "--pivot", status=9, env=AGENT)
    check("direction", document)
    assert (document["is_recorded"], document["is_pivot_accepted"]) == (False, False)
    assert document["faults"]
    assert add(person, "x", "--pivot", "--axis", "objective=less").startswith("Pivot of")


@pytest.mark.parametrize(
    "arguments",
    [("x", "--axis", "objective"), ("x", "--axis", "a=1", "--axis", "a=2"), ("x", "--axis", "a=")],
)
def test_an_axis_is_a_name_and_a_value_and_stands_once(person: Person, arguments: tuple[str, ...]) -> None:
    person.bind(person.start())
    assert "an axis" in add(person, *arguments, status=2)


@pytest.mark.requirement("DIR-06", "LIFE-06")
def test_direct_is_the_owners_and_the_agent_is_told(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    refused = person.run("direct", task_id, "do as I say", env=AGENT)
    assert refused.returncode == 5
    assert "only the owner may run" in refused.stderr
    assert any("direct" in notice for notice in person.json("status", task_id)["notices"])
    document = person.json("direct", task_id, "Ask the database team", "--axis", "source_class=people")
    check("direction", document)
    started = person.hook("SessionStart", source="resume")
    context = started["hookSpecificOutput"]["additionalContext"]
    command = f"omx-autoresearch direction add {task_id} {document['fingerprint']}"
    assert context.endswith(f"Next: {command}")
    assert person.json("direction", "list")["open_directions"][0]["summary"] == "Ask the database team"
    assert "Ask the database team" in add(person, task_id, document["fingerprint"])
    assert person.json("direction", "list")["open_directions"] == []


def test_a_direction_for_a_blocked_mission_names_the_next_step(person: Person) -> None:
    task_id = person.start()
    person.ok("block", task_id, "--reason", "no device", "--needs", "one", env=AGENT)
    assert f"next: omx-autoresearch unblock {task_id}" in person.ok("direct", task_id, "borrow one")
    assert add(person, task_id, "try it", status=5)


@pytest.mark.requirement("DIR-07")
@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")
def test_inside_a_sandbox_a_direction_is_a_claim_and_the_hook_is_asked(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    folder = person.home / "missions" / task_id
    os.chmod(folder, 0o500)
    try:
        said = add(person, "from the inside")
    finally:
        os.chmod(folder, 0o700)
    assert "the hook takes it in: direction" in said
    assert "is not recorded yet: it waits in .omx/autoresearch/" in said


def test_text_of_others_moves_no_cursor(person: Person) -> None:
    task_id = person.start()
    person.ok("direction", "add", task_id, "red \x1b[31m alert")
    assert "\x1b" not in person.ok("direction", "list", task_id) + person.ok("status", task_id)


def test_a_list_of_directions_takes_in_first_what_somebody_wrote_into_the_file(person: Person) -> None:
    task_id = person.start()
    person.ok("direction", "add", task_id, "one thing")
    path = person.project / ".omx/autoresearch" / task_id / "state/directions_tried.json"
    entries = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps([*entries, {**entries[0], "summary": "written by hand"}]), encoding="utf-8")
    tried = person.json("direction", "list", task_id)["tried"]
    assert [item["summary"] for item in tried] == ["one thing", "written by hand"]
