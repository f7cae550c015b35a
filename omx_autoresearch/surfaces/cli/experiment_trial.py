"""``experiment trial``: one change is judged, made by hand in the candidate's worktree, by a command, or in a patch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.surfaces.cli.caller import json_option
from omx_autoresearch.surfaces.cli.display import print_json, say
from omx_autoresearch.surfaces.cli.error_handler import CHECK_SAID_NO
from omx_autoresearch.surfaces.cli.experiment import Meant, experiment_argument, meant
from omx_autoresearch.surfaces.cli.experiment_run import agent_of, working
from omx_autoresearch.surfaces.cli.status import WAIT_SECONDS

if TYPE_CHECKING:
    from omx_autoresearch.experiments.background import TrialAsk, TrialView


# --- ``experiment wait``, and trials that go on by themselves: below the limit that a client puts on a command.


@click.command("wait")
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
    """Wait for the trial under way and show how it ended; where there is none, how the newest one did.

    Ends with 0 where it was accepted, with 9 where it was not or goes on: call again then.
    """
    from omx_autoresearch.experiments.background import wait_for_trial

    found = meant(named)
    view = wait_for_trial(found.caller.runtime, found.experiment_id, wait_seconds=seconds)
    return tell_view(found, view, as_json=as_json)


def patience(found: Meant, seconds: float | None) -> float | None:
    """How long a trial is waited for: as told; an agent less than its client's limit; None for its end."""
    return WAIT_SECONDS if seconds is None and found.caller.is_agent() else seconds


def try_in_background(found: Meant, ask: TrialAsk, seconds: float, *, as_json: bool) -> int:
    """Try a change by a process of its own, and wait at most ``seconds`` for its end."""
    from omx_autoresearch.experiments.background import start_trial

    runtime = found.caller.runtime
    view = start_trial(runtime, found.experiment_id, ask, wait_seconds=seconds)
    return tell_view(found, view, as_json=as_json)


def tell_view(found: Meant, view: TrialView, *, as_json: bool) -> int:
    """Print how a trial stands; returns the exit status."""
    from omx_autoresearch.surfaces.cli.experiment_display import trial_line, why_lines
    from omx_autoresearch.surfaces.experiment_documents import ExperimentWaitDocument

    next_step = view.next_step if view.fault else ""
    program = f"omx-autoresearch experiment {'wait' if view.is_running else 'status'} {found.experiment_id}"
    next_step = next_step or program
    row = view.row
    if as_json:
        print_json(ExperimentWaitDocument(found.experiment_id, view.is_running, row, view.fault, next_step))
    else:
        if row is not None and not view.is_running:
            say(trial_line(view.state, row), {"accepted": "green", "failed": "yellow"}.get(row.status, ""))
            for line in why_lines(row):
                say(line)
        elif view.is_running:
            say(
                f"{f'Trial {row.iteration}' if row else 'The trial'} goes on; {view.state.usage.runs} runs so far."
            )
        else:
            say(view.fault or "There was no trial yet.", "yellow" if view.fault else "")
        say(f"  next: {next_step}", "dim")
    is_accepted = row is not None and not view.is_running and row.status == "accepted"
    return 0 if is_accepted else CHECK_SAID_NO


if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.experiments.controller import AutoresearchController
    from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, HypothesisOutcome, TrialRow
    from omx_autoresearch.experiments.trial import ExperimentWorkspace

    Callback = Callable[[ExperimentWorkspace], HypothesisOutcome]

PATCH_NAME = "candidate.patch"


@click.command("trial", context_settings={"ignore_unknown_options": False})
@click.option("--experiment", "named", default="", metavar="ID", help="Which experiment.")
@click.option(
    "--hypothesis", "hypothesis_id", default="", metavar="ID", help="Its name.  [default: h-NUMBER]"
)
@click.option("--description", default="", metavar="TEXT", help="What was changed, and why it should help.")
@click.option("--direction", default="", metavar="TEXT", help="The approach, in a few words.")
@click.option(
    "--patch",
    "patch_path",
    default="",
    metavar="FILE",
    help="The change, as `git diff` prints it; - is stdin.",
)
@click.option("--cost", type=click.FloatRange(0), default=0.0, metavar="USD", help="What making it cost.")
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
    """Judge one change, and keep it only if it is truly better.

    Without --patch and COMMAND the change is what stands in the worktree that `experiment workspace` prints. COMMAND
    makes it there. Ends with 0 where it was accepted, with 9 where it was not.
    """
    from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, checked_hypothesis

    if patch_path and command:
        raise UsageError(
            "a trial has one change: --patch and a command were given", next_step="leave one of them out"
        )
    found = meant(named, is_open=True, option="--experiment ")
    if len(command) == 1 and found.store.exists(command[0]):
        raise UsageError(
            f"{command[0]} is an experiment, and would be run as the command that makes the change",
            next_step=f"omx-autoresearch experiment trial --experiment {command[0]}",
        )
    state = found.load()
    number = state.rows[-1].iteration + 1 if state.rows else 1
    hypothesis = checked_hypothesis(
        ExperimentHypothesis(said["hypothesis_id"] or f"h-{number}", said["description"], said["direction"])
    )
    limit_seconds = patience(found, seconds)
    if limit_seconds is not None and not command:
        from omx_autoresearch.experiments.background import TrialAsk

        request_id = found.caller.runtime.new_id()
        ask = TrialAsk(hypothesis, _read_patch(patch_path), request_id, cost)
        return try_in_background(found, ask, limit_seconds, as_json=as_json)
    if seconds is not None:
        raise UsageError("a command is waited for to its end", next_step="leave --seconds or the command out")
    make = _maker(found, patch_path, command, cost)
    with working(found, as_json=as_json, is_row_answer=True) as (controller, _):
        if controller.state.phase == "started":
            controller.establish_baseline()
        row = _tried(controller, hypothesis, make(controller))
    return _told(found, row, as_json=as_json)


def _tried(
    controller: AutoresearchController, hypothesis: ExperimentHypothesis, callback: Callback
) -> TrialRow:
    return controller.run_iteration(hypothesis, callback)


def _maker(
    found: Meant, patch_path: str, command: tuple[str, ...], cost_usd: float
) -> Callable[[AutoresearchController], Callback]:
    """How the callback of the trial is made, once the controller holds the repository.

    What stands in the worktree is taken before that: a controller begins by restoring it.
    """
    if command:
        _require_startable(found, command)
        return lambda controller: _by_command(found, controller, command, cost_usd)
    from omx_autoresearch.experiments.background import patched, require_applicable, take_candidate
    from omx_autoresearch.journal.safe_files import replace_file

    patch = take_candidate(found.caller.runtime, found.experiment_id, _read_patch(patch_path))
    path = os.path.join(found.folder.root_path, PATCH_NAME)
    replace_file(path, patch, mode=0o600)

    def make(_: AutoresearchController) -> Callback:
        require_applicable(found.folder.work_path, path)
        return patched(found.folder.work_path, path, cost_usd)

    return make


def _require_startable(found: Meant, command: tuple[str, ...]) -> None:
    import shlex

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
    import shlex
    from dataclasses import replace

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


def _told(found: Meant, row: TrialRow, *, as_json: bool) -> int:
    from omx_autoresearch.surfaces.cli.experiment_display import trial_line, why_lines
    from omx_autoresearch.surfaces.experiment_documents import ExperimentTrialDocument

    next_step = f"omx-autoresearch experiment status {found.experiment_id}"
    if as_json:
        print_json(ExperimentTrialDocument(found.experiment_id, row, next_step))
    else:
        style = {"accepted": "green", "failed": "yellow"}.get(row.status, "")
        say(trial_line(found.load(), row), style)
        for line in why_lines(row):
            say(line)
        say(f"  next: {next_step}", "dim")
    return 0 if row.status == "accepted" else CHECK_SAID_NO
