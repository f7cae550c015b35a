"""``experiment``: the group of its verbs, each imported when it runs, and which experiment a verb means."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.surfaces.cli.caller import Caller, this_caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.experiments.store import ExperimentFolder, ExperimentStore
    from omx_autoresearch.experiments.views import ExperimentView
    from omx_autoresearch.surfaces.cli.caller import Caller

SUBVERBS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Begin and go on",
        (
            ("start", "experiment_start", "Freeze what judges, measure the base, print the plan"),
            ("run", "experiment_run", "Drive an agent: one fresh session, one hypothesis a trial"),
            ("resume", "experiment_lifecycle", "Go on after anything, with more budget where asked"),
            ("stop", "experiment_lifecycle", "End it after the trial under way"),
            ("cancel", "experiment_lifecycle", "End it now; the trial under way is rolled back"),
        ),
    ),
    (
        "For the agent, too",
        (
            ("trial", "experiment_trial", "Judge one change: made here, by a command, or in a patch"),
            ("wait", "experiment_trial", "Wait for the trial under way and show how it ended"),
            ("workspace", "experiment_status", "Print the worktree in which a change is made"),
        ),
    ),
    (
        "Look",
        (
            ("status", "experiment_status", "Show how an experiment stands, trial by trial"),
            ("list", "experiment_status", "Show every experiment"),
            ("plot", "experiment_files", "Draw trials, accepted steps and the verified claim"),
            ("report", "experiment_files", "Write it up, as Markdown or HTML"),
            ("export", "experiment_files", "Export trials as CSV, JSONL or to MLflow"),
            ("patch", "experiment_patch", "Show what all accepted trials changed together"),
        ),
    ),
    (
        "For the owner, at the end",
        (
            ("verify", "experiment_lifecycle", "Measure base against final freshly: the one number to quote"),
            ("accept", "experiment_patch", "Take the final state into the checkout; commits nothing"),
            ("finalize", "experiment_patch", "Make one reviewable branch a checkpoint"),
            ("close", "experiment_lifecycle", "Remove the worktrees, keep the log"),
            ("remove", "experiment_lifecycle", "Remove everything of an experiment"),
        ),
    ),
)
"""Every verb of the group: name, module of this package, one line."""

_MODULES = {name: module for _, verbs in SUBVERBS for name, module, _ in verbs}


class _Subverbs(click.Group):
    """A group that imports a verb only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb's name."""
        del ctx
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The click command of a verb."""
        del ctx
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"omx_autoresearch.surfaces.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, f"experiment_{cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by section, from the table alone."""
        del ctx
        width = max(map(len, _MODULES)) + 2
        for title, verbs in SUBVERBS:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, _, text in verbs])


@click.group("experiment", cls=_Subverbs, invoke_without_command=True)
@click.pass_context
def experiment_verb(ctx: click.Context) -> None:
    """Optimize what a command measures, and keep only what is truly better.

    Every trial is made in a worktree of its own and judged by interleaved measurements; your checkout changes only when
    you accept the final patch. ID is optional where one experiment can be meant; a mission's TASK means its newest one.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def experiment_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """``[ID]``, optional: the only experiment of this project that has not ended, else its newest."""
    return click.argument("named", default="", required=False, metavar="[ID]")(function)


def auto_log_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--auto-log``: what somebody else's log says, instead of an experiment of ours."""
    return click.option(
        "--auto-log",
        default="",
        metavar="PATH",
        help="Of an existing .auto/ log instead: the file, or the project that has it.",
    )(function)


@dataclass(frozen=True, slots=True)
class Meant:
    """One experiment that a verb means.

    Attributes:
        caller: who typed the verb.
        store: of experiments.
        experiment_id: which one.
    """

    caller: Caller
    store: ExperimentStore
    experiment_id: str

    @property
    def folder(self) -> ExperimentFolder:
        """Its folder."""
        return self.store.folder(self.experiment_id)

    def load(self) -> ExperimentState:
        """Its state, as its log says."""
        return self.store.load(self.experiment_id)

    def workspace_path(self) -> str:
        """The candidate's worktree; empty where it is gone."""
        from omx_autoresearch.experiments.views import candidate_path

        return candidate_path(self.caller.runtime, self.experiment_id)

    def view(self) -> ExperimentView:
        """How it stands."""
        from omx_autoresearch.experiments.views import view

        return view(self.caller.runtime, self.load())

    def require_owner(self, verb: str) -> None:
        """Let the owner pass.

        Raises:
            OwnerOnly: this runs inside an agent; recorded in the experiment's mission, where it has one.
        """
        from omx_autoresearch.missions.lifecycle_commands import require_owner

        require_owner(self.caller.runtime, f"experiment {verb}", self.load().task_id)


def meant(named: str, *, is_open: bool = False, option: str = "") -> Meant:
    """The experiment that a verb means.

    Args:
        named: an id, its unique beginning, its slug, or a mission; empty for the one of this project.
        is_open: only one that has not ended can be meant without a name.
        option: what stands before its name, with a space; empty where it stands behind the verb.

    Raises:
        UsageError: none or several can be meant; they are named.
    """
    from omx_autoresearch.experiments.store import ExperimentStore
    from omx_autoresearch.experiments.views import NEXT_START, find_experiment, reopening_command

    caller = this_caller()
    state = find_experiment(caller.runtime, named, cwd=caller.cwd, task_id=caller.held_task(), option=option)
    if is_open and not named and state.phase == "completed":
        raise UsageError(
            f"no experiment of this project is under way; the newest, {state.experiment_id}, has ended",
            next_step=reopening_command(state) or NEXT_START,
        )
    return Meant(caller, ExperimentStore(caller.runtime.home), state.experiment_id)
