"""A repository puts a module in the way of its owner's own command, by the owner's PYTHONPATH or current folder."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.surfaces.support.command_line import Person

if TYPE_CHECKING:
    from pathlib import Path

HARMLESS = "PLANTED = True\n"


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


@pytest.mark.requirement("LIFE-15")
@pytest.mark.parametrize("name", ["sitecustomize", "yaml"])
def test_an_owners_verb_is_refused_where_pythonpath_leads_to_a_module_of_the_workspace(
    person: Person, name: str
) -> None:
    task_id = person.start()
    folder = person.project / "src"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HARMLESS)
    if name == "yaml":  # one of our own imports, whole, so that all goes on as usual
        (folder / "sitecustomize.py").unlink()
        shutil.copytree(os.path.dirname(yaml.__file__), folder / "yaml")
    variables = {"PYTHONPATH": str(folder)}
    done = person.run("amend", task_id, "--timeout", "60", env=variables)
    assert done.returncode == 5
    assert f"loaded {name}" in done.stderr
    assert f"env -u PYTHONPATH omx-autoresearch amend {task_id}" in done.stderr
    assert person.records(task_id, "mission_amended") == []
    assert person.run("status", task_id, env=variables).returncode == 0


@pytest.mark.requirement("LIFE-15")
def test_a_start_is_refused_likewise(person: Person) -> None:
    task_id = person.init()
    person.write("sitecustomize.py", HARMLESS)
    done = person.run("start", task_id, env={"PYTHONPATH": str(person.project)})
    assert done.returncode == 5
    assert "PYTHONPATH" in done.stderr
    assert person.json("status", task_id)["phase"] == "draft"


@pytest.mark.requirement("LIFE-15")
def test_a_pythonpath_outside_the_workspace_hinders_nobody(person: Person) -> None:
    task_id = person.start()
    folder = person.root / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HARMLESS)
    assert person.run("pause", task_id, env={"PYTHONPATH": str(folder)}).returncode == 0
