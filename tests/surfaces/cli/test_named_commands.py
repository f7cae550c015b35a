"""Every command that a refusal, a blocker, a summary or the status names is legal in that very phase: each is run."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import omx_autoresearch
from omx_autoresearch.surfaces import hook
from tests.support.boxes import take_box
from tests.surfaces.cli.test_adopting import leave_task
from tests.surfaces.support.command_line import AGENT, SESSION, at_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.surfaces.support.command_line import Person

_COMMAND = re.compile(
    r"(?:next|Next|then): (omx-autoresearch .*)|act first: (omx-autoresearch .*)|`(omx-autoresearch .*?)`"
)
_ALLOWED = {0, 9}
"""A command that may be typed ends so: done, or a check said no. 2 and 5 mean that it could not be meant."""
REVIEWER = """\
#!/bin/sh
nonce=$(sed -n 's/.*"nonce": "\\([^"]*\\)".*/\\1/p')
printf '{"nonce": "%s", "verdict": "rejected", "summary": "it is not true"}\\n' "$nonce"
"""


@dataclass
class Spoken:
    """What was said to somebody, and the commands in it.

    Attributes:
        text: the whole text.
        is_agent: it was said to the agent.
    """

    text: str
    is_agent: bool = False

    @property
    def commands(self) -> list[str]:
        found = ["".join(groups).strip() for groups in _COMMAND.findall(self.text)]
        filled = [command.replace("'...'", "./other.sh") for command in dict.fromkeys(found)]
        return [command.replace('"..."', '"what was meant"') for command in filled]


def _refusal(answer: Any) -> Spoken:
    assert answer["decision"] == "block"
    return Spoken(answer["reason"], is_agent=True)


def _release(answer: Any) -> Spoken:
    assert "decision" not in answer
    return Spoken(answer["systemMessage"])


def _failed(person: Person) -> list[Spoken]:
    person.bind(person.start())
    return [_refusal(person.stop())]


def _tampered(person: Person) -> list[Spoken]:
    person.bind(person.start())
    person.write("check.sh", "#!/bin/sh\nexit 0\n", mode=0o755)
    first = _refusal(person.stop())
    return [first, _release(person.stop())]


def _still_running(person: Person) -> list[Spoken]:
    person.write("check.sh", "#!/bin/sh\nwhile [ ! -e done ]; do sleep 0.05; done\nexit 1\n", mode=0o755)
    task_id = person.init("answer", "--limit", "idle_refusals=50")
    person.ok("start", task_id, "--no-baseline")
    person.bind(task_id)
    person.run("validate", task_id, "--seconds", "0")
    answer = person.run("wait", task_id, "--seconds", "0").stdout
    person.write("done", "")
    return [Spoken(answer.replace("call again:", "next:"), is_agent=True)]


def _no_artifact(person: Person) -> list[Spoken]:
    person.write("review.sh", REVIEWER, mode=0o755)
    options = ("--prompt", "Is it true?", "--output", "report.md", "--reviewer", "./review.sh")
    person.bind(person.start("report", *options))
    return [_refusal(person.stop())]


def _rejected(person: Person) -> list[Spoken]:
    person.write("report.md", "It is.\n")
    return _no_artifact(person)


def _stalled(person: Person) -> list[Spoken]:
    person.bind(person.start("answer", "--limit", "idle_refusals=1"))
    person.stop()
    return [_release(person.stop(last_assistant_message="done, I say"))]


def _stale(count: int) -> Callable[[Person], list[Spoken]]:
    """Refused until the stale count is ``count``, whatever the validator's first word was worth."""

    def lead(person: Person) -> list[Spoken]:
        task_id = person.start("answer", "--limit", "idle_refusals=50")
        person.bind(task_id)
        person.ok("direction", "add", "profile it", "--axis", "objective=speed", env=AGENT)
        while True:
            person.hook("PostToolUse", tool_name="Bash", tool_input={"command": "true"})
            answer = person.stop()
            if person.json("status", task_id)["stale_count"] >= count:
                return [_refusal(answer) if count < 4 else _release(answer)]

    return lead


def _directed(person: Person) -> list[Spoken]:
    task_id = person.start()
    person.bind(task_id)
    person.ok("direct", task_id, "ask the database team")
    started = person.hook("SessionStart", source="compact")
    return [
        _refusal(person.stop()),
        Spoken(started["hookSpecificOutput"]["additionalContext"], is_agent=True),
    ]


def _pivot_due(person: Person) -> list[Spoken]:
    _stale(2)(person)
    started = person.hook("SessionStart", source="compact")
    return [Spoken(started["hookSpecificOutput"]["additionalContext"], is_agent=True)]


def _not_declared(person: Person) -> list[Spoken]:
    person.bind(person.start())
    return [Spoken(person.run("direction", "add", "...", env=AGENT).stderr, is_agent=True)]


def _refusals_spent(person: Person) -> list[Spoken]:
    person.bind(person.start("answer", "--limit", "refusals_total=1"))
    person.stop()
    person.hook("PostToolUse", tool_name="Bash", tool_input={"command": "true"})
    return [_release(person.stop())]


def _time_spent(person: Person) -> list[Spoken]:
    person.bind(person.start("answer", "--limit", "wall_clock_hours=1e-9"))
    return [_release(person.stop())]


def _validator_gone(person: Person) -> list[Spoken]:
    person.write("other.sh", "#!/bin/sh\nexit 1\n", mode=0o755)
    options = ("--validator", "no-such-program", "--unfrozen", "--reason", "it is elsewhere")
    task_id = person.init("answer", *options)
    person.ok("start", task_id, "--no-baseline")
    person.bind(task_id)
    return [_release(person.stop())]


def _not_approved(person: Person) -> list[Spoken]:
    person.extra["PATH"] = person.environment()["PATH"]
    person.bind(person.start())
    shutil.rmtree(person.home / "approved")
    return [Spoken(f"next: omx-autoresearch approve {person.json('list')[0]['task_id']}")]


def _blocked_by_agent(person: Person) -> list[Spoken]:
    task_id = person.start()
    person.ok("block", task_id, "--reason", "no device", "--needs", "a device", env=AGENT)
    return [Spoken(f"Next: {person.json('status')['next_command']}")]


def _in_phase(*verbs: str) -> Callable[[Person], list[Spoken]]:
    def lead(person: Person) -> list[Spoken]:
        task_id = person.init()
        for verb in verbs:
            person.ok(verb, task_id)
        command = person.json("status", task_id)["next_command"].replace(
            "--goal ...", "--goal More --validator ./check.sh"
        )
        return [Spoken(f"Next: {command}"), Spoken(person.ok("status", task_id).replace("next  ", "next:"))]

    return lead


def _complete(person: Person) -> list[Spoken]:
    person.bind(person.start())
    person.write("answer.txt", "42\n")
    person.stop()
    (view,) = person.json("list")
    assert view["phase"] == "complete"
    return [Spoken(f"Next: {view['next_command']}")]


def _summary(person: Person) -> list[Spoken]:
    task_id = person.start()
    person.bind(task_id)
    started = person.hook("SessionStart", source="resume")
    return [Spoken(started["hookSpecificOutput"]["additionalContext"], is_agent=True)]


def _open_criteria(person: Person) -> list[Spoken]:
    criteria = ("--criterion", "t: x :: command: ./check.sh", "--criterion", "r: y :: file: report.md")
    person.bind(person.start("answer", *criteria))
    person.write("answer.txt", "42\n")
    return [_refusal(person.stop())]


def _owners_word(person: Person) -> list[Spoken]:
    person.bind(person.start("answer", "--criterion", "look: seen :: person"))
    person.write("answer.txt", "42\n")
    return [_release(person.stop())]


def _unverified_code(person: Person) -> list[Spoken]:
    options = ("--prompt", "Is it true?", "--output", "report.md", "--reviewer", "./review.sh")
    person.write("review.sh", REVIEWER.replace("rejected", "approved"), mode=0o755)
    person.bind(person.start("report", *options))
    person.write("report.md", "It is.\n")
    person.write("tool.py", "print(1)\n")
    return [_release(person.stop())]


def _reviewed(*options: str, artifact: str = "") -> Callable[[Person], list[Spoken]]:
    """A review mission: what its session is told at its start, and what its owner reads of it."""

    def lead(person: Person) -> list[Spoken]:
        person.write("review.sh", REVIEWER, mode=0o755)
        if artifact:
            person.write("report.md", artifact)
        task_id = person.start("report", "--prompt", "Is it true?", "--output", "report.md", *options)
        person.bind(task_id)
        started = person.hook("SessionStart", source="resume")["hookSpecificOutput"]["additionalContext"]
        assert "omx-autoresearch validate" not in started
        return [Spoken(started, is_agent=True), _looked_at(person, task_id)]

    return lead


def _looked_at(person: Person, task_id: str) -> Spoken:
    """What status and readiness tell the owner now, each line of the gate with its command."""
    looks = [person.run(verb, task_id) for verb in ("status", "readiness")]
    return Spoken("".join(look.stdout + look.stderr for look in looks))


def _looks(lead: Callable[[Person], list[Spoken]]) -> Callable[[Person], list[Spoken]]:
    """The situation as its owner reads it."""

    def look(person: Person) -> list[Spoken]:
        lead(person)
        return [_looked_at(person, person.json("list")[0]["task_id"])]

    return look


def _looked_at_while_it_runs(person: Person) -> list[Spoken]:
    spoken = _still_running(person)
    (person.project / "done").unlink()
    task_id = person.json("list")[0]["task_id"]
    person.run("validate", task_id, "--seconds", "0")
    look = _looked_at(person, task_id)
    person.write("done", "")
    assert "omx-autoresearch repair" not in look.text
    return [*spoken, look]


SITUATIONS = {
    "a review by a command": _reviewed("--reviewer", "./review.sh"),
    "a review by a command that has something to read": _reviewed(
        "--reviewer", "./review.sh", artifact="It is.\n"
    ),
    "a review by a person": _reviewed(),
    "a review by a person who has something to read": _reviewed(artifact="It is.\n"),
    "a look while a validation runs": _looked_at_while_it_runs,
    "a look after a failed validation": _looks(_failed),
    "a look at changed pins": _looks(_tampered),
    "a look at open criteria": _looks(_open_criteria),
    "a look at a criterion for its owner": _looks(_owners_word),
    "a look at code that nothing verified": _looks(_unverified_code),
    "a look at a stall": _looks(_stalled),
    "a look at a rejected artifact": _looks(_rejected),
    "open criteria": _open_criteria,
    "a criterion for its owner": _owners_word,
    "code that nothing verified": _unverified_code,
    "a failed validation": _failed,
    "changed pins": _tampered,
    "a validation that still runs": _still_running,
    "no artifact": _no_artifact,
    "a rejected artifact": _rejected,
    "a stall": _stalled,
    "a pivot that is due": _stale(2),
    "a fresh direction that is offered": _stale(3),
    "a stall by the stale count": _stale(4),
    "a direction of the owner": _directed,
    "a summary with a pivot that is due": _pivot_due,
    "a direction that may not be declared": _not_declared,
    "spent refusals": _refusals_spent,
    "a spent wall clock": _time_spent,
    "a validator that is gone": _validator_gone,
    "no approval": _not_approved,
    "a block by the agent": _blocked_by_agent,
    "a draft": _in_phase(),
    "a running mission": _in_phase("start"),
    "a paused mission": _in_phase("start", "pause"),
    "a cancelled mission": _in_phase("cancel"),
    "a complete mission": _complete,
    "a resumed session": _summary,
}


@pytest.mark.slow
@pytest.mark.requirement("GATE-19", "CLI-03")
@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_every_command_that_is_named_can_be_typed_right_then(
    person: Person, situation: Callable[[Person], list[Spoken]]
) -> None:
    spoken = situation(person)
    # Where a person must type in the agent, that line is named and no command of the shell.
    named = [said.commands or "$autoresearch " in said.text for said in spoken]
    assert any(named), [said.text for said in spoken]
    said = spoken[-1]  # what was said before belongs to a phase that is over
    _keep(person)
    for number, command in enumerate(said.commands):
        if number:
            _put_back(person)
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=person.project,
            env=person.environment(**(AGENT if said.is_agent else {})),
            capture_output=True,
            text=True,
            check=False,
        )
        if not said.is_agent and f"a person types at a terminal: {command}" in done.stderr:
            words = shlex.split(command)[1:]
            assert at_terminal(person, *words, answers=(("Your verdict", "approve"),)).status == 0, command
            continue
        no_artifact = done.returncode == 6 and "nothing to review" in done.stderr
        is_for_a_person = done.returncode == 5 and "at a terminal" in done.stderr
        may_be_typed = done.returncode in _ALLOWED or no_artifact or is_for_a_person
        assert may_be_typed, f"{command}: {done.returncode} {done.stderr}"


def _owner_blocked(person: Person) -> list[Spoken]:
    task_id = person.start()
    person.ok("block", task_id, "--reason", "no device", "--needs", "a device")
    return [Spoken(f"Next: {person.json('status')['next_command']}")]


def _answer_repeated(person: Person) -> list[Spoken]:
    task_id = person.start("answer", "--limit", "idle_refusals=50")
    person.hook("BeforeAgent", client="gemini", prompt=f"$autoresearch {task_id}")
    answers = [person.hook("AfterAgent", client="gemini", prompt_response="done, I say") for _ in range(3)]
    return [_release(answers[-1])]


def _plan_mode(person: Person) -> list[Spoken]:
    person.bind(person.start("answer", "--limit", "background_allows=1"))
    answers = [person.stop(permission_mode=mode) for mode in ("plan", "acceptEdits", "plan")]
    return [_release(answers[-1])]


def _tools_denied(person: Person) -> list[Spoken]:
    denied = "Claude requested permissions to write to answer.txt, but you haven't granted it yet."
    part = {"type": "tool_result", "tool_use_id": "t1", "content": denied, "is_error": True}
    transcript = person.root / "transcript.jsonl"
    transcript.write_text(json.dumps({"type": "user", "message": {"role": "user", "content": [part]}}) + "\n")
    person.bind(person.start())
    answers = [
        person.stop(transcript_path=str(transcript), last_assistant_message=f"done {number}")
        for number in range(4)
    ]
    return [_release(answers[-1])]


def _workspace_gone(person: Person) -> list[Spoken]:
    person.bind(person.start())
    person.project.rename(person.root / "elsewhere")
    answer = person.hook("Stop", at=person.root)
    (person.root / "elsewhere").rename(person.project)
    return [_release(answer)]


def _contract_broken(person: Person) -> list[Spoken]:
    task_id = person.start()
    person.bind(task_id)
    shutil.rmtree(person.journal(task_id).with_name("frozen"))
    return [_release(person.stop())]


def _unapproved(person: Person) -> list[Spoken]:
    person.bind(person.start())
    shutil.rmtree(person.home / "approved")
    stop = {"session_id": SESSION, "cwd": str(person.project), "hook_event_name": "Stop"}
    with pytest.MonkeyPatch.context() as patch:
        take_box(patch, "none")
        return [_release(json.loads(hook.answer(json.dumps(stop).encode(), "claude", str(person.home))))]


def _review_needed(person: Person) -> list[Spoken]:
    person.write("report.md", "It is.\n")
    person.bind(person.start("report", "--prompt", "Is it true?", "--output", "report.md"))
    return [_release(person.stop())]


def _reviews_spent(person: Person) -> list[Spoken]:
    person.write("review.sh", REVIEWER, mode=0o755)
    judged = ("--prompt", "Is it true?", "--output", "report.md", "--reviewer", "./review.sh")
    person.bind(person.start("report", *judged, "--limit", "reviews=1"))
    person.write("report.md", "It is.\n")
    rejected = _refusal(person.stop())
    person.write("report.md", "It is, as shown in [1].\n")
    return [rejected, _release(person.stop())]


def _reviewer_failed(person: Person) -> list[Spoken]:
    person.write("other.sh", REVIEWER, mode=0o755)
    judged = ("--prompt", "Is it true?", "--output", "report.md", "--reviewer", "no-such-reviewer")
    person.bind(person.start("report", *judged, "--unfrozen", "--reason", "it is elsewhere"))
    person.write("report.md", "It is.\n")
    return [_release(person.stop())]


def _experiment_failed(person: Person) -> list[Spoken]:
    person.write("measure.sh", "#!/bin/sh\necho METRIC ms=NaN\n", mode=0o755)
    person.commit("Add a measurement that measures nothing")
    task_id = person.start()
    person.bind(task_id)
    measured = ("--metric", "ms", "--measure", "./measure.sh", "--check", "true")
    person.run("experiment", "start", *measured, "--task", task_id)
    return [Spoken(f"Next: {person.json('status')['next_command']}")]


def _agents_mission(*verbs: str) -> Callable[[Person], list[Spoken]]:
    """A mission that an agent wrote down and took as far as these verbs do; its owner is refused the next one."""

    def lead(person: Person) -> list[Spoken]:
        made = ("init", "--goal", "Write", "--slug", "write", "--validator", "./check.sh")
        for verb in (made, *((verb,) for verb in verbs[:-1])):
            person.ok(*verb, env=AGENT)
        done = person.run(verbs[-1])
        assert done.returncode == 5
        assert f"omx-autoresearch {verbs[-1]} " in done.stderr
        return [Spoken(done.stderr)]

    return lead


def _adoptable(person: Person) -> list[Spoken]:
    person.home.mkdir()
    said = person.run("status", leave_task(person)).stderr
    assert "omx-autoresearch adopt" in said
    return [Spoken(f"{said.rstrip()} --validator ./check.sh")]


SITUATIONS |= {
    "a draft of an agent": _agents_mission("start"),
    "a mission that an agent launched": _agents_mission("start", "approve"),
    "a task folder of another runtime": _adoptable,
    "an artifact for a person": _review_needed,
    "reviews that are spent": _reviews_spent,
    "a reviewer that does not start": _reviewer_failed,
}

NEEDS = {
    "tampered": _tampered,
    "stalled": _stalled,
    "stalled, by the stale count": _stale(4),
    "refusals-spent": _refusals_spent,
    "wall-clock-spent": _time_spent,
    "answer-repeated": _answer_repeated,
    "plan-mode": _plan_mode,
    "tools-denied": _tools_denied,
    "workspace-fault": _workspace_gone,
    "contract-broken": _contract_broken,
    "approval-missing": _unapproved,
    "validator-gone": _validator_gone,
    "review-needed": _review_needed,
    "reviews-spent": _reviews_spent,
    "reviewer-failed": _reviewer_failed,
    "experiment-failed": _experiment_failed,
    "agent-blocked": _blocked_by_agent,
    "owner-blocked": _owner_blocked,
    "criterion:look": _owners_word,
    "verification": _unverified_code,
}
"""What blocks a mission until its owner acts, by the code of the blocker."""


@pytest.mark.slow
@pytest.mark.requirement("GATE-19")
@pytest.mark.parametrize("code", NEEDS)
def test_the_command_that_a_blocked_mission_names_lets_it_go_on(person: Person, code: str) -> None:
    NEEDS[code](person)
    (before,) = person.json("list")
    assert (
        person.records(before["task_id"], "mission_blocked")[-1]["blocker"]["reason_code"]
        == code.split(",", maxsplit=1)[0]
    )
    command = before["next_command"].replace("'...'", "./other.sh").replace('"..."', '"what was meant"')
    command = command.replace("PATH", shlex.quote(str(person.project)))
    for part in command.split(" && "):
        answers = (("Your verdict", "approve"),) if " review " in part else ()
        shown = at_terminal(person, *shlex.split(part)[1:], answers=answers)
        assert shown.status == 0, f"{part}: {shown.status} {shown.text}"
    if "unblock" not in command:
        person.run("unblock", before["task_id"])
    person.stop(last_assistant_message="and on")
    (after,) = person.json("list")
    assert after["phase"] in {"running", "complete"}, (command, after)


def _codes_of_blockers() -> Iterator[str]:
    """The codes that stand in calls of ``Blocker``, or in the name that such a call uses."""
    for path in Path(omx_autoresearch.__file__).parent.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "Blocker":
                    continue
                name = getattr(call.args[0], "id", "")
                named = (
                    node.value
                    for node in ast.walk(function)
                    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name
                )
                for value in (call.args[0], *(named if name else ())):
                    branches = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
                    yield from (str(item.value) for item in branches if isinstance(item, ast.Constant))


def test_every_need_of_an_owner_is_tried() -> None:
    codes = set(_codes_of_blockers())
    assert len(codes) >= 15
    assert codes <= NEEDS.keys()


@pytest.mark.requirement("LIFE-14")
def test_the_line_that_a_prompt_names_for_edits_can_be_typed(person: Person) -> None:
    made = ("init", "--goal", "Write", "--slug", "write", "--validator", "./check.sh")
    person.ok(*made, env=AGENT)
    said = person.hook("UserPromptSubmit", prompt="$autoresearch write")
    line = (
        said["hookSpecificOutput"]["additionalContext"]
        .partition("to take exactly this, type: ")[2]
        .split("\n")[0]
    )
    assert line.startswith("$autoresearch yes ")
    person.hook("UserPromptSubmit", prompt=line)
    (mission,) = person.json("list")
    assert mission["phase"] == "running"


@pytest.mark.requirement("GATE-08")
def test_restore_may_be_typed_between_the_refusal_and_the_block(person: Person) -> None:
    task_id = person.start()
    person.bind(task_id)
    person.write("check.sh", "#!/bin/sh\nexit 0\n", mode=0o755)
    assert person.stop()["reason"].count(f"omx-autoresearch restore {task_id}") == 1
    person.ok("restore", task_id, env=AGENT)
    assert "(validation)" in person.stop(last_assistant_message="restored")["reason"]


def _keep(person: Person) -> None:
    for name in ("state", "project"):
        shutil.copytree(person.root / name, person.root / f"{name}.kept", symlinks=True)


def _put_back(person: Person) -> None:
    for name in ("state", "project"):
        shutil.rmtree(person.root / name)
        shutil.copytree(person.root / f"{name}.kept", person.root / name, symlinks=True)


def test_the_session_of_the_agent_is_the_one_that_is_bound() -> None:
    assert AGENT["CLAUDE_CODE_SESSION_ID"] == SESSION
