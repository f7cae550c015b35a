"""Trials: ``run`` drives an agent through them, ``trial`` judges one change, ``wait`` waits for one.

Any verb that has a controller at work does so under :func:`working`, which shows it and takes a person's Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.agents.headless_sessions import fresh_environment, read_report
from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, checked_hypothesis
from omx_autoresearch.experiments.judge.summary import quoted_claim
from omx_autoresearch.experiments.views import ExperimentView, frozen_paths
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.input_validation import validated
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.journal.safe_files import replace_file
from omx_autoresearch.surfaces.cli.console import (
    CHECK_SAID_NO,
    INTERRUPTED,
    Document,
    json_option,
    print_json,
    say,
    verb,
)
from omx_autoresearch.surfaces.cli.experiment import (
    Meant,
    experiment_argument,
    meant,
    progress_for,
    trial_line,
    why_lines,
)
from omx_autoresearch.surfaces.cli.status import WAIT_SECONDS
from omx_autoresearch.surfaces.experiment_documents import ExperimentWaitDocument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TextIO

    from omx_autoresearch.experiments.background import TrialView
    from omx_autoresearch.experiments.controller import AutoresearchController
    from omx_autoresearch.experiments.driver import Agent, DriveEnd
    from omx_autoresearch.experiments.judge.state import ExperimentState, HypothesisOutcome
    from omx_autoresearch.experiments.trial import ExperimentWorkspace
    from omx_autoresearch.surfaces.cli.experiment import LineProgress, LiveProgress

    Callback = Callable[[ExperimentWorkspace], HypothesisOutcome]


LINE_LIMIT = 64 * 1024
"""Characters of one line of a file of hypotheses."""
FAILED_AGENT = 7
"""The exit status where sessions in a row brought nothing: the agent's command could not do its work."""


@dataclass(frozen=True, slots=True)
class ExperimentRunDocument:
    """``experiment run``.

    Attributes:
        trials: that it ran.
        reason: why it ended: ``trials``, ``hypotheses``, ``completed``, ``cancelled`` or ``agent``.
        detail: one sentence.
        experiment: as it stands after it.
    """

    trials: int
    reason: str
    detail: str
    experiment: ExperimentView


@verb("experiment run", Document("experiment-run", ExperimentRunDocument))
@experiment_argument
@click.option(
    "--agent",
    required=True,
    metavar="COMMAND",
    help="Runs in the candidate's worktree with the prompt on stdin; fills in {prompt}, {prompt_file}, {workspace}.",
)
@click.option(
    "--trials", type=click.IntRange(1), help="At most this many trials now.  [default: the remaining budget]"
)
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
    help="End after this many sessions in a row without a candidate.",
)
@click.option("--no-verify", is_flag=True, help="Skip the fresh measurement of base against final.")
@json_option
def experiment_run(
    named: str, agent: str, trials: int | None, hypotheses: TextIO | None, as_json: bool, **more: Any
) -> int:
    """Drive an agent: each trial is one new headless session with exactly one hypothesis.

    Ctrl-C stops the agent and rolls the trial back; `run` again continues. A second Ctrl-C does not wait. At the end
    the accepted state is measured afresh against the base.
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
    return _told_run(found, state, end, as_json=as_json)


def _told_run(found: Meant, state: ExperimentState, end: DriveEnd, *, as_json: bool) -> int:
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
    from omx_autoresearch.experiments.driver import Agent

    runtime = found.caller.runtime
    return Agent(line, fresh_environment(runtime.environ), read_report, frozen_paths(runtime, state))


def verify_if_needed(controller: AutoresearchController, progress: LineProgress | LiveProgress) -> None:
    """Measure base against final, where something was accepted that no check is about yet."""
    state = controller.state
    if state.incumbent_commit in (state.base_commit, state.claim_commit):
        return
    progress.note("measuring base against final afresh")
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
    if len(text) > LINE_LIMIT:
        raise UsageError(
            f"line {number} has {len(text)} characters; at most {LINE_LIMIT} are allowed",
            next_step="shorten the hypothesis",
        )
    if not text.startswith("{"):
        return checked_hypothesis(ExperimentHypothesis(f"h-{number}", text))
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"line {number} is not a JSON object: {error}", next_step="fix that line") from None
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
            "interrupted: the current trial is rolled back, and the experiment can continue; Ctrl-C again does not wait"
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


# --- ``experiment wait``, and trials that go on by themselves: below the limit that a client puts on a command.


WAIT = Document("experiment-wait", ExperimentWaitDocument)


@verb("experiment wait", WAIT)
@experiment_argument
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=WAIT_SECONDS,
    show_default=True,
    help="Wait at most this long.",
)
@json_option
def experiment_wait(named: str, seconds: float, as_json: bool) -> int:
    """Wait for the current trial and show its result; if none is running, show the newest result.

    Exits with 0 if it was accepted, with 9 if it was not or still runs; call again then.
    """
    from omx_autoresearch.experiments.background import wait_for_trial

    found = meant(named)
    view = wait_for_trial(found.caller.runtime, found.experiment_id, wait_seconds=seconds)
    return tell_view(found, view, as_json=as_json)


def tell_view(found: Meant, view: TrialView, *, as_json: bool) -> int:
    """Print how a trial stands; returns the exit status."""
    next_step = view.next_step if view.fault else ""
    program = f"omx-autoresearch experiment {'wait' if view.is_running else 'status'} {found.experiment_id}"
    next_step = next_step or program
    row = view.row
    change_path = found.folder.kept_path(row.iteration) if row is not None else ""
    if as_json:
        print_json(
            ExperimentWaitDocument(
                found.experiment_id, view.is_running, row, view.fault, next_step, change_path
            )
        )
    else:
        if row is not None and not view.is_running:
            say(trial_line(view.state, row), {"accepted": "green", "failed": "yellow"}.get(row.status, ""))
            for line in why_lines(row):
                say(line)
            if change_path and row.status == "rejected":
                say(f"  your change was taken out again; to read it: cat {shlex.quote(change_path)}")
        elif view.is_running:
            say(
                f"{f'Trial {row.iteration}' if row else 'The trial'} goes on; "
                f"{count_of(view.state.usage.runs, 'run')} so far."
            )
        else:
            say(view.fault or "There is no trial yet.", "yellow" if view.fault else "")
        say(f"  next: {next_step}", "dim")
    is_accepted = row is not None and not view.is_running and row.status == "accepted"
    return 0 if is_accepted else CHECK_SAID_NO


PATCH_NAME = "candidate.patch"


@verb(
    "experiment trial",
    WAIT,
    context_settings={"ignore_unknown_options": False},
)
@click.option("--experiment", "named", default="", metavar="ID", help="Which experiment.")
@click.option(
    "--hypothesis", "hypothesis_id", default="", metavar="ID", help="Its name.  [default: h-NUMBER]"
)
@click.option("--description", default="", metavar="TEXT", help="The change, and why it should help.")
@click.option("--direction", default="", metavar="TEXT", help="The approach, in a few words.")
@click.option(
    "--patch",
    "patch_path",
    default="",
    metavar="FILE",
    help="The change, as `git diff` prints it; - is stdin.",
)
@click.option(
    "--cost", type=click.FloatRange(0), default=0.0, metavar="USD", help="The cost of making the change."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    help="Wait at most this long; the trial goes on by itself: `experiment wait`.  [default: its end; less for agents]",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@json_option
def experiment_trial(  # noqa: PLR0913, PLR0917 - each parameter is an option
    named: str,
    patch_path: str,
    command: tuple[str, ...],
    cost: float,
    seconds: float | None,
    as_json: bool,
    **said: str,
) -> int:
    """Judge one change, and keep it only if it is verifiably better.

    Without --patch and COMMAND, the change is taken from the worktree that `experiment workspace` prints. COMMAND makes
    the change there. Exits with 0 if it was accepted, else with 9.
    """
    from omx_autoresearch.experiments.background import TrialAsk, TrialView, start_trial

    if patch_path and command:
        raise UsageError(
            "a trial judges one change, but both --patch and a command were given",
            next_step="leave one of them out",
        )
    found = meant(named, is_open=True, option="--experiment ")
    if len(command) == 1 and found.store.exists(command[0]):
        raise UsageError(
            f"{command[0]} is the id of an experiment, not a command that makes the change",
            next_step=f"omx-autoresearch experiment trial --experiment {command[0]}",
        )
    hypothesis_id = said["hypothesis_id"] or f"h-{found.load().next_iteration}"
    hypothesis = checked_hypothesis(
        ExperimentHypothesis(hypothesis_id, said["description"], said["direction"])
    )
    # an agent waits less than its client's limit, a person for the end
    limit_seconds = WAIT_SECONDS if seconds is None and found.caller.is_agent() else seconds
    if limit_seconds is not None and not command:
        runtime = found.caller.runtime
        ask = TrialAsk(hypothesis, _read_patch(patch_path), runtime.new_id(), cost)
        view = start_trial(runtime, found.experiment_id, ask, wait_seconds=limit_seconds)
        return tell_view(found, view, as_json=as_json)
    if seconds is not None:
        raise UsageError(
            "a trial by a command always runs to its end", next_step="leave --seconds or the command out"
        )
    make = _maker(found, patch_path, command, cost)
    with working(found, as_json=as_json, is_row_answer=True) as (controller, _):
        if controller.state.phase == "started":
            controller.establish_baseline()
        row = controller.run_iteration(hypothesis, make(controller))
    return tell_view(found, TrialView(found.load(), row, is_running=False), as_json=as_json)


def _maker(
    found: Meant, patch_path: str, command: tuple[str, ...], cost_usd: float
) -> Callable[[AutoresearchController], Callback]:
    """How the callback of the trial is made, once the controller holds the repository.

    What stands in the worktree is taken before that: a controller begins by restoring it.
    """
    if command:
        _require_startable(found, command)
        return lambda controller: _by_command(found, controller, command, cost_usd)
    from omx_autoresearch.experiments.background import patched, take_candidate

    patch = take_candidate(found.caller.runtime, found.experiment_id, _read_patch(patch_path))
    path = os.path.join(found.folder.root_path, PATCH_NAME)
    replace_file(path, patch, mode=0o600)
    return lambda controller: patched(found.folder, controller.state.next_iteration, path, cost_usd)


def _require_startable(found: Meant, command: tuple[str, ...]) -> None:
    from omx_autoresearch.experiments.driver import require_startable

    program = shlex.quote(command[0])
    environ = agent_of(found, found.load(), program).environ
    require_startable(program, environ, found.workspace_path())


def _read_patch(path: str) -> bytes:
    if not path:
        return b""
    try:
        with click.open_file(path, "rb") as source:
            content: bytes = source.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", next_step="--patch FILE") from None
    if not content.strip():
        raise UsageError(f"the patch {path} is empty", next_step="git diff > FILE, then --patch FILE")
    return content


def _by_command(
    found: Meant, controller: AutoresearchController, command: tuple[str, ...], cost_usd: float
) -> Callback:
    """A command makes the change, as an agent would: in the worktree, its output kept, nothing of it left behind."""
    from omx_autoresearch.experiments.driver import agent_turn

    agent = agent_of(found, controller.state, shlex.join(command))
    turn = agent_turn(agent, found.folder, controller.state, is_given=True)

    def make(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        outcome = turn(workspace)
        said = "" if workspace.hypothesis.description else shlex.join(command)[:600]
        outcome = replace(outcome, cost_usd=outcome.cost_usd + cost_usd, description=said)
        if outcome.fault != "agent_failed":
            return outcome
        reason = outcome.fault_reason.replace("the agent", "the command", 1)
        return replace(outcome, fault="change_failed", fault_reason=reason)

    return make
