"""Which experiment a verb means, and the options that the verbs of ``experiment`` share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.experiments.views import (
    NEXT_START,
    candidate_path,
    find_experiment,
    reopening_command,
    view,
)
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.missions.lifecycle_commands import require_owner
from omx_autoresearch.surfaces.cli.console import Caller, count_of, this_caller

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.experiments.reports.pages import ReportMaterial
    from omx_autoresearch.experiments.store import ExperimentFolder
    from omx_autoresearch.experiments.views import ExperimentView


def experiment_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """``[ID]``, optional: the only experiment of this project that has not ended, else its newest."""
    return click.argument("named", default="", required=False, metavar="[ID]")(function)


def auto_log_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--auto-log``: look at an ``.auto/`` log instead of an experiment."""
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
        return candidate_path(self.caller.runtime, self.experiment_id)

    def view(self) -> ExperimentView:
        """How it stands."""
        return view(self.caller.runtime, self.load())

    def require_owner(self, verb: str) -> None:
        """Let the owner pass.

        Raises:
            OwnerOnly: this runs inside an agent; recorded in the experiment's mission, where it has one.
        """
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
    caller = this_caller()
    state = find_experiment(caller.runtime, named, cwd=caller.cwd, task_id=caller.held_task(), option=option)
    if is_open and not named and state.phase == "completed":
        raise UsageError(
            f"no experiment of this project is under way; the newest, {state.experiment_id}, has ended",
            next_step=reopening_command(state) or NEXT_START,
        )
    return Meant(caller, ExperimentStore(caller.runtime.home), state.experiment_id)


def material_of(named: str, auto_log: str) -> tuple[ExperimentState, ReportMaterial, Meant | None]:
    """The state that is meant, and what else is known of it; an ``.auto/`` log has no experiment."""
    from omx_autoresearch.experiments.reports.pages import (
        ReportMaterial,  # `list` and `status` make no report
    )

    if not auto_log:
        found = meant(named)
        return found.load(), ReportMaterial(), found
    from omx_autoresearch.compat.auto_history import read_auto_log

    if named:
        raise UsageError("an experiment and an .auto/ log were named", next_step="leave one of them out")
    log = read_auto_log(os.path.join(this_caller().cwd, auto_log))
    if not log.sessions:
        raise UsageError(f"{log.path} has no run that can be believed", next_step="name another log")
    earlier = len(log.sessions) - 1
    older = (f"{count_of(earlier, 'earlier session')} of the log left out",) if earlier else ()
    material = ReportMaterial(origin=log.origin, faults=(*log.faults, *log.notes, *older))
    return log.sessions[-1], material, None
