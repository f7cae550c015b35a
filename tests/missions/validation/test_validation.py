"""Runs of a validator: attested, fresh or not, never twice at once, in the owner's environment, whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.agents.clients import claude
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.missions import lifecycle_commands
from omx_autoresearch.missions.amending import amend_mission
from omx_autoresearch.missions.stop import answer_stop
from omx_autoresearch.missions.validation import runs
from omx_autoresearch.missions.workspace import snapshot_workspace
from omx_autoresearch.system import sandbox
from omx_autoresearch.system.processes import (
    RUN_MARK,
    ProcessIdentity,
    command_line,
    identify,
    is_alive,
    wait_for,
)
from tests.support.boxes import take_box
from tests.support.needs import needs_bubblewrap
from tests.support.pipes import let_go, word_from
from tests.support.scratch import Scratch, finish, with_timeout

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Attestation, Mission


def run_of(world: Scratch, mission: Mission) -> Attestation:
    run = world.load(mission).attestation
    assert run is not None
    return run


def run_now(world: Scratch, mission: Mission, isolation: str = "none") -> Attestation:
    assert runs.validate(world.runtime(), mission.task_id, runs.Ask(isolation), wait_seconds=60)
    return run_of(world, mission)


class Gated:
    """A validator that says when it began, waits, and ends as it is told."""

    def __init__(self, world: Scratch, ending: str = "exit 0") -> None:
        self.began_path = world.root / "began"
        self.gate_path = world.root / "gate"
        os.mkfifo(self.began_path)
        os.mkfifo(self.gate_path)
        world.write(
            "check.sh",
            f"#!/bin/sh\necho $$ > {self.began_path}\nread x < {self.gate_path}\n{ending}\n",
            executable=True,
        )
        world.commit("Wait for the word")

    def began(self) -> int:
        """Wait until it runs; returns its process id."""
        return int(word_from(self.began_path))

    def let_go(self) -> None:
        let_go(self.gate_path)


def process_lines(mark: str) -> list[str]:
    """Command lines of living processes that hold ``mark``."""
    lines = [command_line(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [line for line in lines if mark in line]


# --- what an attestation holds


@pytest.mark.requirement("DONE-09", "DONE-21")
def test_an_attestation_binds_a_verdict_to_everything_that_it_depended_on(world: Scratch) -> None:
    mission = world.mission()
    run = run_now(world, mission)
    look = snapshot_workspace(world.home.mission(mission.task_id), world.load(mission))
    assert (run.verdict, run.cause, run.exit_status) == ("failed", "exit-nonzero", 1)
    assert (run.head, run.tree_digest, run.pin_digest) == (look.head, look.tree_digest, look.pin_digest)
    assert run.head == world.git("rev-parse", "HEAD")
    assert mission.contract is not None
    assert (run.contract_digest, run.pin_digest) == (mission.contract_digest, mission.contract.pin_digest)
    assert run.started_at < run.finished_at
    assert (run.isolation, run.leaked, run.score, run.tests) == ("none", (), None, None)
    output = Path(world.home.mission(mission.task_id).output_path(run.run_id)).read_bytes()
    assert output.endswith(b"answer.txt does not say 42\n")
    from hashlib import sha256

    assert run.output_digest == sha256(output).hexdigest()


@pytest.mark.requirement("DONE-05")
def test_a_report_on_the_last_line_is_held_against_the_exit_status(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\ncat report.json\n", executable=True)
    mission = world.mission(protect=("!report.json",))
    told = {}
    for report in (
        '{"passed": true, "score": 3, "summary": "fine"}',
        '{"passed": false}',
        '{"status": "failed", "passed": true}',
        '{"passed": true, "passed": false}',
        '{"passed": "true"}',
        '{"score": NaN}',
        '{"passed": true, "error": "3 cases were not run"}',
        '{"passed": true, "errors": [], "failed": 0}',
        '{\n  "passed": false,\n  "cases": {\n    "a": 1\n  }\n}\n',
        '{\n  "passed": true,\n  "passed": true\n}\n',
        '\x1b[31m{"passed": false}\x1b[0m\n',
        '\x1b[1m{\x1b[0m\n  \x1b[34m"passed"\x1b[0m: false\n\x1b[1m}\x1b[0m\n',
        'INFO the report: {"passed": false}',
        '{"passed": true} {"passed": false}',
        'INFO {done} {"of": {"passed": false}}',
        "int main() {\n  return 0;\n}\n",
        "no report",
    ):
        world.write("report.json", report)
        run = run_now(world, mission)
        told[report] = (run.verdict, run.cause)
    assert list(told.values()) == [
        ("passed", "exit-0"),
        ("failed", "contradiction"),
        ("error", "bad-report"),
        ("error", "bad-report"),
        ("error", "bad-report"),
        ("error", "bad-report"),
        ("error", "bad-report"),
        ("passed", "exit-0"),
        ("failed", "contradiction"),
        ("error", "bad-report"),
        ("failed", "contradiction"),
        ("failed", "contradiction"),
        ("failed", "contradiction"),
        ("failed", "contradiction"),
        ("passed", "exit-0"),
        ("passed", "exit-0"),
        ("passed", "exit-0"),
    ]


NO = """echo '{"passed": false}'"""


def flood(letter: str) -> str:
    """A command that prints more than is kept of an output."""
    return f"head -c 70000000 /dev/zero | tr '\\0' '{letter}'; echo"


@pytest.mark.requirement("DONE-05", "DONE-21")
@pytest.mark.parametrize(
    ("printing", "verdict", "cause"),
    [
        ("""printf '{"passed": false, "cases": "%0530000d"}' 0""", "failed", "contradiction"),
        (f"{flood('x')}; {NO}", "failed", "contradiction"),
        (f"""printf '{{"passed": false, "cases": "'; {flood("x")}""", "error", "bad-report"),
        (f"{NO}; {flood(chr(92) + 'n')}", "error", "bad-report"),
        (f"{NO}; printf '%6000000s' ''", "error", "bad-report"),
        (f"printf '100 %%\\r'; {NO}", "failed", "contradiction"),
        (f"{flood('x')}; echo fine", "passed", "exit-0"),
    ],
    ids=[
        "a-long-report",
        "a-flood-first",
        "a-cut-report",
        "newlines-after",
        "blanks-after",
        "progress",
        "no-report",
    ],
)
def test_a_report_is_read_whole_however_much_is_printed_or_the_run_is_an_error(
    world: Scratch, printing: str, verdict: str, cause: str
) -> None:
    world.write("check.sh", f"#!/bin/sh\n{printing}\nexit 0\n", executable=True)
    run = run_now(world, world.mission())
    assert (run.verdict, run.cause) == (verdict, cause)


@pytest.mark.requirement("DONE-05", "DONE-21")
def test_a_report_that_could_not_be_stored_is_no_pass(world: Scratch) -> None:
    world.write("check.sh", f"#!/bin/sh\nhead -c 3000000 /dev/zero\necho; {NO}\n", executable=True)
    mission = world.mission()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, hard))
    try:
        run = run_now(world, mission)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (run.verdict, run.cause) == ("error", "bad-report")
    assert "could not be stored" in run.summary


@pytest.mark.requirement("DONE-05")
def test_a_validator_that_reported_at_the_baseline_must_report_in_every_run(world: Scratch) -> None:
    world.write("check.sh", "#!/bin/sh\ncat said.txt\nexit $(cat status.txt)\n", executable=True)
    world.write("said.txt", '{"passed": false}')
    world.write("status.txt", "1")
    mission = world.mission(has_baseline=True, protect=("!said.txt", "!status.txt"))
    world.write("status.txt", "0")
    told = []
    for said in ("", '{"passed": true}\nbye', '{"score": 3}', '{"passed": true}'):
        world.write("said.txt", said)
        run = run_now(world, mission)
        told.append((run.verdict, run.cause))
    assert told == [*[("failed", "no-report")] * 3, ("passed", "exit-0")]

    amend_mission(world.runtime(), mission.task_id, lambda draft: replace(draft, timeout_seconds=77.0))
    world.write("said.txt", "")
    assert run_now(world, mission).cause == "no-report"


@pytest.mark.requirement("DONE-06")
def test_a_test_suite_that_became_smaller_does_not_pass(world: Scratch) -> None:
    world.write(
        "check.sh",
        '#!/bin/sh\n# pytest\nread p f < counts.txt\necho "== $p passed, $f failed in 0.01s =="\nexit $f\n',
        executable=True,
    )
    world.write("counts.txt", "3 2\n")
    mission = world.mission(
        validator_command="./check.sh # pytest", has_baseline=True, protect=("!counts.txt",)
    )
    contract = world.load(mission).contract
    assert contract is not None
    assert (contract.baseline_tests, contract.baseline_score) == (5, None)
    world.write("counts.txt", "4 0\n")
    run = run_now(world, mission)
    assert (run.verdict, run.cause, run.tests_passed) == ("failed", "fewer-tests", 4)
    world.write("counts.txt", "5 0\n")
    assert run_now(world, mission).verdict == "passed"

    changed = amend_mission(
        world.runtime(), mission.task_id, lambda draft: replace(draft, timeout_seconds=77.0)
    )
    amended = changed.mission.contract
    assert amended is not None
    assert (amended.timeout_seconds, amended.baseline_tests) == (77.0, 5)


@pytest.mark.requirement("DONE-06", "DONE-21")
@pytest.mark.parametrize("limit", [64 * 1024 * 1024, 500_000], ids=["kept-whole", "cut"])
def test_every_line_of_a_test_counts_wherever_it_stands(
    world: Scratch, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(
        runs,
        "run_limited",
        lambda argv, limits, **options: sandbox.run_limited(
            argv, limits, **(options | {"output_limit_bytes": limit})
        ),
    )
    world.write(
        "check.sh",
        "#!/bin/sh\n# go test -v\nseq $(cat lost.txt) 5000 | while read n; do\n"
        'printf "=== RUN   Test$n\\n    a line of its log: %0200d\\n--- PASS: Test$n (0.00s)\\n" 0; done\n'
        "test -e done.txt\n",
        executable=True,
    )
    world.write("lost.txt", "1")
    mission = world.mission(
        validator_command="./check.sh # go test",
        has_baseline=True,
        protect=("!lost.txt",),
    )
    contract = world.load(mission).contract
    assert contract is not None
    assert contract.baseline_tests == 5000
    world.write("done.txt", "")
    world.write("lost.txt", "301")
    run = run_now(world, mission)
    assert (run.verdict, run.cause, run.tests_passed) == ("failed", "fewer-tests", 4700)
    world.write("lost.txt", "1")
    assert run_now(world, mission).verdict == "passed"


# --- fresh


@pytest.mark.requirement("DONE-07")
@pytest.mark.parametrize("ending", ["echo more >> work.txt", "echo $$ > log.txt"])
def test_a_run_during_which_the_workspace_moved_completes_nothing_and_says_why(
    world: Scratch, ending: str
) -> None:
    world.write("check.sh", f"#!/bin/sh\n{ending}\nexit 0\n", executable=True)
    world.write("work.txt", "some\n")
    mission = world.mission(protect=("!work.txt", "!log.txt"))
    refusal = world.stop().refusal
    assert "passed, but the workspace, HEAD or a pinned file changed while it ran" in refusal
    assert "files that a run writes belong in an ignored path" in refusal
    assert not run_of(world, mission).is_fresh
    world.write(".gitignore", "work.txt\nlog.txt\n")
    world.git("rm", "-q", "--cached", "--ignore-unmatch", "work.txt", "log.txt")
    assert "is complete" in world.stop().person_message


@pytest.mark.requirement("DONE-07")
@pytest.mark.parametrize("move", ["a commit", "an edit", "a new file"])
def test_what_the_agent_does_while_the_validator_runs_makes_the_run_stale(world: Scratch, move: str) -> None:
    gated = Gated(world)
    mission = world.mission()
    process = world.begin_hook()
    assert process.stdin is not None
    process.stdin.write(json.dumps(world.payload()).encode())
    process.stdin.close()
    process.stdin = None
    gated.began()
    if move == "a commit":
        world.git("commit", "-q", "--allow-empty", "-m", "Another HEAD over the same tree")
    else:
        world.write("notes.md" if move == "an edit" else "new.txt", "moved\n")
    gated.let_go()
    answer = finish(process, b"")
    assert "changed while it ran" in answer.reason
    assert world.load(mission).phase == "running"


@pytest.mark.requirement("DONE-07", "DONE-14")
def test_a_pinned_file_that_is_changed_while_the_validator_runs_is_tampering(world: Scratch) -> None:
    gated = Gated(world)
    mission = world.mission()
    child = world.begin_hook()
    assert child.stdin is not None
    child.stdin.write(json.dumps(world.payload()).encode())
    child.stdin.close()
    child.stdin = None
    gated.began()
    with (world.project / "check.sh").open("a") as stream:
        stream.write("exit 0\n")
    gated.let_go()
    assert "(tampered)" in finish(child, b"").reason
    run = run_of(world, mission)
    assert (run.verdict, run.summary, run.is_fresh) == ("tampered", "check.sh", False)


@pytest.mark.requirement("DONE-07", "DONE-19")
def test_a_detached_run_that_passed_on_what_still_stands_there_completes_without_another_run(
    world: Scratch,
) -> None:
    gated = Gated(world)
    mission = world.mission()
    assert "(validation-running)" in world.stop(client=with_timeout(claude.CLIENT, 0.1)).refusal
    gated.began()
    running = runs.running_validation(world.runtime(), world.load(mission))
    assert running is not None
    assert not wait_for(running, 0), "still running, call again"
    gated.let_go()
    assert wait_for(running, 60)
    assert "is complete" in world.stop().person_message
    assert world.kinds(mission).count("validation_started") == 1


@pytest.mark.requirement("DONE-19")
def test_a_run_outlives_the_hook_that_started_it(world: Scratch) -> None:
    gated = Gated(world)
    mission = world.mission()
    process = world.begin_hook()
    assert process.stdin is not None
    process.stdin.write(json.dumps(world.payload()).encode())
    process.stdin.close()
    process.stdin = None
    gated.began()
    process.send_signal(signal.SIGKILL)
    finish(process, b"")
    running = runs.running_validation(world.runtime(), world.load(mission))
    assert running is not None
    assert running.pid != process.pid
    gated.let_go()
    assert wait_for(running, 60)
    assert run_of(world, mission).verdict == "passed"
    assert "is complete" in world.stop().person_message


@pytest.mark.requirement("DONE-19", "STATE-03")
def test_a_run_whose_supervisor_was_killed_is_lost_and_nothing_of_it_is_left(world: Scratch) -> None:
    gated = Gated(world, ending="exit 1")
    mission = world.mission()
    world.stop(client=with_timeout(claude.CLIENT, 0.1))
    validator = ProcessIdentity(gated.began(), "")
    running = runs.running_validation(world.runtime(), world.load(mission))
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    assert wait_for(running, 60)
    assert runs.running_validation(world.runtime(), world.load(mission)) is None
    assert world.kinds(mission)[-1] == "validation_lost"
    assert world.load(mission).attestation is None, "it is neither passed nor failed"

    assert "(validation-running)" in world.stop(client=with_timeout(claude.CLIENT, 0.1)).refusal
    assert gated.began() != validator.pid, "another run began"
    gated.let_go()
    again = runs.running_validation(world.runtime(), world.load(mission))
    assert again is None or wait_for(again, 60)
    assert run_of(world, mission).verdict == "failed"
    assert process_lines(str(gated.gate_path)) == []


@pytest.mark.case("DSK-07")
def test_a_validator_whose_two_keepers_were_killed_at_once_is_found_and_ended(world: Scratch) -> None:
    gated = Gated(world, ending="exit 1")
    mission = world.mission()
    world.stop(client=with_timeout(claude.CLIENT, 0.1))
    validator = identify(gated.began())
    running = runs.running_validation(world.runtime(), world.load(mission))
    assert validator is not None
    assert running is not None
    supervisor = identify(os.getsid(validator.pid))
    assert supervisor is not None
    assert supervisor != running
    os.kill(supervisor.pid, signal.SIGSTOP)  # so that it cannot end what it watches
    for keeper in (running, supervisor):
        os.kill(keeper.pid, signal.SIGKILL)
        assert wait_for(keeper, 60)
    assert is_alive(validator)
    assert runs.running_validation(world.runtime(), world.load(mission)) is None
    assert not is_alive(validator)
    assert process_lines(str(gated.gate_path)) == []


@pytest.mark.requirement("LIFE-02")
def test_no_run_is_begun_for_a_mission_that_ended(world: Scratch) -> None:
    mission = world.mission()
    lifecycle_commands.cancel(world.runtime(), mission.task_id)
    assert runs.validate(world.runtime(), mission.task_id, runs.Ask("none"), wait_seconds=60)
    assert world.kinds(mission)[-1] == "mission_cancelled"


# --- limits


@pytest.mark.requirement("DONE-20")
@pytest.mark.case("VAL-04")
@pytest.mark.parametrize(
    "check", ["sleep 300", "trap 'exit 0' TERM\nsleep 300 & wait", "trap '' TERM\nsleep 300 & sleep 300"]
)
def test_a_validator_over_its_limit_has_timed_out_whatever_it_says_and_none_of_it_is_left(
    world: Scratch, check: str
) -> None:
    mark = f"omx-marked-{os.getpid()}-{world.root.name}"
    world.write("check.sh", f"#!/bin/sh\nexport MARK\n{check}\n", executable=True)
    mission = world.mission(validator_command=f"exec sh ./check.sh {mark}", timeout_seconds=0.3)
    refusal = world.stop().refusal
    assert "error (timed-out): ended after its limit of 0.3 s" in refusal
    run = run_of(world, mission)
    assert (run.verdict, run.cause, run.exit_status) == ("error", "timed-out", None)
    assert process_lines(mark) == []


@pytest.mark.requirement("DONE-20")
def test_a_child_that_left_for_a_session_of_its_own_is_ended_and_named(world: Scratch) -> None:
    up = world.root / "up"
    os.mkfifo(up)
    world.write(
        "check.sh",
        f"#!/bin/sh\nsetsid sh -c 'echo up > {up}; exec sleep 301' &\ncat {up}\nexit 1\n",
        executable=True,
    )
    mission = world.mission()
    run = run_now(world, mission)
    assert run.verdict == "failed"
    assert len(run.leaked) == 1
    assert "sleep 301" in run.leaked[0]
    assert process_lines("sleep 301") == []


@pytest.mark.requirement("DONE-21")
def test_output_past_the_limit_is_cut_and_the_end_still_decides_what_is_shown(world: Scratch) -> None:
    world.write(
        "check.sh",
        "#!/bin/sh\nyes 'a long line of output' | head -n 100000\necho the end\nexit 1\n",
        executable=True,
    )
    mission = world.mission()
    refusal = world.stop().refusal
    assert "| the end" in refusal
    assert len(refusal) < 5000
    size = os.path.getsize(world.home.mission(mission.task_id).output_path(run_of(world, mission).run_id))
    assert size > 2_000_000, "kept whole"


# --- whose environment

SHOW = '#!/bin/sh\nenv | sort > "$OMX_SHOWN"\nls -d "$TMPDIR" >> "$OMX_SHOWN"\nexit 1\n'


def shown(path: Path) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in path.read_text().splitlines())


@pytest.mark.requirement("DONE-03", "DONE-04", "SESS-12")
def test_a_validator_gets_the_owners_environment_and_nothing_of_the_agents(world: Scratch) -> None:
    world.write("check.sh", SHOW, executable=True)
    path = world.root / "shown"
    world.environ |= {
        "OMX_SHOWN": str(path),
        "DECLARED": "by the owner",
        "UNDECLARED": "x",
        "SERVICE_API_KEY": "secret",
        "LC_ALL": "tr_TR",
    }
    mission = world.mission(environment_names=("OMX_SHOWN", "DECLARED"))
    agents = {
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "x",
        "CODEX_SESSION_ID": "x",
        "GEMINI_CLI": "1",
        "OMX_AUTORESEARCH_TASK": "x:y",
        "DECLARED": "by the agent",
        "PATH": f"{world.project}:{os.environ['PATH']}",
        "PYTHONPATH": str(world.project),
        "TMPDIR": str(world.project),
    }
    assert world.hook(world.payload(), env=agents).reason
    seen = shown(path)
    assert seen["DECLARED"] == "by the owner"
    assert seen["PATH"] == world.environ["PATH"]
    assert seen["LC_ALL"] == "C.UTF-8"
    assert not {"UNDECLARED", "SERVICE_API_KEY", "PYTHONPATH"} & set(seen)
    assert [name for name in seen if name.startswith(("CLAUDE", "CODEX", "GEMINI", "OMX_AUTO"))] == [RUN_MARK]
    assert seen["TMPDIR"].startswith(str(world.home_path))
    assert seen["TMPDIR"] in seen, "it was there while the validator ran"
    assert not os.path.exists(seen["TMPDIR"]), "nothing of one run is left for the next"
    assert seen["PYTHONPYCACHEPREFIX"].startswith(os.path.dirname(seen["TMPDIR"]))
    assert seen["HOME"] == world.environ["HOME"]
    assert mission.contract is not None
    assert "SERVICE_API_KEY" not in mission.contract.environment


@pytest.mark.requirement("DONE-03")
def test_a_validator_may_have_a_home_of_its_own(world: Scratch) -> None:
    world.write("check.sh", SHOW, executable=True)
    path = world.root / "shown"
    world.environ["OMX_SHOWN"] = str(path)
    world.mission(environment_names=("OMX_SHOWN",), isolate_home=True)
    world.stop()
    assert shown(path)["HOME"] == os.path.dirname(shown(path)["TMPDIR"])


# --- approval and isolation


@needs_bubblewrap
@pytest.mark.requirement("DONE-17")
def test_without_an_approval_a_validator_runs_with_the_agents_rights_and_its_verdict_counts(
    world: Scratch,
) -> None:
    outside = world.root / "outside"
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    world.write(
        "check.sh",
        f"#!/bin/sh\necho x > {outside}\n"
        "echo x > inside.txt && rm inside.txt && echo wrote inside\n"
        f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\" 2>&1 && echo connected\n"
        "test -e answer.txt\n",
        executable=True,
    )
    mission = world.mission(protect=("!inside.txt", "!answer.txt"))
    shutil.rmtree(world.home.approved_path)
    refusal = world.stop().refusal
    assert "| wrote inside" in refusal
    assert "| connected" not in refusal
    assert not outside.exists()
    assert run_of(world, mission).isolation == "bubblewrap"
    world.write("answer.txt", "42\n")
    assert "is complete" in world.stop().person_message
    assert world.completion(world.load(mission))["attestation"]["isolation"] == "bubblewrap"
    server.close()


@needs_bubblewrap
@pytest.mark.requirement("DONE-17")
def test_an_approval_is_of_one_contract_with_one_set_of_pins(world: Scratch) -> None:
    mission = world.mission()
    assert runs.permission(world.runtime(), mission).isolation == "none"
    other_contract = replace(mission, contract_digest="0" * 64)
    assert runs.permission(world.runtime(), other_contract).isolation == "bubblewrap"
    assert mission.contract is not None
    other_pins = replace(mission, contract=replace(mission.contract, pin_digest="0" * 64))
    assert runs.permission(world.runtime(), other_pins).isolation == "bubblewrap"
    elsewhere = replace(mission, project_path=str(world.root))
    assert runs.permission(world.runtime(), elsewhere).isolation == "bubblewrap"
    other_task = replace(mission, task_id="20260102-030405-other")
    assert runs.permission(world.runtime(), other_task).isolation == "bubblewrap"
    nobody = replace(world.runtime(), home=StateHome(str(world.root / "empty")))
    assert runs.permission(nobody, mission).isolation == "bubblewrap"


@needs_bubblewrap
@pytest.mark.requirement("DONE-17")
def test_a_client_in_a_sandbox_needs_an_approval_that_says_so(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = world.mission()
    runtime = world.runtime()
    assert runs.permission(runtime, mission, is_sandboxed=True).isolation == "bubblewrap"
    lifecycle_commands.approve(runtime, mission.task_id, is_unsandboxed=True)
    assert runs.permission(runtime, mission, is_sandboxed=True).isolation == "none"
    lifecycle_commands.approve(runtime, mission.task_id)
    take_box(monkeypatch, "none")
    permit = runs.permission(runtime, mission, is_sandboxed=True)
    assert not permit.may_run
    assert permit.why.startswith("the client is sandboxed")
    assert "bubblewrap is missing" in permit.why
    assert "(install the package bubblewrap)" in permit.why
    assert permit.command == f"omx-autoresearch approve {mission.task_id} --unsandboxed"


@needs_bubblewrap
@pytest.mark.requirement("DONE-17")
def test_a_stop_of_a_sandboxed_client_is_judged_in_a_sandbox(world: Scratch) -> None:
    from omx_autoresearch.agents.registry import parse_bytes

    mission = world.mission()
    event = parse_bytes("claude", json.dumps(world.payload()).encode(), {})
    answer_stop(world.runtime(), claude.CLIENT, replace(event, is_sandboxed=True))
    assert run_of(world, mission).isolation == "bubblewrap"


@needs_bubblewrap
@pytest.mark.requirement("DONE-17", "DONE-22")
def test_a_sandbox_that_does_not_start_is_an_error_and_no_verdict(
    world: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission = world.mission()

    def broken(argv: tuple[str, ...], *_: object, **__: object) -> tuple[str, ...]:
        return ("/usr/bin/bwrap", "--bind", "/no/such/folder", "/no/such/folder", "--", *argv)

    monkeypatch.setattr(sandbox, "_bubblewrap_argv", broken)
    run = run_now(world, mission, isolation="bubblewrap")
    assert (run.verdict, run.cause, run.isolation) == ("error", "sandbox-failed", "none")


# --- outside git


@pytest.mark.requirement("DONE-23")
def test_a_mission_is_held_and_completed_where_there_is_no_git(world: Scratch) -> None:
    shutil.rmtree(world.project / ".git")
    mission = world.mission()
    assert world.stop().refusal
    world.write("answer.txt", "42\n")
    assert "is complete" in world.stop().person_message
    run = run_of(world, mission)
    assert (run.head, len(run.tree_digest)) == ("", 64)


@pytest.mark.requirement("DONE-23")
def test_our_own_files_are_no_change_of_the_workspace(world: Scratch) -> None:
    mission = world.mission()
    before = snapshot_workspace(world.home.mission(mission.task_id), mission).tree_digest
    world.write(".omx/anything.txt", "x\n")
    assert snapshot_workspace(world.home.mission(mission.task_id), mission).tree_digest == before
    world.write("other.txt", "x\n")
    assert snapshot_workspace(world.home.mission(mission.task_id), mission).tree_digest != before


def test_waiting_for_a_process_that_is_gone_ends_at_once() -> None:
    gone = ProcessIdentity(2**22 - 1, "never")
    assert not is_alive(gone)
    assert wait_for(gone, 60)


@pytest.mark.requirement("GATE-23")
@pytest.mark.case("HIO-13")
def test_a_run_that_began_after_a_stop_is_taken_for_it_where_nothing_moved(world: Scratch) -> None:
    mission = world.mission()
    runtime, folder = world.runtime(), world.home.mission(mission.task_id)
    look, since = snapshot_workspace(folder, mission), runtime.now()
    first = run_now(world, mission)

    def taken(look_: WorkspaceSnapshot, since_: str) -> bool:
        """Whether a stop that looked and began so is answered by the run that there is."""
        before = run_of(world, mission).run_id
        ask = runs.Ask("none", look=look_, since=since_)
        assert runs.validate(runtime, mission.task_id, ask, wait_seconds=60)
        return run_of(world, mission).run_id == before

    assert taken(look, since)
    assert run_of(world, mission).run_id == first.run_id
    assert not taken(look, ""), "who asks for a run of now gets one"
    assert not taken(look, runtime.now()), "it began before this stop"
    world.write("notes.md", "moved\n")
    assert not taken(snapshot_workspace(folder, mission), since), "it saw another workspace"
