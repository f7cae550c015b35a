"""The files of a real mission, held to the schemas that are published of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from omx_autoresearch.missions import claims, directions, findings, lifecycle_commands, task_files
from omx_autoresearch.missions.rules.criteria import criterion_of
from omx_autoresearch.missions.rules.directions import direction_of
from omx_autoresearch.missions.validation import checks
from tests.support.scratch import SESSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.missions.rules.mission import Mission
    from tests.support.scratch import Scratch

SCHEMAS = Path(__file__).resolve().parents[2] / "specs" / "schemas"
SCHEMA_OF = {
    "task_spec.json": "file-task-spec",
    "progress.json": "file-progress",
    "directions_tried.json": "file-directions-tried",
    "findings.jsonl": "line-findings",
    "iteration_log.jsonl": "line-iteration-log",
    "heartbeat.jsonl": "line-heartbeat",
    "work.jsonl": "line-logs",
    "orchestrator.jsonl": "line-logs",
    "autoresearch-state.json": "file-mode-state",
}


def validator_of(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{SCHEMA_OF[name]}.json").read_text(encoding="utf-8")))


def values_in(path: Path) -> Iterator[Any]:
    text = path.read_text(encoding="utf-8")
    for part in text.splitlines() if path.suffix == ".jsonl" else [text]:
        yield json.loads(part)


def files_of(world: Scratch) -> list[Path]:
    folders = [world.project / ".omx" / name for name in ("autoresearch", "state")]
    return [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]


def lived_through(world: Scratch) -> Mission:
    """A mission in which everything that writes to its files happened at least once."""
    mission = world.mission(
        criteria=(criterion_of("report: written :: file: report.md"),), forbid=("publish",), scope=("src",)
    )
    runtime, task_id = world.runtime(), mission.task_id
    directions.declare(
        runtime, task_id, direction_of("profile it", {"search_space": "tokenizer"}, is_pivot=False)
    )
    findings.add_finding(runtime, task_id, findings.Submission("slow 日本語", kind="benchmark"), source="mcp")
    world.tool()
    world.stop()
    world.write("report.md", "found\n")
    assert checks.check(runtime, task_id, ("report",), wait_seconds=60)
    claims.note(runtime, task_id, "a note", origin="cli")
    world.stop()
    tried = next(path for path in files_of(world) if path.name == "directions_tried.json")
    tried.write_text("[]\n")  # somebody edits a projection
    for _ in range(3):
        world.tool()
        world.stop()
    lifecycle_commands.block(runtime, task_id, reason="no device", needs="a device", by="agent")
    world.follow()
    return world.load(mission)


@pytest.mark.requirement("STATE-20")
def test_every_file_of_a_mission_that_lived_through_much_follows_its_published_schema(world: Scratch) -> None:
    lived_through(world)
    seen: dict[str, int] = {}
    for path in files_of(world):
        if path.name == "NOTICE":
            continue
        validator = validator_of(path.name)
        for value in values_in(path):
            faults = [f"{path.name}: {fault.message}" for fault in validator.iter_errors(value)]
            assert faults == []
            seen[path.name] = seen.get(path.name, 0) + (len(value) or 1)
    assert sorted(seen) == sorted(SCHEMA_OF)
    findings_path = next(path for path in files_of(world) if path.name == "findings.jsonl")
    accepted = {(line["accepted"], line["kind"]) for line in values_in(findings_path)}
    assert {(True, "file"), (False, "benchmark"), (False, "manual")} <= accepted


@pytest.mark.requirement("STATE-20")
def test_a_reviewed_mission_and_one_that_is_let_go_follow_them_too(world: Scratch) -> None:
    mission = world.mission(
        validation_mode="prompt-architect-artifact",
        validator_command="",
        validator_prompt="Is it good?",
        output_artifact_path="report.md",
        reviewed_by=("person",),
    )
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    world.follow()
    (path,) = [path for path in files_of(world) if path.name == "autoresearch-state.json"]
    (state,) = values_in(path)
    assert (state["session_id"], state["active"]) == (SESSION, False)
    assert list(validator_of(path.name).iter_errors(state)) == []


def test_a_schema_refuses_what_no_mission_writes(world: Scratch) -> None:
    lived_through(world)
    paths = {path.name: path for path in files_of(world)}
    for name in sorted(SCHEMA_OF):
        value = next(values_in(paths[name]))
        lines = value if isinstance(value, list) else [value]
        validator = validator_of(name)
        changes: tuple[dict[str, Any], ...] = ({"unknown": 1}, {next(iter(lines[0])): []})
        for change in changes:
            changed = {**lines[0], **change}
            assert list(validator.iter_errors([changed] if isinstance(value, list) else changed)) != [], name


def test_every_published_schema_of_a_file_is_held_to_one() -> None:
    assert sorted(task_files.FILES) == sorted(set(SCHEMA_OF.values()))
