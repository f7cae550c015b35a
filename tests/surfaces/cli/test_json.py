"""What each verb prints with ``--json`` follows the schema that is published for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from omx_autoresearch.surfaces.cli.program import all_verbs
from tests.surfaces.support.command_line import REVIEWER

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

SCHEMAS = Path(__file__).resolve().parents[3] / "specs" / "schemas"
STATUS_FIELDS = (
    *("task_id", "goal", "status", "phase", "iteration", "current_direction", "stale_count", "pivot_count"),
    *("pivot_required", "refusals", "max_refusals", "finding_count", "open_criteria", "blocker"),
    *("last_heartbeat_at", "task_path", "validation_mode", "session_id", "hold"),
)
"""What hosts read; there may be more."""


def check(name: str, document: Any) -> None:
    """Hold a document against a published schema.

    Raises:
        jsonschema.ValidationError: it does not follow.
    """
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(document)


DOCUMENTS = {verb.path: [document.name for document in verb.documents] for verb in all_verbs()}
"""The schemas of each verb, the usual one first."""


def test_every_verb_but_those_that_a_client_starts_has_a_schema() -> None:
    assert {path for path, names in DOCUMENTS.items() if not names} == {"hook", "mcp", "statusline"}
    named = {name for names in DOCUMENTS.values() for name in names}
    assert [name for name in named if not (SCHEMAS / f"{name}.json").is_file()] == []


def test_a_name_of_a_schema_means_one_document() -> None:
    declared = {document for verb in all_verbs() for document in verb.documents}
    assert len({document.name for document in declared}) == len(declared)


@pytest.mark.requirement("CLI-02")
def test_every_verb_of_a_mission_prints_what_its_schema_says(person: Person) -> None:  # noqa: PLR0915 - a line a verb
    seen: dict[str, Any] = {}

    def ask(verb: str, *arguments: str, status: int = 0) -> None:
        seen[verb] = person.json(verb, *arguments, status=status)
        check(DOCUMENTS[verb if verb in DOCUMENTS else f"{verb} {arguments[0]}"][0], seen[verb])

    ask("init", "--goal", "Write the answer", "--validator", "./check.sh")
    ask("start")
    ask("status")
    ask("list")
    ask("current")
    ask("open")
    ask("validate", status=9)
    ask("wait")
    ask("note", "half done")
    ask("direction", "add", "profile it")
    ask("finding", "add", "--summary", "it is slow")
    ask("findings")
    ask("criterion", "list")
    ask("readiness", status=9)
    ask("log")
    ask("diff")
    ask("excuse", "--reason", "no toolchain")
    ask("direct", "ask somebody")
    ask("block", "--reason", "no device", "--needs", "a device")
    ask("unblock", "--add-hours", "2", "--add-refusals", "5")
    ask("pause")
    ask("resume")
    person.write("check.sh", "#!/bin/sh\nexit 0\n")
    ask("restore")
    assert seen["restore"]["restored"] == ["check.sh"]
    ask("approve", "--unsandboxed")
    ask("amend", "--limit", "refusals_total=7")
    ask("unbind")
    ask("repair")
    ask("cancel")
    ask("remove", seen["cancel"]["task_id"], "--yes")
    ask("install", "claude")
    ask("install", "claude", "--dry-run")
    ask("doctor", "claude")
    ask("uninstall", "claude")
    ask("doctor", "claude", status=9)
    ask("demo")
    tested_elsewhere = {"adopt", "experiment", "review", "hook", "mcp", "statusline"}
    assert {path.split()[0] for path in DOCUMENTS} - set(seen) == tested_elsewhere


@pytest.mark.requirement("CLI-02")
def test_list_is_an_array_of_what_status_prints(person: Person) -> None:
    task_ids = [person.init("one"), person.start("two")]
    listed = {view["task_id"]: view for view in person.json("list")}
    for task_id in task_ids:
        status = person.json("status", task_id)
        assert [name for name in STATUS_FIELDS if name not in status] == []
        clock = {"hours_used", "checked_at"}
        assert {k: v for k, v in listed[task_id].items() if k not in clock} == {
            k: v for k, v in status.items() if k not in clock
        }


def test_a_dry_run_an_error_and_a_review_follow_their_schemas(person: Person) -> None:
    check("init", person.json("init", "--goal", "Write it", "--validator", "./check.sh", "--dry-run"))
    check("error", person.json("status", "nobody", status=2))
    person.write("review.sh", REVIEWER, mode=0o755)
    task_id = person.start(
        "report", "--prompt", "Is it true?", "--output", "r.md", "--reviewer", "./review.sh"
    )
    check("error", person.json("review", task_id, status=6))
    person.write("r.md", "It is.\n")
    document = person.json("review", task_id)
    check("run", document)
    assert document["verdict"] == "passed"
