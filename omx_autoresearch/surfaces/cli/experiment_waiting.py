"""``experiment wait``, and trials that go on by themselves: below the limit that a client puts on a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.surfaces.cli.boundary import CHECK_SAID_NO
from omx_autoresearch.surfaces.cli.caller import json_option
from omx_autoresearch.surfaces.cli.display import harmless, print_json, say
from omx_autoresearch.surfaces.cli.experiment import experiment_argument, meant
from omx_autoresearch.surfaces.cli.looking import WAIT_SECONDS

if TYPE_CHECKING:
    from omx_autoresearch.runtime.experiments.background import TrialAsk, TrialView
    from omx_autoresearch.surfaces.cli.experiment import Meant


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
    from omx_autoresearch.runtime.experiments.background import wait_for_trial

    found = meant(named)
    view = wait_for_trial(found.caller.runtime, found.experiment_id, wait_seconds=seconds)
    return tell_view(found, view, as_json=as_json)


def patience(found: Meant, seconds: float | None) -> float | None:
    """How long a trial is waited for: as told; an agent less than its client's limit; None for its end."""
    return WAIT_SECONDS if seconds is None and found.caller.is_agent() else seconds


def try_in_background(found: Meant, ask: TrialAsk, seconds: float, *, as_json: bool) -> int:
    """Try a change by a process of its own, and wait at most ``seconds`` for its end."""
    from omx_autoresearch.runtime.experiments.background import start_trial

    runtime = found.caller.runtime
    view = start_trial(runtime, found.experiment_id, ask, wait_seconds=seconds)
    return tell_view(found, view, as_json=as_json)


def tell_view(found: Meant, view: TrialView, *, as_json: bool) -> int:
    """Print how a trial stands; returns the exit status."""
    from omx_autoresearch.surfaces.cli.experiment_display import trial_line, why_lines
    from omx_autoresearch.surfaces.cli.experiment_documents import ExperimentWaitDocument

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
            say(harmless(view.fault) or "There was no trial yet.", "yellow" if view.fault else "")
        say(f"  next: {harmless(next_step)}", "dim")
    is_accepted = row is not None and not view.is_running and row.status == "accepted"
    return 0 if is_accepted else CHECK_SAID_NO
