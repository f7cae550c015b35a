"""What a host asks by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.surfaces.cli.test_json import check
from tests.surfaces.support.command_line import AGENT, SESSION

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person


def current(person: Person, *arguments: str) -> Any:
    document = person.json("current", *arguments)
    check("current", document)
    return document


@pytest.mark.requirement("HOST-01")
def test_current_is_the_mission_of_the_session_or_of_the_project_or_null(person: Person) -> None:
    assert current(person) == {"mission": None, "candidates": []}
    assert "No mission here" in person.ok("current")
    person.init("answer")
    assert current(person)["mission"] is None
    first = person.start("answer")
    assert current(person)["mission"]["task_id"] == first
    assert current(person, "--session", SESSION)["mission"] is None
    person.init("other")
    second = person.start("other")
    assert (
        current(person) == {"mission": None, "candidates": [second, first]} or current(person)["candidates"]
    )
    assert "Several missions" in person.ok("current")
    person.bind(first)
    assert current(person)["mission"]["task_id"] == first
    assert current(person, "--session", SESSION)["mission"]["task_id"] == first


@pytest.mark.requirement("HOST-01")
def test_a_broken_mission_hides_no_other_from_a_host(person: Person) -> None:
    person.init("broken")
    broken = person.start("broken")
    person.journal(broken).write_text("no record\n")
    person.init("answer")
    task_id = person.start("answer")
    assert current(person)["mission"]["task_id"] == task_id


@pytest.mark.requirement("HOST-02")
def test_open_prints_the_folder_and_reveals_it_only_on_demand_and_never_for_an_agent(person: Person) -> None:
    person.init("answer")
    task_id = person.start("answer")
    opener = person.root / "bin" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(
        f'#!/bin/sh\necho "$1" > "{person.root}/opened.tmp"\nmv "{person.root}/opened.tmp" "{person.root}/opened"\n'
    )
    opener.chmod(0o755)
    path = {"PATH": f"{opener.parent}:{person.environment()['PATH']}"}
    folder = person.project / ".omx" / "autoresearch" / task_id
    assert person.ok("open", task_id, env=path).strip() == str(folder)
    document = person.json("open", task_id, env=path)
    check("open", document)
    assert document == {"task_id": task_id, "task_path": str(folder), "is_revealed": False}
    assert (
        person.json("open", task_id, "--reveal", env={**path, **AGENT}, status=5)["error"]["slug"]
        == "owner-only"
    )
    assert not (person.root / "opened").exists()
    assert person.json("open", task_id, "--reveal", env=path)["is_revealed"]


@pytest.mark.requirement("HOST-02")
def test_a_machine_without_a_file_browser_says_where_the_folder_is(person: Person) -> None:
    person.init("answer")
    task_id = person.start("answer")
    error = person.json("open", task_id, "--reveal", env={"PATH": "/nowhere"}, status=7)["error"]
    assert error["next"].startswith("cd ")
    folder = person.project / ".omx" / "autoresearch" / task_id
    folder.rename(person.root / "away")
    assert Path(person.json("open", task_id)["task_path"]).is_dir(), "what people read is written anew"


@pytest.mark.requirement("LINE-04")
def test_the_status_line_verb_prints_the_line_of_the_session_on_its_input(person: Person) -> None:
    person.init("answer")
    task_id = person.start("answer")
    person.bind(task_id)
    assert person.run("statusline", stdin=json.dumps({"session_id": SESSION}).encode()).stdout.startswith(
        "Research 0 "
    )
    assert person.run("statusline", stdin=b"{").stdout == ""
