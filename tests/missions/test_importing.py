"""Bulk import: a whole file or nothing of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.missions import findings, lifecycle_commands
from omx_autoresearch.missions.findings import (
    Imported,
    Submission,
    add_finding,
    find_finding,
    import_findings,
    list_findings,
)

if TYPE_CHECKING:
    from tests.support.scratch import Scratch

OLD = {
    "id": "f1",
    "kind": "test",
    "summary": "結果 🧪",
    "source": "command",
    "command": "pnpm test",
    "paths": ["a.tsx"],
    "accepted": True,
    "created_at": "2026-06-29T15:30:00Z",
}


def lines(*values: Any) -> str:
    return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in values)


@pytest.mark.requirement("EVID-12")
def test_every_line_of_a_file_becomes_a_claim_and_again_adds_nothing(world: Scratch) -> None:
    mission = world.mission()
    path = world.write(
        "f.jsonl", "\ufeff" + lines(OLD, {"summary": "no id"}) + "\n" + lines({"summary": "last"})
    )
    assert import_findings(world.runtime(), mission.task_id, str(path)) == Imported(3, 0)
    assert import_findings(world.runtime(), mission.task_id, str(path)) == Imported(0, 3)
    found = find_finding(world.runtime(), mission.task_id, "f1")
    assert found is not None
    assert (found.evidence, found.source, found.summary, found.paths) == (
        None,
        "import",
        "結果 🧪",
        ("a.tsx",),
    )
    state = world.load(mission)
    assert (state.finding_count, state.accepted_count, state.turn_evidence) == (3, 0, 0)


@pytest.mark.requirement("EVID-12")
def test_one_write_takes_a_whole_batch(world: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "BATCH_FINDINGS", 40)
    mission = world.mission()
    path = world.write("f.jsonl", lines(*({"summary": f"n{number}"} for number in range(100))))
    import_findings(world.runtime(), mission.task_id, str(path))
    times = [record["ts"] for record in world.records(mission, "finding_recorded")]
    assert len(times) == 100
    assert len(set(times)) == 3, "one time a batch, since it is one append"


@pytest.mark.requirement("EVID-11", "EVID-12")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"summary": NaN}', "line 2: NaN is not a JSON number"),
        ('{"summary": "x", "iteration": 1e999}', "line 2"),
        ('{"summary": "a", "summary": "b"}', "line 2: the key 'summary' is given twice"),
        ('{"summary": ""}', "line 2: summary is empty"),
        ('{"summary": "x", "sumary": "y"}', "line 2: sumary: unknown field"),
        ('{"summary": "x", "kind": "proof"}', "line 2: kind: must be"),
        ('{"summary": 5}', "line 2: summary: must be text"),
        ('{"summary": "x", "accepted": 1}', "line 2: accepted: must be true or false"),
        ('{"summary": "a\\u0000b"}', "line 2: summary holds a NUL"),
        ('{"summary": "\\ud800"}', "line 2"),
        ('{"summary": "x", "id": "../../x"}', "line 2: id is"),
        ('{"summary": "x", "criterion_id": "nope"}', "line 2: criterion_id: 'nope' is not a criterion"),
        ('{"summary": "x", "id": "f1"}', "line 2: id: 'f1' appears twice"),
        ("[]", "line 2: must be a mapping"),
        ("{", "line 2: it is not JSON"),
        (f'{{"summary": "{"x" * 300_000}"}}', "line 2: summary has 300000 bytes"),
    ],
)
def test_one_faulty_line_refuses_the_whole_file_and_is_named(world: Scratch, line: str, said: str) -> None:
    mission = world.mission()
    path = world.write("f.jsonl", lines(OLD) + line + "\n" + lines({"summary": "after"}))
    with pytest.raises(UsageError) as refused:
        import_findings(world.runtime(), mission.task_id, str(path))
    assert said in refused.value.message
    assert "nothing was imported" in refused.value.message
    assert world.load(mission).finding_count == 0


def test_broken_utf_8_is_refused_by_its_line(world: Scratch) -> None:
    mission = world.mission()
    path = world.write("f.jsonl", lines(OLD).encode() + b'{"summary": "\xff"}\n')
    with pytest.raises(UsageError, match="line 2: byte 13 is not UTF-8"):
        import_findings(world.runtime(), mission.task_id, str(path))


@pytest.mark.requirement("EVID-10", "EVID-12")
def test_an_id_that_another_finding_has_refuses_the_file_before_anything_is_recorded(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "BATCH_FINDINGS", 1)
    mission = world.mission()
    add_finding(world.runtime(), mission.task_id, Submission("mine", id="f1"), source="cli")
    path = world.write("f.jsonl", lines({"summary": "first"}, OLD))
    with pytest.raises(UsageError, match="'f1' belongs to another finding of this mission"):
        import_findings(world.runtime(), mission.task_id, str(path))
    assert world.load(mission).finding_count == 1


@pytest.mark.requirement("EVID-12")
def test_an_import_that_was_killed_between_two_batches_goes_on_where_it_stopped(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "BATCH_FINDINGS", 2)
    mission = world.mission()
    path = world.write("f.jsonl", lines(*({"summary": f"n{number}"} for number in range(5))))
    real, calls = findings._record_import, []

    def killed(*arguments: Any) -> int:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(findings, "_record_import", killed)
    with pytest.raises(KeyboardInterrupt):
        import_findings(world.runtime(), mission.task_id, str(path))
    assert world.load(mission).finding_count == 2
    monkeypatch.setattr(findings, "_record_import", real)
    assert import_findings(world.runtime(), mission.task_id, str(path)) == Imported(3, 2)
    summaries = [line["summary"] for line in list_findings(world.runtime(), mission.task_id)]
    assert summaries == ["n4", "n3", "n2", "n1", "n0"]


def test_what_was_exported_by_the_projection_can_be_imported(world: Scratch) -> None:
    mission = world.mission()
    add_finding(world.runtime(), mission.task_id, Submission("mine", id="f1"), source="cli")
    shown = world.project / ".omx/autoresearch" / mission.task_id / "state/findings.jsonl"
    other = world.mission(session="", goal="another goal")
    assert import_findings(world.runtime(), other.task_id, str(shown)) == Imported(1, 0)


@pytest.mark.parametrize(("content", "said"), [(None, "is missing"), ("\n \n", "is empty")])
def test_an_empty_or_missing_file_is_told(world: Scratch, content: str | None, said: str) -> None:
    mission = world.mission()
    path = world.project / "f.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=said):
        import_findings(world.runtime(), mission.task_id, str(path))


def test_nothing_is_imported_into_a_mission_that_ended(world: Scratch) -> None:
    mission = world.mission()
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    with pytest.raises(StepIllegal, match="cancelled"):
        import_findings(world.runtime(), mission.task_id, str(world.write("f.jsonl", lines(OLD))))
