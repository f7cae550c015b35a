"""``diff``: what changed since the launch, as a person reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

CHANGES = (
    "CHANGE\tFILE\tLINES\tLOOK AT IT\n"
    "edited\tanswer.txt\t+1 -0\ttest or data, read by the check\n"
    "edited\tsrc/app.py\t+1 -1\t\n"
)


@pytest.fixture
def task(person: Person) -> str:
    """A mission under which two files changed, one of them in a commit."""
    (person.project / "src").mkdir()
    person.write("src/app.py", "x = 1\n")
    person.write("answer.txt", "")
    person.commit("Source")
    task_id = person.start()
    person.write("src/app.py", "x = 2\n")
    person.commit("Work")
    person.write("answer.txt", "\x1b[31m41\n")
    return task_id


@pytest.mark.requirement("DONE-29", "DONE-30")
def test_the_files_come_first_the_weightiest_before_the_others_and_then_their_lines(
    person: Person, task: str
) -> None:
    said = person.run("diff").stdout
    assert said.startswith(f"Mission {task}: 2 files changed since the launch, 1 flagged (commit ")
    assert CHANGES in said
    assert "--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n" in said
    assert "+41\n" in said  # foreign text moves no cursor
    assert person.run("diff", "--stat", task).stdout.endswith(CHANGES)


@pytest.mark.requirement("DONE-29")
@pytest.mark.parametrize("words", [("src",), ("TASK", "src/app.py"), ("./src/", "absent.md")])
def test_named_paths_narrow_what_is_shown(person: Person, task: str, words: tuple[str, ...]) -> None:
    said = person.run("diff", *(task if word == "TASK" else word for word in words)).stdout
    assert "+x = 2\n" in said
    assert "edited\tanswer.txt" not in said
    inside = person.run("diff", "app.py", cwd=person.project / "src").stdout
    assert "+x = 2\n" in inside
    assert "Nothing of check.sh changed.\n" in person.run("diff", "check.sh").stdout


@pytest.mark.requirement("DONE-29")
def test_the_document_has_counts_of_all_and_the_lines_of_what_was_named(person: Person, task: str) -> None:
    document = json.loads(person.run("diff", task, "src", "--json").stdout)
    assert (document["task_id"], document["file_count"], document["flagged_count"]) == (task, 2, 1)
    (change,) = document["changes"]
    assert (change["path"], change["added_lines"], change["removed_lines"]) == ("src/app.py", 1, 1)
    assert change["patch"].endswith("-x = 1\n+x = 2\n")
    listed = json.loads(person.run("diff", "--stat", "--json").stdout)
    assert [each["patch"] for each in listed["changes"]] == ["", ""]


@pytest.mark.requirement("DONE-29")
def test_status_counts_the_changes_where_it_looks_and_names_the_verb_where_it_does_not(
    person: Person, task: str
) -> None:
    shows = f"omx-autoresearch diff {task}"
    assert f"{shows} shows what changed since the launch\n" in person.run("status").stdout
    looked = person.run("status", "--look").stdout
    assert f"2 files changed since the launch, 1 flagged; {shows}\n" in looked


@pytest.mark.requirement("DONE-29")
def test_a_draft_has_nothing_to_compare_with_and_a_mission_has_it_after_its_end(person: Person) -> None:
    task_id = person.init()
    refused = person.run("diff", task_id)
    assert refused.returncode == 5
    assert f"omx-autoresearch start {task_id}" in refused.stderr
    person.run("start", task_id)
    assert person.run("diff").stdout.startswith(f"Mission {task_id}: no file changed since the launch")
    person.run("cancel", task_id)
    assert "no file changed" in person.run("diff").stdout
