"""The harness itself, proved with a hook of its own: a refusal reaches the model of every agent CLI."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.support.agent_clis import AGENT_CLIS, CLAUDE, CODEX, AgentCli
from tests.clients.support.codex_trust import listed_hooks, trust_hooks
from tests.clients.support.terminal import ClaudeTerminal
from tests.clients.support.wire_formats import Json, Turn

if TYPE_CHECKING:
    from tests.clients.support.scripted_model import Request
    from tests.clients.support.stage import OpenStage, Stage

pytestmark = pytest.mark.client
PROBE = Path(__file__).parent / "support" / "hook_probe.py"


def set_probe(stage: Stage, log_path: Path, refusals: int) -> None:
    """Register the probe for stops and prompts; Codex gets the trust that a person would give in its dialog."""

    def line(label: str, count: int) -> str:
        return shlex.join([sys.executable, "-I", str(PROBE), str(log_path), label, str(count)])

    cli = stage.cli
    cli.register(stage.place, {cli.stop_event: line("stop", refusals), cli.prompt_event: line("prompt", 0)})
    if cli is CODEX:
        trust_hooks(stage)


def read_log(log_path: Path) -> list[Json]:
    """What the probe saw."""
    return [json.loads(line) for line in log_path.read_text().splitlines()]


@pytest.mark.parametrize("cli", AGENT_CLIS, ids=lambda cli: cli.name)
def test_a_client_that_is_not_installed_says_how_to_get_it(cli: AgentCli, tmp_path: Path) -> None:
    assert cli.missing(tmp_path).endswith("is not installed; get it with .ci/clients")


def test_a_stop_refused_twice_reaches_the_model_twice_and_the_third_ends_the_run(
    stage: Stage, tmp_path: Path
) -> None:
    set_probe(stage, tmp_path / "log", refusals=2)
    run = stage.run(
        "Please finish the mission.",
        stage.cli.does("I will run a command.", "echo RAN-HERE > ran && cat ran"),
        Turn("I am done (1).", needs="RAN-HERE"),
        stage.cli.does("Working more.", "echo again", needs="PROBE-stop-0"),
        Turn("I am done (2)."),
        Turn("I am done (3).", needs="PROBE-stop-1"),
    )
    assert (run.exit_code, run.hit_limit) == (0, False), run
    stops = [row for row in read_log(tmp_path / "log") if row["label"] == "stop"]
    assert [row["answer"] for row in stops] == ["PROBE-stop-0", "PROBE-stop-1", ""]
    assert (run.first_turn_with("PROBE-stop-0"), run.first_turn_with("PROBE-stop-1")) == (2, 4)
    assert len(run.turns) == 5
    assert (stage.place.workspace / "ran").read_text() == "RAN-HERE\n"


def test_the_client_finds_no_way_out_of_its_namespace(open_stage: OpenStage) -> None:
    stage = open_stage(CLAUDE)
    routes = stage.owner("cat", "/proc/net/route").stdout.splitlines()
    assert len(routes) == 1, "only the heading: there is no route"


def test_a_turn_may_use_what_an_earlier_command_printed(claude_stage: Stage) -> None:
    def use(request: Request) -> Turn:
        return claude_stage.cli.does("Using it.", f"echo {request.find(r'token=([a-z0-9]+)')} > used")

    run = claude_stage.run("Go.", claude_stage.cli.does("Look.", "echo token=abc123"), use, Turn("Done."))
    assert (run.exit_code, (claude_stage.place.workspace / "used").read_text()) == (0, "abc123\n")


def test_a_turn_that_does_not_fit_fails_the_run(claude_stage: Stage) -> None:
    with pytest.raises(AssertionError, match="NEVER SAID"):
        claude_stage.run("Go.", Turn("Done.", needs="NEVER SAID"))


def test_what_a_killed_client_started_is_gone_too(claude_stage: Stage) -> None:
    def kill(_: Request) -> Turn:
        claude_stage.kill_client()
        return Turn("Nobody reads this.")

    run = claude_stage.run("Go.", claude_stage.cli.does("Leave one.", "setsid -f sleep 600; echo left"), kill)
    assert (run.exit_code, run.hit_limit) == (-9, False)
    assert claude_stage.living_processes() == []


def test_a_client_that_does_not_end_is_killed_at_its_limit(claude_stage: Stage, tmp_path: Path) -> None:
    run = claude_stage.run("Go.", claude_stage.cli.does("Wait for nothing.", "sleep 600"), limit_seconds=5)
    assert (run.exit_code, run.hit_limit) == (-9, True)


def test_a_killed_session_is_resumed_with_its_conversation(stage: Stage) -> None:
    def kill(_: Request) -> Turn:
        return stage.kill_once_saved("PINEAPPLE")

    stage.run("Remember PINEAPPLE.", stage.cli.does("Noted.", "echo noted"), kill)
    run = stage.run("What was it?", Turn("The fruit.", needs="PINEAPPLE"), resume=True)
    assert run.exit_code == 0, run


def test_codex_lists_a_hook_as_untrusted_until_its_digest_is_written(open_stage: OpenStage) -> None:
    stage = open_stage(CODEX)
    stage.cli.register(stage.place, {"Stop": "true"})
    assert [hook["trustStatus"] for hook in listed_hooks(stage)] == ["untrusted"]
    trust_hooks(stage)
    assert [hook["trustStatus"] for hook in listed_hooks(stage)] == ["trusted"]


def test_a_person_at_the_terminal_sees_the_refusal(claude_stage: Stage, tmp_path: Path) -> None:
    set_probe(claude_stage, tmp_path / "log", refusals=1)
    with ClaudeTerminal(
        claude_stage, Turn("I am done."), Turn("Really done.", needs="PROBE-stop-0")
    ) as terminal:
        terminal.enter("Please finish the mission.")
        screen = terminal.wait_for("Really done.")
    assert "PROBE-stop-0" in screen
    assert terminal.script.misfits == []
