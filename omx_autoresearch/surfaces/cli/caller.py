"""Who calls, from where, and which mission is meant."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.foundation.errors import AutoresearchError, UsageError
from omx_autoresearch.foundation.records import dataclass, replace
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.surfaces.sources import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class Caller:
    """The process that typed a command.

    Attributes:
        runtime: the world as its use cases see it.
        cwd: where it stands; empty when that folder is gone.
        client: the agent CLI of the tool shell that it runs in; empty elsewhere.
        session_id: that client's session, where the environment names it.
    """

    runtime: Runtime
    cwd: str
    client: str
    session_id: str

    def task(self, named: str) -> str:
        """The mission that is meant; see ``runtime.missions.resolve_task``."""
        from omx_autoresearch.missions.views import resolve_task

        return resolve_task(self.runtime, named, session_id=self.session_id, cwd=self.cwd)

    def owned_task(self, verb: str, named: str) -> str:
        """The mission that is meant, for a verb that only its owner may use; what waits in its inbox is taken in.

        Raises:
            OwnerOnly: this runs inside an agent; recorded in the mission.
        """
        from omx_autoresearch.missions.claims import take_in_quietly
        from omx_autoresearch.missions.lifecycle_commands import require_owner

        try:
            task_id = self.task(named)
        except AutoresearchError:
            require_owner(self.runtime, verb)
            raise
        require_owner(self.runtime, verb, task_id)
        take_in_quietly(self.runtime, task_id)
        return task_id

    def project_path(self) -> str:
        """The project that the caller stands in.

        Raises:
            UsageError: its folder is gone.
        """
        from omx_autoresearch.missions.checkouts import project_of

        if not self.cwd:
            raise UsageError("the current folder is gone", next_step="cd into the project")
        return project_of(self.runtime, self.cwd)

    def new_workspace_path(self) -> str:
        """The work tree in which what is begun here works: a linked one rather than its project.

        Raises:
            UsageError: its folder is gone, or nothing can begin in it.
        """
        from omx_autoresearch.missions.checkouts import new_workspace

        self.project_path()
        return new_workspace(self.runtime, self.cwd)

    def held_task(self) -> str:
        """The mission that holds the session of this process; empty for none."""
        from omx_autoresearch.missions.views import held_task

        return held_task(self.runtime, self.session_id)

    def is_agent(self) -> bool:
        """True inside an agent's process tree."""
        from omx_autoresearch.missions.lifecycle_commands import marks_of_agent

        return bool(marks_of_agent(self.runtime))

    def can_write(self, task_id: str) -> bool:
        """Whether the mission can be written; asked by making a file, since a sandbox need not show in a mode."""
        path = os.path.join(self.runtime.home.mission(task_id).root_path, f".probe-{os.getpid()}")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.unlink(path)
        except OSError:
            return False
        return True


def this_caller() -> Caller:
    """The caller of this process."""
    from omx_autoresearch.foundation import clients

    runtime = replace(Runtime.of_process(shell_marks=clients.SHELL_MARKS), sources=SOURCES)
    client, session_id = clients.session_from_environment(runtime.environ)
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return Caller(runtime, cwd, client, session_id)


def _task_ids(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Shell completion of TASK."""
    from click.shell_completion import CompletionItem

    from omx_autoresearch.journal.layout import StateHome, state_home
    from omx_autoresearch.missions.store import MissionStore

    try:
        known = MissionStore(StateHome(state_home(os.environ))).task_ids()
    except AutoresearchError:
        return []
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


def task_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """``[TASK]``, optional: inside a session the bound mission, outside the only one under way."""
    return click.argument("task", default="", required=False, shell_complete=_task_ids)(function)


def json_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def reason_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--reason``."""
    return click.option("--reason", default="", help="Why; kept in the journal.")(function)
