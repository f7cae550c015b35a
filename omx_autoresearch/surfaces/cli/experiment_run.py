"""``experiment run``: an agent is driven through trials; and how any verb works under a person's Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.surfaces.cli.caller import json_option
from omx_autoresearch.surfaces.cli.display import print_json, say
from omx_autoresearch.surfaces.cli.error_handler import INTERRUPTED
from omx_autoresearch.surfaces.cli.experiment import Meant, experiment_argument, meant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TextIO

    from omx_autoresearch.experiments.controller import AutoresearchController
    from omx_autoresearch.experiments.driver import Agent, DriveEnd
    from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, ExperimentState
    from omx_autoresearch.surfaces.cli.experiment_display import LineProgress, LiveProgress

LINE_LIMIT = 64 * 1024
"""Characters of one line of a file of hypotheses."""
FAILED_AGENT = 7
"""The exit status where sessions in a row brought nothing: the agent's command could not do its work."""


@click.command("run")
@experiment_argument
@click.option(
    "--agent",
    required=True,
    metavar="COMMAND",
    help="Runs in the candidate's worktree with the prompt on stdin; fills in {prompt}, {prompt_file}, {workspace}.",
)
@click.option("--trials", type=click.IntRange(1), help="At most so many now.  [default: as the budget has]")
@click.option(
    "--hypotheses",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Try these, one a line (text, or a JSON object with id, description, direction); - is stdin.",
)
@click.option(
    "--max-failures",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Sessions in a row without a candidate after which it ends.",
)
@click.option("--no-verify", is_flag=True, help="Leave the fresh check of base against final out.")
@json_option
def experiment_run(
    named: str, agent: str, trials: int | None, hypotheses: TextIO | None, as_json: bool, **more: Any
) -> int:
    """Drive an agent: each trial is one fresh headless session with exactly one hypothesis.

    Ctrl-C ends this run politely: the agent is stopped and the trial rolled back; `run` again goes on. A second one
    does not wait. What was accepted is checked freshly against the base at the end.
    """
    from omx_autoresearch.experiments.driver import checked_line, drive, require_startable

    found = meant(named, is_open=True)
    found.require_owner("run")
    line = checked_line(agent)
    # before the base is measured, which may take hours
    require_startable(line, agent_of(found, found.load(), line).environ, found.workspace_path())
    given = read_hypotheses(hypotheses) if hypotheses is not None else None
    with working(found, as_json=as_json) as (controller, progress):
        if controller.state.phase == "started":
            controller.establish_baseline()
        end = drive(
            controller,
            agent_of(found, controller.state, line),
            trials=trials or 0,
            hypotheses=given,
            failures_in_a_row=more["max_failures"],
        )
        if not more["no_verify"] and end.reason not in ("cancelled", "interrupted"):
            verify_if_needed(controller, progress)
        state = controller.state
    return _told(found, state, end, as_json=as_json)


def _told(found: Meant, state: ExperimentState, end: DriveEnd, *, as_json: bool) -> int:
    from omx_autoresearch.experiments.judge.summary import quoted_claim
    from omx_autoresearch.surfaces.experiment_documents import ExperimentRunDocument

    document = found.view()
    if as_json:
        print_json(ExperimentRunDocument(end.trials, end.reason, end.detail, document))
    else:
        say(end.detail[:1].upper() + end.detail[1:] + ".")
        quoted = quoted_claim(state)
        say(quoted.sentence, "green" if quoted.has_gain else "")
        for warning in quoted.warnings:
            say(warning, "yellow")
        say(f"  next: {document.next}", "dim")
    return {"cancelled": INTERRUPTED, "interrupted": INTERRUPTED, "agent": FAILED_AGENT}.get(end.reason, 0)


def agent_of(found: Meant, state: ExperimentState, line: str) -> Agent:
    """The agent that a command line is: in the owner's environment, without anybody's session."""
    from omx_autoresearch.agents.headless_sessions import fresh_environment, read_report
    from omx_autoresearch.experiments.driver import Agent
    from omx_autoresearch.experiments.views import frozen_paths

    runtime = found.caller.runtime
    return Agent(line, fresh_environment(runtime.environ), read_report, frozen_paths(runtime, state))


def verify_if_needed(controller: AutoresearchController, progress: LineProgress | LiveProgress) -> None:
    """Measure base against final, where something was accepted that no check is about yet."""
    state = controller.state
    if state.incumbent_commit in (state.base_commit, state.claim_commit):
        return
    progress.note("measuring base against final, freshly")
    controller.verify_claim()


def read_hypotheses(source: TextIO) -> list[ExperimentHypothesis]:
    """The hypotheses of a file, one a line; empty lines and those that begin with # are none.

    Raises:
        UsageError: a line is too long, or no object of the known fields; names its number.
    """
    found = []
    for number, line in enumerate(source, start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            found.append(_hypothesis(text, number))
    if not found:
        raise UsageError(
            "the file holds no hypothesis",
            next_step="one a line, text or JSON, such as: use a set, not a list",
        )
    return found


def _hypothesis(text: str, number: int) -> ExperimentHypothesis:
    from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, checked_hypothesis
    from omx_autoresearch.foundation.input_validation import validated

    if len(text) > LINE_LIMIT:
        raise UsageError(
            f"line {number} has {len(text)} characters; at most {LINE_LIMIT} are taken",
            next_step="shorten the hypothesis",
        )
    if not text.startswith("{"):
        return checked_hypothesis(ExperimentHypothesis(f"h-{number}", text))
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"line {number} is no JSON object: {error}", next_step="mend that line") from None
    value.setdefault("id", f"h-{number}")
    where = f"line {number} of the hypotheses"
    return checked_hypothesis(validated(ExperimentHypothesis, value, where=where, error=UsageError))


# --- under Ctrl-C


@contextlib.contextmanager
def working(
    found: Meant, *, as_json: bool, is_row_answer: bool = False, **resume: Any
) -> Iterator[tuple[AutoresearchController, LineProgress | LiveProgress]]:
    """A controller at work on an experiment, shown and interruptible."""
    from omx_autoresearch.experiments.controller import AutoresearchController

    controller = AutoresearchController.resume(found.experiment_id, runtime=found.caller.runtime, **resume)
    with attended(controller, as_json=as_json, is_row_answer=is_row_answer) as progress:
        yield controller, progress


@contextlib.contextmanager
def attended(
    controller: AutoresearchController, *, as_json: bool, is_row_answer: bool = False
) -> Iterator[LineProgress | LiveProgress]:
    """Show the work of a controller, interrupt it on Ctrl-C, close it at the end."""
    from omx_autoresearch.surfaces.cli.experiment_display import progress_for

    with (
        controller,
        progress_for(lambda: controller.state, as_json=as_json, is_row_answer=is_row_answer) as progress,
    ):
        controller.subscribe(progress)
        with interruptible(controller, progress):
            yield progress


@contextlib.contextmanager
def interruptible(
    controller: AutoresearchController, progress: LineProgress | LiveProgress
) -> Iterator[None]:
    """The first Ctrl-C ends the step and waits for the rollback, the second does not wait, a third ends the process."""

    def first(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, second)
        progress.note(
            "interrupted: what is under way is rolled back, the experiment can go on; Ctrl-C again does not wait"
        )
        controller.interrupt()

    def second(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
