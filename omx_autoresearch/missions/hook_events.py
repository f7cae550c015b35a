"""Every other event of a session: its start, prompts, tools, compaction, its end.

None of them can hold or release anybody. They keep the pulse, take in what a sandboxed agent could not write itself,
carry out what a person typed, and put the mission before the agent's eyes.
"""

from __future__ import annotations

import os

from omx_autoresearch.agents.events import SILENCE, Client, HookEvent, Reply
from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.records import replace
from omx_autoresearch.missions import heartbeat, sessions
from omx_autoresearch.missions.expiry import is_expired
from omx_autoresearch.missions.heartbeat import note_failed_heartbeat
from omx_autoresearch.missions.lifecycle_commands import missions_around, refuse_verb
from omx_autoresearch.missions.records.sessions import PersonPrompted
from omx_autoresearch.missions.registry import TOKEN_WORD, Registry
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.prompts import PromptCommand, command_in
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.processes import SHELLS, command_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission

BEATS = {
    "session_start": "session_start",
    "prompt": "starting_turn",
    "tool": "tool",
    "pre_compact": "compacting",
    "session_end": "session_end",
    "stop_failure": "stop_failure",
}
"""The heartbeat that each kind of event leaves."""


def answer_event(runtime: Runtime, client: Client, event: HookEvent) -> Reply:
    """The answer to any event but a stop."""
    if event.agent_id or event.kind not in BEATS or not event.session_id:
        return SILENCE
    try:
        if event.kind == "prompt":
            return _Prompt(runtime, client, event).answer()
        if event.kind == "session_start":
            return _session_start(runtime, client, event)
        if event.kind == "tool":
            return _tool(runtime, client, event)
        mission = bound_mission(runtime, event)
        if mission is not None and not is_expired(runtime, mission, runtime.now()):
            beat(runtime, mission, event)
    except AutoresearchError as error:
        from omx_autoresearch.missions.faults import fault_reply

        return fault_reply(runtime, event, error)
    return SILENCE


def bound_mission(runtime: Runtime, event: HookEvent) -> Mission | None:
    """The mission that this session is bound to, or None."""
    entry = Registry(runtime.home).find(event.session_id)
    if entry is None or entry.state != "bound" or entry.session_id != event.session_id:
        return None
    store = MissionStore(runtime.home)
    if not store.exists(entry.task_id):
        return None
    mission = store.load(entry.task_id)
    is_ours = mission.binding is not None and mission.binding.session_id == event.session_id
    return mission if is_ours else None


def beat(runtime: Runtime, mission: Mission, event: HookEvent) -> str:
    """Leave the event's heartbeat; returns a warning when it could not be written."""
    try:
        heartbeat.beat(
            runtime.home.mission(mission.task_id).heartbeat_path,
            at=runtime.now(),
            status=BEATS[event.kind],
            session_id=event.session_id,
        )
    except OSError as error:
        note_failed_heartbeat(runtime, mission, BEATS[event.kind], error)
        return f"{briefing.MARK} the heartbeat of {mission.task_id} could not be written ({error.strerror}); going on."
    return ""


def _session_start(runtime: Runtime, client: Client, event: HookEvent) -> Reply:
    reply = _started(runtime, client, event)
    if not not_from_client(event):
        sessions.leave_others(runtime, event.session_id, sessions.client_process())
    return reply


def _started(runtime: Runtime, client: Client, event: HookEvent) -> Reply:
    mission = bound_mission(runtime, event)
    if mission is None and runtime.environ.get(sessions.TASK_VARIABLE):
        mission = sessions.consume_environment(runtime, event.session_id, client.name)
    if mission is None and event.source == "clear":
        why = not_from_client(event)
        if why:  # an agent that forges the event would bind a session that nobody works in
            for task_id in missions_around(runtime):
                refuse_verb(runtime, "clear", task_id, (why,))
            return SILENCE
        mission = sessions.rebind_cleared(runtime, event.session_id, client.name)
    if mission is None:
        if event.source == "fork":
            sessions.note_fork(runtime, event.session_id, client.name, event.cwd)
        return SILENCE
    if is_expired(runtime, mission, runtime.now()):
        return Reply(context=_expired(mission))
    _remember_process(runtime, client, event, mission)
    warning = beat(runtime, mission, event)
    return Reply(context=briefing.summary(mission), person_message=warning)


def _expired(mission: Mission) -> str:
    return (
        f"{briefing.MARK} Mission {mission.task_id} was bound to this session, but nothing was heard of it for "
        f"{mission.limits.session_idle_hours:g} h, so nobody is held. To go on, a person types: "
        f"$autoresearch {mission.task_id}"
    )


def _remember_process(runtime: Runtime, client: Client, event: HookEvent, mission: Mission) -> None:
    """After a resume (or a ``start --session``) the process is another one; owner verbs and ``/clear`` look for it."""
    registry = Registry(runtime.home)
    entry, process = registry.find(event.session_id), sessions.client_process()
    if entry is None or process is None:
        return
    if entry.client_pid == process.pid and not entry.left_at:
        return
    if sessions.outer_client(runtime) is not None:
        return  # an agent resumed its own session in a client within; the person's client stays the known one
    sessions.bind(runtime, mission.task_id, sessions.Act(event.session_id, client.name, "resume", process))


def _tool(runtime: Runtime, client: Client, event: HookEvent) -> Reply:
    """The heartbeat, a bind token, and the commands of an agent whose sandbox let it write nothing."""
    bound = None
    if TOKEN_WORD in event.tool_output:
        bound = sessions.confirm_token(runtime, event.session_id, client.name, event.tool_output)
    if bound is None:
        bound = sessions.confirm_start(runtime, event.session_id, client.name, event.tool_command)
    mission = bound or bound_mission(runtime, event)
    if mission is None or is_expired(runtime, mission, runtime.now()):
        return SILENCE  # an expired binding comes back by a person's word only, never by a tool
    warning = beat(runtime, mission, event)
    from omx_autoresearch.missions.relay import take_relayed

    take_relayed(runtime, mission, event)
    return Reply(context=briefing.bound(mission) if bound else "", person_message=warning)


def not_from_client(event: HookEvent) -> str:
    """Why this event did not come from the client itself; empty when it did.

    The hook's shell line ends in ``exec``, so a client's hook has the client for its parent. One that an agent starts
    from its tool shell has that shell, whatever it did to its environment; where the shell became the hook, the event
    came another way than the client's (``HookEvent.forgery``).
    """
    if event.forgery:
        return event.forgery
    parent = command_name(os.getppid())
    return f"a shell ({parent}) started this hook, not an agent CLI" if parent in SHELLS else ""


def started_within(runtime: Runtime) -> str:
    """Why the client of this hook was not started by a person but by an agent; empty when it was not."""
    outer = sessions.outer_client(runtime)
    return f"process {outer.pid}, a client bound to a mission, started this one" if outer else ""


class _Prompt:
    """A submitted prompt: a person's word, a command of ours, or neither."""

    def __init__(self, runtime: Runtime, client: Client, event: HookEvent) -> None:
        self._runtime = runtime
        self._client = client
        self._event = event

    def answer(self) -> Reply:
        """Carry out a command, or note that a person spoke."""
        command = command_in(self._event.prompt)
        why = "" if self._event.is_person else "its environment is that of an agent's tool shell"
        why = why or not_from_client(self._event) or started_within(self._runtime)
        if why:
            return SILENCE if command is None else self._refuse(command, why)
        if command is not None:
            return self._command(command)
        mission = bound_mission(self._runtime, self._event)
        if mission is None or mission.phase != "running":
            return SILENCE
        if is_expired(self._runtime, mission, self._runtime.now()):
            return Reply(context=_expired(mission))
        _remember_process(self._runtime, self._client, self._event, mission)
        warning = beat(self._runtime, mission, self._event)
        return Reply(context=self._note_person(mission.task_id), person_message=warning)

    def _refuse(self, command: PromptCommand, why: str) -> Reply:
        """A prompt event that no person typed: shown to the owner of the mission that it meant."""
        said = f"{briefing.MARK} `$autoresearch` is a person's word, and no person typed this: {why}"
        if command.verb == "status":
            return Reply(context=said)
        entry = Registry(self._runtime.home).find(self._event.session_id)
        meant = [command.task, entry.task_id if entry else "", *missions_around(self._runtime)]
        store = MissionStore(self._runtime.home)
        for task_id in meant:
            if task_id and store.exists(task_id):
                refuse_verb(
                    self._runtime, f"$autoresearch {command.verb}", task_id, (f"no person typed it: {why}",)
                )
                break
        return Reply(context=said)

    def _note_person(self, task_id: str) -> str:
        """A person spoke; returns the summary where a word of it changed since it was last said at a prompt."""
        path = self._runtime.home.mission(task_id).heartbeat_path
        with MissionStore(self._runtime.home).transaction(task_id, self._runtime.now()) as transaction:
            before, session_id = transaction.mission, self._event.session_id
            prompted = PersonPrompted(session_id, heartbeat.size_of(path))
            said = briefing.summary(prompted.apply(before, transaction.ts))
            digest = sha256(f"{session_id}\n{said}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
            transaction.record(replace(prompted, told_digest=digest))
        return "" if digest == before.told_digest else said

    def _command(self, command: PromptCommand) -> Reply:
        from omx_autoresearch.missions.prompt_events import carry_out

        return carry_out(self._runtime, self._client, self._event, command)
