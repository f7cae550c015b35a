"""What a person typed to the agent: ``$autoresearch TASK`` and the owner verbs behind it.

A prompt command counts as the owner's. One that no person can have typed (``runtime.turns``) never gets here.
"""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import Client, HookEvent, Reply
from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.missions import lifecycle_commands, sessions
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.views import resolve_task
from omx_autoresearch.system.git import common_dir, find_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.rules.prompts import PromptCommand


BASELINE_SECONDS = 60.0
"""What a prompt hook's time-out leaves for a draft's baseline; a longer one is given up, and the mission starts."""


def carry_out(runtime: Runtime, client: Client, event: HookEvent, command: PromptCommand) -> Reply:
    """Carry out a prompt command and say what happened, to the agent and to the person."""
    task_id = ""
    try:
        task_id = resolve_task(
            runtime,
            command.task,
            session_id=event.session_id,
            cwd=event.cwd,
            is_here=command.verb in ("pause", "cancel"),
        )
        text: str = getattr(_Typed(runtime, client, event, task_id), command.verb)()
    except AutoresearchError as error:
        return Reply(context=f"{briefing.MARK} {error}", person_message=f"{briefing.MARK} {error}")
    return Reply(context=text, person_message=text.splitlines()[0])


@dataclass(frozen=True, slots=True)
class _Typed:
    """One prompt command, resolved to its mission."""

    runtime: Runtime
    client: Client
    event: HookEvent
    task_id: str

    def bind(self) -> str:
        mission = MissionStore(self.runtime.home).load(self.task_id)
        if mission.phase == "draft":
            from omx_autoresearch.missions.launch import StartOptions, start

            options = StartOptions(
                reason="prompt command",
                baseline_seconds=BASELINE_SECONDS,
                workspace_path=worktree_of(mission, self.event.cwd),
                is_sandboxed=self.event.is_sandboxed,
            )
            mission = start(self.runtime, self.task_id, options).mission
        if mission.phase in ("paused", "blocked"):
            verb = "resume" if mission.phase == "paused" else "unblock"
            raise StepIllegal(
                f"mission {self.task_id} is {mission.phase}",
                next_step=f"omx-autoresearch {verb} {self.task_id}",
            )
        act = sessions.Act(
            self.event.session_id,
            self.client.name,
            "prompt",
            sessions.client_process(),
            worktree_of(mission, self.event.cwd),
        )
        return briefing.bound(sessions.bind(self.runtime, self.task_id, act))

    def pause(self) -> str:
        lifecycle_commands.pause(self.runtime, self.task_id, reason="prompt command")
        how = f"To go on: $autoresearch resume {self.task_id}"
        return f"{briefing.MARK} mission {self.task_id} is paused; nobody is held. {how}"

    def resume(self) -> str:
        mission = MissionStore(self.runtime.home).load(self.task_id)
        if mission.phase == "blocked":
            lifecycle_commands.unblock(self.runtime, self.task_id, reason="prompt command")
        elif mission.phase != "running":
            lifecycle_commands.resume(self.runtime, self.task_id, reason="prompt command")
        return self.bind()

    def cancel(self) -> str:
        lifecycle_commands.cancel(self.runtime, self.task_id, reason="prompt command")
        return f"{briefing.MARK} mission {self.task_id} is cancelled; nothing re-opens it."

    def status(self) -> str:
        return briefing.summary(MissionStore(self.runtime.home).load(self.task_id))


def worktree_of(mission: Mission, cwd: str) -> str:
    """The worktree of the mission's own repository that ``cwd`` lies in; empty when it is another repository."""
    root = find_root(cwd) if cwd and os.path.isdir(cwd) else None
    if root is None or common_dir(root) is None or common_dir(root) != common_dir(mission.project_path):
        return ""
    return root
