"""``experiment``: the group of its verbs, each imported when it runs, and which experiment a verb means."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from typing import TYPE_CHECKING

import click

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import AutoresearchError, UsageError
from omx_autoresearch.surfaces.cli.caller import this_caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.core.experiments import ExperimentState
    from omx_autoresearch.storage.experiments import ExperimentFolder, ExperimentStore
    from omx_autoresearch.surfaces.cli.caller import Caller
    from omx_autoresearch.surfaces.cli.experiment_documents import ExperimentDocument

NEXT_START = "omx-autoresearch experiment start --metric NAME --measure ./measure.sh --check ./check.sh"

SUBVERBS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Begin and go on",
        (
            ("start", "experiment_starting", "Freeze what judges, measure the base, print the plan"),
            ("run", "experiment_running", "Drive an agent: one fresh session, one hypothesis a trial"),
            ("resume", "experiment_owning", "Go on after anything, with more budget where asked"),
            ("stop", "experiment_owning", "End it after the trial under way"),
            ("cancel", "experiment_owning", "End it now; the trial under way is rolled back"),
        ),
    ),
    (
        "For the agent, too",
        (
            ("trial", "experiment_trying", "Judge one change: made here, by a command, or in a patch"),
            ("wait", "experiment_waiting", "Wait for the trial under way and show how it ended"),
            ("workspace", "experiment_looking", "Print the worktree in which a change is made"),
        ),
    ),
    (
        "Look",
        (
            ("status", "experiment_looking", "Show how an experiment stands, trial by trial"),
            ("list", "experiment_looking", "Show every experiment"),
            ("plot", "experiment_files", "Draw trials, accepted steps and the verified claim"),
            ("report", "experiment_files", "Write it up, as Markdown or HTML"),
            ("export", "experiment_files", "Export trials as CSV, JSONL or to MLflow"),
            ("patch", "experiment_patching", "Show what all accepted trials changed together"),
        ),
    ),
    (
        "For the owner, at the end",
        (
            ("verify", "experiment_owning", "Measure base against final freshly: the one number to quote"),
            ("accept", "experiment_patching", "Take the final state into the checkout; commits nothing"),
            ("finalize", "experiment_patching", "Make one reviewable branch a checkpoint"),
            ("close", "experiment_owning", "Remove the worktrees, keep the log"),
            ("remove", "experiment_owning", "Remove everything of an experiment"),
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
        path = os.path.join(self.folder.work_path, "candidate")
        return path if os.path.isdir(path) else ""

    def document(self, state: ExperimentState) -> ExperimentDocument:
        """What ``status --json`` prints of it."""
        from omx_autoresearch.surfaces.cli.experiment_documents import experiment_document

        return experiment_document(
            state,
            session_path=self.folder.root_path,
            workspace_path=self.workspace_path(),
            is_at_work=is_at_work(state),
        )

    def require_owner(self, verb: str) -> None:
        """Let the owner pass.

        Raises:
            OwnerOnly: this runs inside an agent; recorded in the experiment's mission, where it has one.
        """
        from omx_autoresearch.runtime.owners import require_owner

        require_owner(self.caller.runtime, f"experiment {verb}", self.load().task_id)


def is_at_work(state: ExperimentState) -> bool:
    """True while exactly the controller that the log names lives."""
    from omx_autoresearch.system.processes import ProcessIdentity, is_alive

    return bool(state.controller_pid) and is_alive(
        ProcessIdentity(state.controller_pid, state.controller_started)
    )


def meant(named: str, *, is_open: bool = False, option: str = "") -> Meant:
    """The experiment that a verb means.

    Args:
        named: an id, its unique beginning, its slug, or a mission; empty for the one of this project.
        is_open: only one that has not ended can be meant without a name.
        option: of the verb, that names one; empty where it stands behind the verb.

    Raises:
        UsageError: none or several can be meant; they are named.
    """
    from omx_autoresearch.storage.experiments import ExperimentStore

    caller = this_caller()
    store = ExperimentStore(caller.runtime.home)
    if named:
        return Meant(caller, store, _of_mission(caller, named) or store.find(named))
    roots = {caller.workspace_path(), caller.project_path()}
    here = list(_states_of(store, roots))
    open_ones = [state for state in here if state.phase != "completed"]
    if len(open_ones) == 1:
        return Meant(caller, store, open_ones[0].experiment_id)
    if len(open_ones) > 1:
        names = ", ".join(state.experiment_id for state in open_ones[:8])
        raise UsageError(
            f"which experiment? {len(open_ones)} are under way: {names}",
            next_step=f"the same with one of them{'' if option else ' behind the verb'}, such as "
            f"{f'{option} {open_ones[0].experiment_id}'.lstrip()}",
        )
    if here and not is_open:
        return Meant(caller, store, here[0].experiment_id)
    if here:
        raise UsageError(
            f"no experiment of this project is under way; the newest, {here[0].experiment_id}, has ended",
            next_step=_after(here[0]),
        )
    _require_believable(store, roots)
    raise UsageError("there is no experiment of this project", next_step=NEXT_START)


def _require_believable(store: ExperimentStore, roots: set[str]) -> None:
    """Tell of an experiment of the project whose log cannot be believed, rather than of none.

    Raises:
        JournalBroken: it names file and line.
    """
    for experiment_id in store.list_ids():
        first = None
        with contextlib.suppress(AutoresearchError):
            first = next(store.read(experiment_id), None)
        if first is not None and first.data.get("project_path") in roots:
            store.load(experiment_id)


def open_beside(found: Meant) -> list[ExperimentState]:
    """What else has not ended in the project of an experiment."""
    states = _states_of(found.store, {found.load().project_path})
    return [
        item for item in states if item.phase != "completed" and item.experiment_id != found.experiment_id
    ]


def _after(state: ExperimentState) -> str:
    """What goes on where the newest experiment has ended."""
    more = more_of(state.completed_reason)
    return f"omx-autoresearch experiment resume {state.experiment_id} {more}" if more else NEXT_START


def more_of(reason: str) -> str:
    """The option of `resume` that adds to the budget which ended an experiment; empty where none did."""
    return {
        "budget_trials": "--add-trials 20",
        "budget_wall": "--add-hours 4",
        "budget_cost": "--add-cost 5",
        "budget_runs": "--add-runs 500",
        "budget_disk": "--add-disk 2GiB",
    }.get(reason, "")


def _of_mission(caller: Caller, named: str) -> str:
    """The newest experiment of a mission of this name; empty where no mission has it, or has none."""
    from omx_autoresearch.storage.missions import MissionStore

    store = MissionStore(caller.runtime.home)
    if not store.exists(named):
        return ""
    mission = store.load(named)
    if not mission.experiments:
        raise UsageError(f"mission {named} has no experiment yet", next_step=f"{NEXT_START} --task {named}")
    return mission.experiments[-1]


def _states_of(store: ExperimentStore, roots: set[str]) -> list[ExperimentState]:
    """The experiments of a project, newest first; one that cannot be read hides no other."""
    found = []
    for experiment_id in store.list_ids():
        try:
            first = next(store.read(experiment_id), None)
            if first is None or first.data.get("project_path") not in roots:
                continue
            found.append(store.load(experiment_id))
        except AutoresearchError:
            continue  # `list` shows it
    return found
