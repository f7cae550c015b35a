"""Driving an agent: whatever a session does, its trial ends in a defined row, and nothing of it is left behind."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.agents.headless_sessions import fresh_environment, read_report
from omx_autoresearch.experiments.driver import Agent, DriveEnd, drive, require_startable
from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, ExperimentLimits, TrialRow
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.system.processes import ProcessIdentity, is_alive, wait_for
from tests.experiments.toys import begun, git, toy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omx_autoresearch.experiments.controller import AutoresearchController

BETTER = "printf '#!/bin/sh\\necho 40\\n' > work.sh"


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[AutoresearchController]:
    """A toy with its baseline."""
    with begun(toy(tmp_path / "toy")) as controller:
        yield controller


def played(
    controller: AutoresearchController, script: str, *, trials: int = 1, **more: Any
) -> tuple[DriveEnd, TrialRow]:
    """Drive an agent that is a shell script; the end, and the last row."""
    end = drive(controller, agent(script), trials=trials, **more)
    return end, controller.state.rows[-1]


def agent(script: str, **environ: str) -> Agent:
    """An agent that is a shell script."""
    return Agent(script, {"PATH": os.environ["PATH"], **environ}, read_report, ("measure.sh", "check.sh"))


def kept(controller: AutoresearchController, name: str) -> str:
    """A file of the experiment's folder."""
    with open(os.path.join(controller.session_dir(), name), encoding="utf-8") as source:
        return source.read()


@pytest.mark.requirement("DRIVE-02")
@pytest.mark.requirement("DRIVE-06")
def test_the_agent_works_in_the_candidate_with_the_prompt_on_stdin(
    experiment: AutoresearchController, tmp_path: Path
) -> None:
    script = (
        f"cat > {tmp_path}/stdin; cp {{prompt_file}} {tmp_path}/file; pwd > {tmp_path}/cwd;"
        f" echo {{workspace}} > {tmp_path}/workspace; {BETTER}; echo words >&2;"
        " echo; echo 'DIRECTION: less work'; echo 'HYPOTHESIS: print less'"
    )
    end, row = played(experiment, script)
    assert (end.trials, end.reason, row.status) == (1, "trials", "accepted")
    assert (row.description, row.direction, row.cost_usd) == ("print less", "less work", 0.0)
    prompt = (tmp_path / "stdin").read_text()
    assert "- Metric: `ms`" in prompt
    assert prompt == (tmp_path / "file").read_text() == kept(experiment, "prompts/0001.md")
    assert (tmp_path / "cwd").read_text() == (tmp_path / "workspace").read_text()
    assert Path((tmp_path / "cwd").read_text().strip()).name == "candidate"
    assert "HYPOTHESIS: print less" in kept(experiment, "outputs/agent-0001.log")
    assert "words" in kept(experiment, "outputs/agent-0001.log"), "both streams are kept whole"


@pytest.mark.requirement("DRIVE-03")
def test_the_reported_cost_is_charged_even_where_the_session_failed(
    experiment: AutoresearchController,
) -> None:
    report = {
        "type": "result",
        "is_error": True,
        "result": "Out of turns.",
        "total_cost_usd": 0.25,
        "usage": {"input_tokens": 7},
    }
    _, row = played(experiment, f"echo '{json.dumps(report)}'; exit 1")
    assert (row.status, row.reason_code, row.cost_usd) == ("failed", "agent_failed", 0.25)
    assert (row.metadata["client"], row.metadata["tokens"]) == ("claude", {"input_tokens": 7})
    assert "Out of turns." in row.reason
    assert experiment.state.usage.cost_usd == 0.25
    _, row = played(experiment, f"{BETTER}; echo '{json.dumps({**report, 'is_error': False})}'")
    assert (row.status, experiment.state.usage.cost_usd) == ("accepted", 0.5)


@pytest.mark.slow
@pytest.mark.requirement("DRIVE-07")
@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("exit 3", "failed", "agent_failed"),
        ("kill -9 $$", "failed", "agent_failed"),
        ("no-such-agent --go; exit $?", "failed", "agent_failed"),
        ("true", "rejected", "no_change"),
        (f"{BETTER}; exit 1", "failed", "agent_failed"),
        ("head -c 100000 /dev/urandom; " + BETTER, "accepted", "improved"),
        ('printf \'{"type":"result","is_error":true}\\n\'; ' + BETTER, "failed", "agent_failed"),
        ("echo 'echo METRIC ms=1' > measure.sh", "rejected", "tampered"),
        (
            "git commit -qam x 2>/dev/null; git checkout -q -b mine 2>/dev/null; " + BETTER,
            "accepted",
            "improved",
        ),
    ],
)
def test_whatever_a_session_does_its_trial_ends_in_a_row_of_its_own(
    experiment: AutoresearchController, script: str, status: str, code: str
) -> None:
    _, row = played(experiment, script)
    assert (row.status, row.reason_code) == (status, code), row.reason
    candidate = os.path.join(experiment.session_dir(), "work", "candidate")
    assert git(candidate, "status", "--porcelain") == "", "the worktree stands at the incumbent again"  # type: ignore[arg-type]


@pytest.mark.requirement("DRIVE-07")
def test_a_session_that_hangs_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    with begun(toy(tmp_path / "toy"), hypothesis_timeout_seconds=1.0) as experiment:
        script = f"sleep 600 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/agent; sleep 600; wait"
        _, row = played(experiment, script)
        assert (row.status, row.reason_code) == ("failed", "timed_out")
        for name in ("child", "agent"):
            assert not os.path.exists(f"/proc/{(tmp_path / name).read_text().strip()}")


@pytest.mark.requirement("DRIVE-06")
def test_the_controller_knows_the_agents_process_while_it_works(
    experiment: AutoresearchController, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    seen: list[ProcessIdentity] = []

    def look(event: dict[str, Any]) -> None:
        if event["type"] == "agent_started":
            seen.append(ProcessIdentity(event["pid"], event["process_started"]))
            assert is_alive(seen[0])
            threading.Thread(target=gate.write_text, args=("go\n",)).start()

    experiment.subscribe(look)
    _, row = played(experiment, f"read line < {gate}; {BETTER}")
    assert row.status == "accepted"
    assert len(seen) == 1
    assert wait_for(seen[0], 5)
    assert experiment.state.agent_pid == 0


@pytest.mark.requirement("DRIVE-06")
def test_a_session_inherits_no_session_of_anybody() -> None:
    environ = {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "k",
        "CLAUDECODE": "1",
        "CLAUDE_CODE_SESSION_ID": "s",
        "CODEX_THREAD_ID": "t",
        "GEMINI_CLI": "1",
        "AI_AGENT": "x_agent",
        "OMX_AUTORESEARCH_TASK": "t:n",
        "OMX_AUTORESEARCH_HOME": "/h",
    }
    assert fresh_environment(environ) == {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "k",
        "OMX_AUTORESEARCH_HOME": "/h",
    }


@pytest.mark.requirement("DRIVE-07")
def test_a_command_that_cannot_be_started_costs_no_trial(experiment: AutoresearchController) -> None:
    for script in ("no-such-agent --go", "./nothing.sh", "/no/such/agent -p {prompt}", "./"):
        with pytest.raises(UsageError, match="no trial began"):
            drive(experiment, agent(script))
    assert experiment.state.usage.trials == 0
    assert experiment.state.phase == "ready"


@pytest.mark.requirement("DRIVE-07")
def test_a_line_that_only_the_shell_can_follow_ends_the_loop_at_its_first_failed_start(
    experiment: AutoresearchController,
) -> None:
    end = drive(experiment, agent("cd . && no-such-agent"), failures_in_a_row=3)
    assert (end.trials, end.reason) == (1, "agent")
    assert "not found" in end.detail
    assert "fix the agent's command" in end.detail


@pytest.mark.parametrize("script", ["exit 0", "true", "no-such-agent || true", "X=1 true", ": {prompt_file}"])
def test_what_a_shell_can_start_is_let_through(tmp_path: Path, script: str) -> None:
    require_startable(script, {"PATH": os.environ["PATH"]}, str(tmp_path))


@pytest.mark.requirement("DRIVE-07")
def test_sessions_in_a_row_without_a_candidate_end_the_loop(experiment: AutoresearchController) -> None:
    end = drive(experiment, agent("exit 9"), failures_in_a_row=3)
    assert (end.trials, end.reason) == (3, "agent")
    assert "3 sessions in a row produced no candidate" in end.detail
    assert "exit status 9" in end.detail
    assert experiment.state.phase == "ready", "it can go on once a person has looked"


@pytest.mark.requirement("DRIVE-07")
def test_a_session_with_a_candidate_starts_the_count_anew(
    experiment: AutoresearchController, tmp_path: Path
) -> None:
    slower = "printf '#!/bin/sh\\necho 200\\n' > work.sh"
    script = f"echo x >> {tmp_path}/n; test $(($(wc -l < {tmp_path}/n) % 3)) -ne 0 || {{ {slower}; exit 0; }}; exit 9"
    end = drive(experiment, agent(script), trials=8, failures_in_a_row=3)
    assert (end.trials, end.reason) == (8, "trials")


def test_given_hypotheses_are_tried_in_order_and_end_the_loop(experiment: AutoresearchController) -> None:
    given = [ExperimentHypothesis("a", "First idea."), ExperimentHypothesis("b", "Second idea.", "kind")]
    end = drive(experiment, agent("echo 'HYPOTHESIS: my own'"), hypotheses=given)
    assert (end.trials, end.reason) == (2, "hypotheses")
    rows = experiment.state.rows
    assert [(row.hypothesis_id, row.description) for row in rows] == [
        ("a", "First idea."),
        ("b", "Second idea."),
    ]
    assert rows[0].metadata["stated"] == "my own"
    assert "> Second idea." in kept(experiment, "prompts/0002.md")
    assert "| 1 | First idea. | rejected: no change |" in kept(experiment, "prompts/0002.md")


@pytest.mark.requirement("DRIVE-07")
def test_a_budget_ends_the_loop(tmp_path: Path) -> None:
    with begun(toy(tmp_path / "toy"), limits=ExperimentLimits(trials=2)) as experiment:
        end = drive(experiment, agent(BETTER), failures_in_a_row=9)
        assert (end.trials, end.reason) == (2, "completed")
        assert "budget of trials spent" in end.detail
    with begun(toy(tmp_path / "other"), limits=ExperimentLimits(disk_bytes=1)) as experiment:
        end = drive(experiment, agent(BETTER))
        assert (end.trials, end.reason) == (0, "completed")


@pytest.mark.requirement("DRIVE-11")
def test_a_cancel_ends_the_session_and_the_loop(experiment: AutoresearchController, tmp_path: Path) -> None:
    def cancel(event: dict[str, Any]) -> None:
        if event["type"] == "agent_started":
            experiment.cancellation.trigger("cancelled")

    experiment.subscribe(cancel)
    end = drive(experiment, agent(f"{BETTER}; echo $$ > {tmp_path}/pid; sleep 600"))
    assert (end.trials, end.reason) == (1, "cancelled")
    assert experiment.state.rows[-1].reason_code == "cancelled"
    assert (experiment.state.phase, experiment.state.completed_reason) == ("completed", "cancelled")
    assert experiment.state.incumbent_commit == experiment.state.base_commit


def test_a_prompt_that_does_not_fit_a_command_line_fails_its_trial_in_words(
    experiment: AutoresearchController,
) -> None:
    given = [ExperimentHypothesis("a", "x" * 20_000 + "'" * 0)]
    long = Agent("true {prompt} " + "{prompt} " * 10, {"PATH": os.environ["PATH"]}, read_report)
    drive(experiment, long, hypotheses=given)
    row = experiment.state.rows[-1]
    assert (row.status, row.reason_code) == ("failed", "agent_failed")
    assert "command line" in row.reason
