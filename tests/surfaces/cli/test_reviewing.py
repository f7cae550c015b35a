"""review as a person, a script and another session type it."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from tests.surfaces.support.command_line import AGENT, REVIEWER, SESSION, at_terminal

if TYPE_CHECKING:
    from tests.surfaces.support.command_line import Person

FIRST = b"It is.\n"
DIGEST = sha256(FIRST).hexdigest()
OTHER = "99999999-2222-4333-8444-555555555555"
REVIEWING = {**AGENT, "CLAUDE_CODE_SESSION_ID": OTHER}


def _report(person: Person, *more: str) -> str:
    person.write("report.md", FIRST.decode())
    return person.start("report", "--prompt", "Is it true?", "--output", "report.md", *more)


def _reviewer(person: Person, verdict: str) -> tuple[str, str]:
    person.write("review.sh", REVIEWER.replace("approved", verdict), mode=0o755)
    return "--reviewer", "./review.sh"


# --- a person


@pytest.mark.requirement("DONE-44")
def test_a_person_is_shown_what_the_verdict_is_about_and_asked(person: Person) -> None:
    task_id = _report(person)
    shown = at_terminal(person, "review", task_id, answers=(("Your verdict", "approve"),))
    assert shown.status == 0, shown.text
    for told in ("Is it true?", "report.md, 7 bytes", DIGEST, "| It is."):
        assert told in shown.text
    (run,) = person.records(task_id, "validation_finished")
    assert run["attestation"]["output_artifact_digest"] == DIGEST
    person.bind(task_id)
    person.stop()
    assert person.json("status", task_id)["phase"] == "complete"


@pytest.mark.requirement("DONE-44")
@pytest.mark.parametrize(
    ("options", "answers", "verdicts"),
    [
        ((), (("Your verdict", "none"),), []),
        ((), (("Your verdict", ""),), []),
        (("--approve",), (("Approve exactly this?", "n"),), []),
        ((), (("Your verdict", "reject"), ("What is missing?", "a source")), ["a source"]),
        (("--reject", "--summary", "no source"), (("Reject exactly this?", "y"),), ["no source"]),
    ],
)
def test_what_is_not_approved_at_the_terminal_ends_with_9(
    person: Person, options: tuple[str, ...], answers: tuple[tuple[str, str], ...], verdicts: list[str]
) -> None:
    task_id = _report(person)
    assert at_terminal(person, "review", task_id, *options, answers=answers).status == 9
    runs = person.records(task_id, "validation_finished")
    assert [run["attestation"]["summary"] for run in runs] == verdicts


@pytest.mark.requirement("DONE-44")
def test_a_person_is_shown_the_difference_to_what_was_last_reviewed(person: Person) -> None:
    task_id = _report(person, *_reviewer(person, "rejected"))
    lines = [f"line {number}" for number in range(500)]
    person.write("report.md", "\n".join(lines))
    assert person.run("review", task_id).returncode == 9
    person.write("report.md", "\n".join(lines).replace("line 250", "line 250, see [1]"))
    shown = at_terminal(person, "review", task_id, "--approve", answers=(("exactly this?", "y"),))
    assert shown.status == 0, shown.text
    assert "what changed since it was last reviewed" in shown.text
    assert "| +line 250, see [1]" in shown.text
    assert "| -line 250" in shown.text
    assert "line 100" not in shown.text


@pytest.mark.requirement("DONE-44")
def test_a_long_content_is_shown_in_part_and_the_rest_is_counted(person: Person) -> None:
    task_id = _report(person)
    person.write("report.md", "\n".join(f"line {number}" for number in range(500)))
    shown = at_terminal(person, "review", task_id, answers=(("Your verdict", "none"),)).text
    assert "| line 199" in shown
    assert "| line 200" not in shown
    assert "300 more lines: read report.md" in shown


@pytest.mark.requirement("DONE-44")
def test_nothing_in_the_artifact_is_hidden_from_the_person(person: Person) -> None:
    task_id = _report(person)
    person.write("report.md", "good\x1b[2K\x1b[1Abad\rworse \u202etxt\u200b\u3164\nnext\n")
    shown = at_terminal(person, "review", task_id, answers=(("Your verdict", "none"),)).raw
    assert "good\\x1b[2K\\x1b[1Abad\\rworse \\u202etxt\\u200b\\u3164" in shown


@pytest.mark.requirement("DONE-44")
def test_what_changes_while_the_person_reads_is_shown_and_asked_about_again(person: Person) -> None:
    task_id = _report(person)

    def edited() -> str:
        person.write("report.md", "It is not.\n")
        return "approve"

    shown = at_terminal(
        person, "review", task_id, answers=(("Your verdict", edited), ("Your verdict", "none"))
    )
    assert shown.status == 9, shown.text
    assert "report.md changed while you read it" in shown.text
    assert "| -It is." in shown.text
    assert "| +It is not." in shown.text
    assert not person.records(task_id, "validation_finished")


@pytest.mark.requirement("DONE-44", "DONE-13")
def test_without_a_terminal_a_verdict_names_its_content(person: Person) -> None:
    task_id = _report(person)
    blind = person.run("review", task_id, "--approve")
    assert blind.returncode == 2
    assert f"report.md is sha256 {DIGEST} now" in blind.stderr
    for wrong in ("0" * 64, DIGEST[:12]):
        refused = person.run("review", task_id, "--approve", "--digest", wrong)
        assert refused.returncode == 5
        assert f"it is sha256 {DIGEST} now" in refused.stderr
    assert not person.records(task_id, "validation_finished")
    person.ok("review", task_id, "--approve", "--digest", DIGEST)
    assert person.json("status", task_id)["last_verdict"] == "passed"


@pytest.mark.requirement("DONE-44")
def test_what_waits_for_a_verdict_is_named_and_the_verdict_lets_the_mission_go_on(person: Person) -> None:
    task_id = _report(person)
    person.bind(task_id)
    assert DIGEST in person.stop()["systemMessage"]
    assert DIGEST in person.ok("status", task_id)
    assert person.json("status", task_id)["next_command"] == f"omx-autoresearch review {task_id}"
    told = person.ok("review", task_id, "--approve", "--digest", DIGEST)
    assert "The mission runs again. Its agent was let go: type anything to it" in told
    assert "output " not in told, "no command ran, so there is no output"
    assert "completes at the agent's next stop" in told
    person.stop(last_assistant_message="and now")
    assert person.json("status", task_id)["phase"] == "complete"


@pytest.mark.requirement("DONE-44")
def test_a_person_overrules_the_reviewer_command_only_in_person(person: Person) -> None:
    task_id = _report(person, *_reviewer(person, "rejected"))
    assert person.run("review", task_id).returncode == 9
    again = person.run("review", task_id)
    assert again.returncode == 5
    assert "no reviewer is asked again" in again.stderr
    shown = at_terminal(person, "review", task_id, "--approve", answers=(("exactly this?", "y"),))
    assert shown.status == 0
    assert "rejected as it is, in run r-" in shown.text


def test_a_review_that_no_command_gives_says_who_may_give_it(person: Person) -> None:
    task_id = _report(person)
    done = person.run("review", task_id)
    assert done.returncode == 7
    assert f"omx-autoresearch review {task_id}" in done.stderr


def test_each_way_of_judging_points_to_the_other_verb(person: Person) -> None:
    script = person.start()
    assert f"omx-autoresearch validate {script}" in person.run("review", script).stderr
    report = _report(person)
    assert f"omx-autoresearch review {report}" in person.run("validate", report).stderr


# --- another session


def _said(person: Person, session: str, *words: str, client: str = "claude") -> str:
    """The tool event of a session's ``omx-autoresearch review``, and what its agent is told."""
    line = "omx-autoresearch review " + " ".join(f"'{word}'" for word in words)
    answer = person.hook(
        "PostToolUse",
        session,
        client,
        tool_name="Bash",
        tool_input={"command": line},
        tool_response={"stdout": ""},
    )
    return "" if answer is None else str(answer["hookSpecificOutput"]["additionalContext"])


@pytest.mark.requirement("DONE-43", "DONE-13")
def test_a_verdict_of_another_session_counts_once_its_client_confirms_the_command(person: Person) -> None:
    task_id = _report(person, "--reviewed-by", "session")
    person.bind(task_id)
    waits = person.stop()["systemMessage"]
    assert f"omx-autoresearch review {task_id} --approve --digest {DIGEST} (or --reject)" in waits
    words = (task_id, "--approve", "--digest", DIGEST, "--summary", "all sourced")
    told = person.ok("review", *words, env=REVIEWING)
    assert "once the agent CLI of this session confirms" in told
    assert not person.records(task_id, "validation_finished"), "a shell's word is none"
    assert "is recorded: approved" in _said(person, OTHER, *words)
    (run,) = person.records(task_id, "validation_finished")
    assert (run["attestation"]["cause"], run["attestation"]["summary"]) == (
        "approved-by-session",
        "all sourced",
    )
    person.stop()
    assert person.json("status", task_id)["phase"] == "complete"


@pytest.mark.requirement("DONE-43")
def test_a_session_reviews_only_where_the_mission_says_so_and_never_itself(person: Person) -> None:
    strict = _report(person)
    assert person.run("review", strict, "--approve", "--digest", DIGEST, env=REVIEWING).returncode == 5
    person.ok("cancel", strict)
    task_id = _report(person, "--reviewed-by", "session")
    person.bind(task_id)
    words = (task_id, "--approve", "--digest", DIGEST)
    own = person.run("review", *words, env=AGENT)
    assert own.returncode == 5
    assert "cannot review itself" in own.stderr
    assert "cannot review itself" in _said(person, SESSION, *words)
    assert not person.records(task_id, "validation_finished")


@pytest.mark.requirement("DONE-43")
def test_a_session_names_what_it_has_read(person: Person) -> None:
    task_id = _report(person, "--reviewed-by", "session")
    assert person.run("review", task_id, "--approve", env=REVIEWING).returncode == 2
    words = (task_id, "--approve", "--digest", DIGEST)
    person.ok("review", *words, env=REVIEWING)
    person.write("report.md", "It is not.\n")
    assert "not the content that the verdict names" in _said(person, OTHER, *words)
    assert not person.records(task_id, "validation_finished")


@pytest.mark.requirement("DONE-43")
def test_a_command_that_a_shell_would_change_is_no_verdict(person: Person) -> None:
    task_id = _report(person, "--reviewed-by", "session")
    person.ok("review", task_id, "--approve", "--digest", DIGEST, env=REVIEWING)
    command = f"omx-autoresearch review {task_id} --approve --digest $(sha256sum report.md)"
    person.hook("PostToolUse", OTHER, tool_name="Bash", tool_input={"command": command}, tool_response={})
    assert not person.records(task_id, "validation_finished")
