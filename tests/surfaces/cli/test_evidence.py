"""Findings, criteria, readiness and the log on the command line, as an agent and as its owner type them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.surfaces.cli.test_json import check
from tests.surfaces.support.command_line import AGENT

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

CRITERIA = (
    *("--criterion", "tests: it verifies :: command: ./verify.sh"),
    *("--criterion", "optional look: a person saw it :: person"),
    *("--criterion", "report: written :: file: report.md ~ ^## Findings"),
)
PATIENT = ("--limit", "idle_refusals=50", "--limit", "stale_stalled=50")


def started(person: Person, *more: str) -> str:
    person.write("verify.sh", "#!/bin/sh\ngrep -qx 42 answer.txt\n", mode=0o755)
    person.commit("Verify")
    return person.start("answer", *CRITERIA, *PATIENT, *more)


@pytest.mark.requirement("EVID-14")
def test_criteria_are_shown_at_every_step_from_init_to_the_running_mission(person: Person) -> None:
    person.write("verify.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    task_id = person.init("answer", *CRITERIA)
    listed = person.json("criterion", "list", task_id)
    check("criterion-list", listed)
    assert [line["received"] for line in listed["criteria"]] == ["the mission is a draft"] * 3
    launched = person.json("start", task_id)
    assert launched["criteria"] == [text for text in CRITERIA if text != "--criterion"]
    assert launched["pinned_count"] == 2, "the command's script is frozen, too"
    listed = person.json("criterion", "list", task_id)
    assert [(line["id"], line["required"], line["status"]) for line in listed["criteria"]] == [
        ("tests", True, "open"),
        ("look", False, "blocked"),
        ("report", True, "open"),
    ]
    assert "received: no evidence" not in person.ok("status", task_id)
    assert "criterion:tests" in " ".join(person.json("status", task_id)["open_criteria"])


@pytest.mark.requirement("EVID-14")
def test_a_run_that_passed_promises_no_end_while_a_criterion_is_open(person: Person) -> None:
    person.start("answer", "--criterion", "look: somebody looked :: person")
    person.write("answer.txt", "42\n")
    said = person.ok("validate")
    assert "still open: look; see omx-autoresearch readiness" in said
    assert "complete at the agent's next stop" not in said


@pytest.mark.requirement("EVID-14")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--criterion", "tests"), "id: description :: rule"),
        (("--criterion", "t: x :: trust me"), "a rule is one of"),
        (("--criterion", "t: x :: review"), "which only a prompt-architect-artifact mission has"),
        (("--criterion", "t: x :: person", "--criterion", "t: y :: person"), "two criteria have the id 't'"),
        (("--criterion", "t: TODO :: person"), "placeholder"),
        (("--drop-criterion", "t"), "there is no 't'"),
    ],
)
def test_a_criterion_that_cannot_stand_is_refused_and_nothing_is_written(
    person: Person, options: tuple[str, ...], said: str
) -> None:
    done = person.run("init", "--goal", "Write it", "--validator", "./check.sh", *options)
    assert done.returncode in (2, 3)
    assert said in done.stderr
    assert person.json("list") == []


@pytest.mark.requirement("EVID-14", "READY-10")
def test_amend_replaces_adds_and_drops_criteria_and_the_file_says_the_same(person: Person) -> None:
    task_id = started(person)
    person.ok(
        *("amend", task_id, "--drop-criterion", "look", "--criterion", "more: x :: file: more.md"),
        *("--criterion", "report: written anew :: file: other.md"),
    )
    listed = person.json("criterion", "list", task_id)["criteria"]
    assert [(line["id"], line["accepts"]) for line in listed] == [
        ("tests", "command: ./verify.sh"),
        ("report", "file: other.md"),
        ("more", "file: more.md"),
    ]
    (sandbox,) = person.project.glob(".omx/specs/*/sandbox.md")
    assert "report: written anew :: file: other.md" in sandbox.read_text()
    assert "look" not in sandbox.read_text()
    person.ok("amend", task_id, "--limit", "refusals_total=7")
    assert person.json("criterion", "list", task_id)["criteria"] == listed, "a later amend keeps them"


@pytest.mark.requirement("READY-09")
def test_readiness_names_what_is_missing_and_each_command_may_be_typed_until_it_is_ready(
    person: Person,
) -> None:
    task_id = started(person)
    report = person.json("readiness", task_id, status=9)
    check("readiness", report)
    assert [item["code"] for item in report["missing"]] == [
        "validation",
        "criterion:tests",
        "criterion:report",
    ]
    assert "next: omx-autoresearch criterion check" in person.run("readiness", task_id).stdout
    person.write("answer.txt", "42\n")
    person.write("report.md", "## Findings\n")
    for item in report["missing"]:
        program, *words = item["next_command"].split()
        assert program == "omx-autoresearch"
        person.ok(*words, env=AGENT)
    report = person.json("readiness", task_id)
    assert (report["is_ready"], report["missing"]) == (True, [])
    assert "is ready; the next stop completes it" in person.ok("readiness", task_id)
    person.bind(task_id)
    person.stop(last_assistant_message="done")
    assert f"Mission {task_id} is complete." in person.ok("readiness", task_id)


@pytest.mark.requirement("READY-09")
def test_the_readiness_of_a_cancelled_mission_names_no_command_that_it_refuses(person: Person) -> None:
    task_id = started(person)
    person.ok("cancel", task_id)
    report = person.json("readiness", task_id, status=9)
    named = {line["next_command"] for line in (*report["lines"], *report["missing"])}
    assert named == {"", "omx-autoresearch init --goal ..."}


def test_a_finding_is_added_shown_and_listed(person: Person) -> None:
    task_id = started(person)
    bare = person.json("finding", "add", task_id, "--summary", "結果 🧪", "--path", "a.py", env=AGENT)
    check("finding", bare)
    assert (bare["accepted"], bare["finding"]["paths"]) == (False, ["a.py"])
    person.write("answer.txt", "42\n")
    options = ("--criterion", "tests", "--kind", "test", "--id", "t1", "--command", "./verify.sh")
    added = person.json("finding", "add", task_id, "--summary", "green", *options, env=AGENT)
    check("finding", added)
    assert (added["accepted"], added["id"]) == (True, "t1")
    shown = person.json("finding", "show", task_id, "t1")
    check("finding", shown)
    assert shown["finding"]["created_at"]
    assert shown["finding"]["evidence"] == added["finding"]["evidence"]
    person.ok("note", task_id, "half done")
    for verb in (("finding", "list"), ("findings",)):
        listed = person.json(*verb, task_id, "--limit", "2")
        check("finding-list", listed)
        assert (listed["finding_count"], listed["accepted_count"]) == (3, 1)
        assert listed["findings"][0]["id"] == "t1"
    assert "\tevidence\ttest\ttests\tgreen" in person.ok("findings", task_id, "--accepted")
    assert len(person.json("findings", task_id, "--claims")["findings"]) == 2


@pytest.mark.requirement("EVID-08", "EVID-10")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--summary", ""), "summary is empty"),
        (("--summary", "x", "--criterion", "nope"), "it has tests, look, report"),
        (("--summary", "x", "--id", "a b"), "id is at most 80"),
        (("--summary", "x", "--kind", "proof"), "proof"),
    ],
)
def test_a_refused_finding_says_field_received_and_what_counts(
    person: Person, words: tuple[str, ...], said: str
) -> None:
    task_id = started(person)
    done = person.run("finding", "add", task_id, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "next:" in done.stderr


@pytest.mark.requirement("EVID-11")
def test_a_long_text_comes_by_standard_input(person: Person) -> None:
    task_id = started(person)
    text = "字🧪" * 30_000
    words = ("finding", "add", task_id, "--summary", "-")
    assert person.run(*words, "--id", "long", stdin=f"{text}\n".encode()).returncode == 0
    assert person.json("finding", "show", task_id, "long")["finding"]["summary"] == text
    for wrong, said in (
        (b"x" * 400_000, "put the whole text into a file"),
        (b"\xff", "not UTF-8"),
        (b"a\0", "NUL"),
    ):
        done = person.run(*words, stdin=wrong)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.requirement("EVID-07")
def test_an_agent_gives_no_owners_word_and_no_excuse(person: Person) -> None:
    task_id = started(person)
    for words in (("criterion", "accept", task_id, "look"), ("excuse", task_id)):
        done = person.run(*words, "--reason", "I say so", env=AGENT)
        assert done.returncode == 5, done.stderr
        assert "CLAUDECODE" in done.stderr
    listed = person.json("criterion", "accept", task_id, "look", "--reason", "seen")
    check("criterion-list", listed)
    assert {line["id"]: line["status"] == "satisfied" for line in listed["criteria"]}["look"]
    check("status", person.json("excuse", task_id, "--reason", "no toolchain"))


@pytest.mark.requirement("EVID-12")
def test_a_file_of_findings_is_imported_or_refused_with_its_lines(person: Person) -> None:
    task_id = started(person)
    person.write("f.jsonl", '{"summary": "a"}\n{"summary": "b"}\n')
    document = person.json("finding", "import", task_id, "f.jsonl")
    check("finding-import", document)
    assert (document["added"], document["known"]) == (2, 0)
    person.write("g.jsonl", '{"summary": "c"}\n{"summary": NaN}\n')
    done = person.run("finding", "import", task_id, "g.jsonl")
    assert done.returncode == 2
    assert "g.jsonl, line 2: NaN is not a JSON number" in done.stderr
    person.write("h.jsonl", '{"summary": "d"}\n')
    assert person.ok("finding", "import", task_id, "h.jsonl").startswith("Imported 1 finding into ")


@pytest.mark.requirement("EVID-16")
def test_the_log_shows_the_newest_iterations_first(person: Person) -> None:
    task_id = started(person)
    person.bind(task_id)
    for number in range(3):
        person.stop(last_assistant_message=str(number))
    document = person.json("log", task_id, "--limit", "2")
    check("log", document)
    assert [line["iteration"] for line in document["iterations"]] == [3, 2]
    assert person.ok("log", task_id).splitlines()[0].startswith("N\tENDED\tANSWER")


@pytest.mark.requirement("EVID-16")
def test_the_log_tells_the_events_of_the_missions_life_newest_first(person: Person) -> None:
    task_id = started(person)
    assert "has finished no iteration yet" in person.ok("log", task_id)
    person.ok("pause", task_id)
    person.ok("resume", task_id)
    document = person.json("log", task_id)
    check("log", document)
    kinds = [notice["kind"] for notice in document["lifecycle"]]
    assert kinds == ["mission_resumed", "mission_paused", "mission_launched", "mission_created"]
    text = person.ok("log", task_id)
    assert text.index("mission_resumed") < text.index("mission_created")
    assert len(person.json("log", task_id, "--limit", "1")["lifecycle"]) == 1


def test_a_check_by_the_agent_is_seen_by_its_next_stop(person: Person) -> None:
    task_id = started(person)
    person.bind(task_id)
    person.write("answer.txt", "42\n")
    answer: Any = person.stop()
    assert "(criterion:report)" in answer["reason"]
    person.write("report.md", "## Findings\n")
    person.ok("criterion", "check", env=AGENT)
    assert "decision" not in (person.stop(last_assistant_message="now") or {})
    assert person.json("status", task_id)["phase"] == "complete"


@pytest.mark.requirement("EVID-19")
def test_a_criterion_stands_the_same_wherever_it_is_shown(person: Person) -> None:
    task_id = started(person)
    person.write("report.md", "## Findings\n")
    assert person.run("criterion", "check", "report").returncode == 0
    listed = person.json("criterion", "list", task_id)["criteria"]
    assert [item["status"] for item in listed] == ["open", "blocked", "satisfied"]
    assert [item["evidence_count"] for item in listed] == [0, 0, 1]
    shown = person.json("status", task_id, "--look")
    assert shown["criteria"] == listed
    lines = {line["code"]: line for line in person.json("readiness", task_id, status=9)["lines"]}
    for item in listed:
        line = lines[f"criterion:{item['id']}"]
        assert line["is_met"] == (item["status"] == "satisfied")
        assert (line["received"], line["next_command"]) == (item["received"], item["next_command"])
    written = json.loads((Path(shown["task_path"]) / "state" / "task_spec.json").read_text(encoding="utf-8"))
    assert [(item["id"], item["status"]) for item in written["success_criteria"]] == [
        (item["id"], item["status"]) for item in listed
    ]
    person.write("report.md", "nothing\n")
    assert person.json("status", task_id, "--look")["criteria"][2]["status"] == "open", (
        "what it saw is not there any more"
    )


def test_a_check_of_all_criteria_fails_while_one_waits_for_a_person(person: Person) -> None:
    task_id = person.start("answer", "--criterion", "seen: a person saw it :: person")
    assert person.run("criterion", "check", task_id).returncode == 9
    person.ok("criterion", "accept", task_id, "seen", "--reason", "I saw it")
    assert person.run("criterion", "check", task_id).returncode == 0


@pytest.mark.requirement("LIFE-06")
def test_the_log_lists_what_the_owner_did(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    before = [notice["kind"] for notice in person.json("log", task_id)["lifecycle"]]
    assert "commands_approved" not in before, "an approval that comes with the start is no event"
    assert before[-2:] == ["mission_launched", "mission_created"]
    person.ok("approve", task_id, "--unsandboxed")
    person.ok("direct", task_id, "borrow a device")
    person.ok("restore", task_id, "--reason", "to be sure")
    person.ok("unbind", task_id, "--reason", "lunch")
    said = person.json("log", task_id, "--limit", "4")["lifecycle"]
    assert [notice["kind"] for notice in said] == [
        "session_unbound",
        "pins_restored",
        "direction_injected",
        "commands_approved",
    ]
    assert said[0]["text"].endswith("was let go: lunch")
    assert said[1]["text"].endswith(": to be sure")


@pytest.mark.requirement("STATE-09")
def test_status_tells_a_person_once_of_an_edited_projection_and_an_agent_tells_nobody(person: Person) -> None:
    task_id = person.start()
    progress = person.project / ".omx" / "autoresearch" / task_id / "state" / "progress.json"
    progress.write_text("{}")
    told = "progress.json was edited and has been rewritten"
    assert told in person.run("status", task_id, env=AGENT).stdout
    assert any(told in notice for notice in person.json("status", task_id)["notices"])
    assert told in person.ok("status", task_id)
    assert told not in person.ok("status", task_id)
    assert person.json("status", task_id)["notices"] == []
    assert told in person.ok("log", task_id)
    progress.write_text("[]")
    assert told in person.ok("status", task_id)
