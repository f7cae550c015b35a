"""``adopt`` and ``resume`` as a person types them."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.surfaces.cli.test_json import check

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

ID = "20260629-153000-debug-lag"


def leave_task(person: Person, progress: str = '{"status": "running", "iteration": 3}') -> str:
    state = person.project / ".reasonix" / "autoresearch" / ID / "state"
    state.mkdir(parents=True)
    spec = {
        "task_id": ID,
        "goal": "Find the lag",
        "success_criteria": [{"id": "cause", "description": "Known"}],
    }
    (state / "task_spec.json").write_text(json.dumps(spec), "utf-8")
    (state / "progress.json").write_text(progress, "utf-8")
    (state / "findings.jsonl").write_text(
        '{"id": "f1", "summary": "it is slow", "accepted": true}\n', "utf-8"
    )
    return f".reasonix/autoresearch/{ID}"


@pytest.mark.requirement("RESUME-04")
def test_a_folder_is_adopted_started_and_resumed_by_its_path(person: Person) -> None:
    path = leave_task(person)
    refused = person.run("resume", path)
    assert refused.returncode == 2
    assert f"next: omx-autoresearch adopt {person.project / path}" in refused.stderr
    document = person.json(
        "adopt", path, "--validator", "./check.sh", "--criterion", "cause: Known :: file: why.md"
    )
    check("adopt", document)
    assert (document["task_id"], document["layout"], document["findings"]) == (ID, "host", 1)
    assert person.run("start", path).returncode == 5  # what the folder says is shown first
    person.ok("start", path, "--take-edits")
    person.ok("pause", path)
    assert person.json("resume", f"{path}/.")["status"] == "running"
    assert "was created" not in person.ok("findings", ID)
    again = person.run("adopt", path, "--validator", "./check.sh")
    assert again.returncode == 5
    assert f"already adopted, as mission {ID}" in again.stderr


@pytest.mark.requirement("RESUME-04")
def test_a_folder_with_faults_ends_with_3_and_names_them(person: Person) -> None:
    path = leave_task(person, '{"status": "happy"}')
    done = person.run("adopt", path, "--validator", "./check.sh")
    assert done.returncode == 3
    assert "progress.json: $.status: must be 'running', " in done.stderr
    person.run("adopt", path)
    (person.project / path / "state" / "progress.json").write_text('{"status": "running"}', "utf-8")
    done = person.run("adopt", path)
    assert done.returncode == 3
    assert f"next: omx-autoresearch adopt {path} --validator './check.sh'" in done.stderr


@pytest.mark.requirement("CLI-03")
def test_a_path_with_a_space_is_quoted_in_the_command_that_comes_next(person: Person) -> None:
    path = leave_task(person)
    (person.project / "my tasks").mkdir()
    (person.project / path).rename(person.project / "my tasks" / ID)
    refused = person.run("adopt", f"my tasks/{ID}")
    assert refused.returncode == 3
    (command,) = re.findall(r"next: omx-autoresearch (.*)", refused.stderr)
    person.ok(*shlex.split(command))


@pytest.mark.requirement("API-05")
def test_init_takes_what_is_forbidden_and_what_is_reached_on_the_way(person: Person) -> None:
    task_id = person.init("answer", "--forbid", "publish", "--forbid", "network", "--milestone", "read it")
    person.ok("start", task_id, "--no-baseline", "--take-edits")
    spec = json.loads(
        (person.project / ".omx/autoresearch" / task_id / "state/task_spec.json").read_text("utf-8")
    )
    assert spec["milestones"] == ["read it"]
    assert spec["allowed_operations"] == {"write": True, "network": False, "publish": False}
    person.ok("amend", task_id, "--allow", "network", "--reason", "it needs the index")
    spec = json.loads(
        (person.project / ".omx/autoresearch" / task_id / "state/task_spec.json").read_text("utf-8")
    )
    assert spec["allowed_operations"] == {"write": True, "network": True, "publish": False}
