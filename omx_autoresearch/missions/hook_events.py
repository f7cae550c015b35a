"""Every other event of a session: its start, prompts, tools, compaction, its end.

None of them holds or releases a session. They keep the pulse, carry out the verbs of a sandboxed agent that can write
nothing itself and the commands that a person typed, and show the mission to the agent.
"""

from __future__ import annotations

import os
import os.path

from omx_autoresearch.agents.events import SILENCE, HookEvent, Reply
from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    CommandFault,
    StepIllegal,
    UsageError,
    WorkspaceFault,
)
from omx_autoresearch.foundation.records import dataclass, replace, sha256
from omx_autoresearch.missions import lifecycle_commands, sessions
from omx_autoresearch.missions.checkouts import worktree_of
from omx_autoresearch.missions.claims import note, relay_line, take_in_waiting
from omx_autoresearch.missions.records.sessions import PersonPrompted
from omx_autoresearch.missions.registry import (
    TOKEN_WORD,
    Registry,
    bound_mission,
    fault_reply,
    is_expired,
    leave_heartbeat,
    size_of,
)
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.prompts import command_in, usage_for
from omx_autoresearch.missions.speakers import (
    limit,
    note_handed,
    record_unproven,
    speaker_of,
    terminal_command,
)
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.views import draft_tasks, resolve_task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.agents.events import Client, Origin
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.accepted import Edit
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.rules.prompts import PromptCommand

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
    try:
        note_handed(runtime, event)
        if event.agent_id or event.kind not in BEATS or not event.session_id:
            return SILENCE
        if event.kind == "prompt":
            return _Prompt(runtime, client, event).answer()
        if event.kind == "session_start":
            return _session_start(runtime, client, event)
        if event.kind == "tool":
            return _tool(runtime, client, event)
        mission = bound_mission(runtime.home, event.session_id)
        if mission is not None and not is_expired(runtime, mission, runtime.now()):
            _beat(runtime, mission, event)
            if event.kind == "session_end" and mission.phase == "running" and event.source != "clear":
                from omx_autoresearch.missions.holds import record_end

                record_end(runtime, mission)
    except AutoresearchError as error:
        return fault_reply(runtime, event, error)
    return SILENCE


def _beat(runtime: Runtime, mission: Mission, event: HookEvent) -> str:
    """Leave the event's heartbeat; returns a warning when it could not be written."""
    return leave_heartbeat(runtime, mission, BEATS[event.kind], event.session_id)


def _session_start(runtime: Runtime, client: Client, event: HookEvent) -> Reply:
    speaker = speaker_of(runtime, event)
    reply = _started(runtime, client, event, speaker)
    if speaker.standing != "no_person":
        sessions.leave_others(runtime, event.session_id, sessions.client_process())
    return reply


def _started(runtime: Runtime, client: Client, event: HookEvent, speaker: Origin) -> Reply:
    mission = bound_mission(runtime.home, event.session_id)
    if mission is None and runtime.environ.get(sessions.TASK_VARIABLE):
        mission = sessions.consume_environment(runtime, event.session_id, client.name)
    if mission is None and event.source == "clear":
        if speaker.standing == "no_person":
            # an agent that forges the event would bind a session that no client runs
            for task_id in sessions.missions_around(runtime):
                lifecycle_commands.refuse_verb(runtime, "clear", task_id, (speaker.why,))
            return SILENCE
        mission = sessions.rebind_cleared(runtime, event.session_id, client.name)
    if mission is None:
        if event.source == "fork":
            sessions.note_fork(runtime, event.session_id, client.name, event.cwd)
        return SILENCE
    if is_expired(runtime, mission, runtime.now()):
        return Reply(context=briefing.expired(mission))
    _remember_process(runtime, client, event, mission)
    warning = _beat(runtime, mission, event)
    return Reply(context=briefing.summary(mission), person_message=warning)


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
    if " review " in event.tool_command:
        reviewed = _reviewed(runtime, event)
        if reviewed != SILENCE:
            return reviewed
    bound = None
    if TOKEN_WORD in event.tool_output:
        bound = sessions.confirm_token(runtime, event.session_id, client.name, event.tool_output)
    if bound is None:
        bound = sessions.confirm_start(runtime, event.session_id, client.name, event.tool_command)
    mission = bound or bound_mission(runtime.home, event.session_id)
    if mission is None or is_expired(runtime, mission, runtime.now()):
        return SILENCE  # an expired binding comes back by a person's word only, never by a tool
    warning = _beat(runtime, mission, event)

    take_relayed(runtime, mission, event)
    take_in_waiting(runtime, mission)
    return Reply(context=briefing.bound(mission) if bound else "", person_message=warning)


def _reviewed(runtime: Runtime, event: HookEvent) -> Reply:
    """The verdict of a session on another one's artifact; silence for any other command."""
    words = simple_words(event.tool_command) if len(event.tool_command) <= COMMAND_LIMIT else None
    if words is None or os.path.basename(words[0]) != PROGRAM or words[1] != "review":
        return SILENCE
    given = _parsed("review", words[2:])
    if given is None:
        return SILENCE
    from omx_autoresearch.missions.session_reviews import confirm

    return confirm(runtime, event, given.words, given.options)


class _Prompt:
    """A submitted prompt: a person's word, an `$autoresearch` command, or neither."""

    def __init__(self, runtime: Runtime, client: Client, event: HookEvent) -> None:
        self._runtime = runtime
        self._client = client
        self._event = event

    def answer(self) -> Reply:
        """Carry out a command, or note that a person spoke."""
        command = command_in(self._event.prompt)
        speaker = speaker_of(self._runtime, self._event)
        if speaker.standing == "no_person":
            return SILENCE if command is None else self._refuse(command, speaker.why)
        if command is not None:
            return carry_out(self._runtime, self._client, self._event, command, speaker)
        mission = bound_mission(self._runtime.home, self._event.session_id)
        if mission is None or mission.phase != "running":
            return SILENCE
        if is_expired(self._runtime, mission, self._runtime.now()):
            return Reply(context=briefing.expired(mission))
        _remember_process(self._runtime, self._client, self._event, mission)
        warning = _beat(self._runtime, mission, self._event)
        if speaker.standing == "unproven":
            return Reply(person_message=warning)  # it may be an agent's: no count begins anew
        return Reply(context=self._note_person(mission.task_id), person_message=warning)

    def _refuse(self, command: PromptCommand, why: str) -> Reply:
        """Refuse a prompt that no person typed; the mission that it names records the attempt for its owner.

        A person may have typed it all the same, word for word as an agent scheduled it, so another way is named.
        """
        said = f"`$autoresearch` must be typed by a person, and this was not: {why}"
        if command.verb == "status":
            return Reply(context=briefing.marked(f"{said}. In a terminal: omx-autoresearch status"))
        entry = Registry(self._runtime.home).find(self._event.session_id)
        meant = [command.task, entry.task_id if entry else "", *sessions.missions_around(self._runtime)]
        store = MissionStore(self._runtime.home)
        for task_id in meant:
            if task_id and store.exists(task_id):
                lifecycle_commands.refuse_verb(
                    self._runtime,
                    f"$autoresearch {command.verb}",
                    task_id,
                    (f"it was not typed by a person: {why}",),
                )
                said += _another_way(store, command.verb, task_id)
                break
        return Reply(context=briefing.marked(said), person_message=briefing.marked(said))

    def _note_person(self, task_id: str) -> str:
        """Record that a person spoke; returns the summary if it changed since the last prompt that showed it."""
        path = self._runtime.home.mission(task_id).heartbeat_path
        with MissionStore(self._runtime.home).transaction(task_id, self._runtime.now()) as transaction:
            before, session_id = transaction.mission, self._event.session_id
            prompted = PersonPrompted(session_id, size_of(path))
            said = briefing.summary(prompted.apply(before, transaction.ts))
            digest = sha256(f"{session_id}\n{said}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
            transaction.record(replace(prompted, told_digest=digest))
        return "" if digest == before.told_digest else said


def _another_way(store: MissionStore, verb: str, task_id: str) -> str:
    """What a person does whose words were taken for an agent's; empty for a mission that cannot be read."""
    try:
        command = terminal_command(verb, store.load(task_id))
    except AutoresearchError:
        return ""
    if command:
        return f". If you did type it, do the same in a terminal of your own: {command}"
    return f". If you did type it, type it in other words: $autoresearch {task_id} please"


# --- What a person typed to the agent: ``$autoresearch TASK`` and the owner verbs behind it.
#
# A prompt command counts as the owner's. One that no person can have typed never gets here; what an unproven one may do
# stands in missions/speakers.

BASELINE_SECONDS = 60.0
"""The time that a prompt hook has for a draft's baseline; a longer run is stopped, and the mission starts without."""


def carry_out(
    runtime: Runtime, client: Client, event: HookEvent, command: PromptCommand, speaker: Origin
) -> Reply:
    """Carry out a prompt command as far as its speaker may, and say what happened, to the agent and to the person."""
    task_id, digest, is_unproven = "", "", speaker.standing == "unproven"
    try:
        if command.verb == "yes":
            from omx_autoresearch.missions.accepted import offered

            task_id, digest = offered(runtime, command.task, draft_tasks(runtime, event.cwd))
        task_id = task_id or resolve_task(
            runtime,
            command.task,
            session_id=event.session_id,
            cwd=event.cwd,
            command="$autoresearch" if command.verb == "bind" else f"$autoresearch {command.verb}",
        )
        done = limit(runtime, command.verb, MissionStore(runtime.home).load(task_id)) if is_unproven else ""
        carry = getattr(_Typed(runtime, client, event, task_id, digest), command.verb)
        text: str = briefing.marked(done) if done else carry()
    except AutoresearchError as error:
        usage = usage_for(command) if isinstance(error, UsageError) else ""
        text = briefing.marked(usage or str(error))
        return Reply(context=text, person_message=text)
    finally:
        if is_unproven and task_id and command.verb != "status":
            record_unproven(runtime, task_id, command.verb, speaker.why)
    return Reply(context=text, person_message=text.splitlines()[0])


@dataclass(frozen=True, slots=True)
class _Typed:
    """One prompt command, resolved to its mission; ``digest`` is of the contract that the person accepts by it."""

    runtime: Runtime
    client: Client
    event: HookEvent
    task_id: str
    digest: str = ""

    def bind(self) -> str:
        mission = MissionStore(self.runtime.home).load(self.task_id)
        if mission.phase == "draft":
            from omx_autoresearch.missions.launch import StartOptions, start

            options = StartOptions(
                reason="prompt command",
                baseline_seconds=BASELINE_SECONDS,
                workspace_path=worktree_of(mission, self.event.cwd),
                is_sandboxed=self.event.is_sandboxed,
                take=self._take,
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

    yes = bind

    def _take(self, edits: tuple[Edit, ...], digest: str) -> None:
        """Take the contract that the person accepted by its code; show any other one, with its own code."""
        from omx_autoresearch.missions.accepted import offer, told_edits

        if digest == self.digest:
            return
        raise StepIllegal(
            "\n".join((told_edits(self.task_id), *(f"  - {edit}" for edit in edits))),
            next_step=f"to take exactly this, type: $autoresearch yes {offer(self.runtime, self.task_id, digest)}",
        )

    def pause(self) -> str:
        lifecycle_commands.pause(self.runtime, self.task_id, reason="prompt command")
        how = f"To go on: $autoresearch resume {self.task_id}"
        return self._beside_goal(f"mission {self.task_id} is paused and holds no session. {how}")

    def _beside_goal(self, said: str) -> str:
        """A message about a session that is let go, with what is told of the client's own goal."""
        goal = briefing.beside_goal(self.client.title, self.event.goal, self.client.goal_ways)
        return briefing.marked(f"{said}. {goal}" if goal else said)

    def resume(self) -> str:
        mission = MissionStore(self.runtime.home).load(self.task_id)
        if mission.phase == "blocked":
            lifecycle_commands.unblock(self.runtime, self.task_id, reason="prompt command")
        elif mission.phase != "running":
            lifecycle_commands.resume(self.runtime, self.task_id, reason="prompt command")
        return self.bind()

    def cancel(self) -> str:
        lifecycle_commands.cancel(self.runtime, self.task_id, reason="prompt command")
        return self._beside_goal(f"mission {self.task_id} is cancelled and cannot be reopened")

    def status(self) -> str:
        return briefing.summary(MissionStore(self.runtime.home).load(self.task_id))


# --- Verbs of an agent whose sandbox lets it write nothing: the hook carries them out from the tool event.
#
# The command ran in the sandbox and failed with :data:`~omx_autoresearch.missions.claims.RELAY_MARK` and its verb; the
# client's tool event brings command and output here. Only the verbs of :data:`VERBS` are carried out, only for the
# mission that this session is bound to, and only where the command is one simple command that a shell would not have
# changed. A finding's own words are never run: the stop looks at what it is offered for.

PROGRAM = "omx-autoresearch"
VERBS = ("block", "validate", "note", "direction", "finding")
COMMAND_LIMIT = 64 * 1024
_OPTIONS = {
    "block": ("--reason", "--needs"),
    "validate": ("--seconds",),
    "review": ("--summary", "--digest", "--seconds"),
    "note": (),
    "direction": ("--axis",),
    "finding": ("--summary", "--kind", "--criterion", "--id", "--command", "--path", "--seconds"),
}
_REPEATED = ("--axis", "--path")
_FLAGS = ("--json",)
_SWITCHES = {"direction": ("--pivot",), "review": ("--approve", "--reject")}
_PIVOT = "--pivot"
_NEVER_BARE = frozenset(";&|<>()`$\n\r\\*?[]{}~!#")
"""Characters that a shell acts on, or may change, outside quotes."""
_NEVER_QUOTED = frozenset("`$")


@dataclass(frozen=True, slots=True)
class Relayed:
    """A verb that the hook is asked to carry out.

    Attributes:
        verb: one of :data:`VERBS`.
        words: what stood beside options: perhaps a task id, perhaps a text.
        options: option to value; of ``--axis`` and ``--path`` all of them, a line each.
    """

    verb: str
    words: tuple[str, ...]
    options: dict[str, str]


def take_relayed(runtime: Runtime, mission: Mission, event: HookEvent) -> str:
    """Carry out the verb of a tool event that asks for it; a duplicate of the event changes nothing more.

    Returns:
        the verb that was carried out; empty for any other event.

    Raises:
        StateUntrusted: the journal cannot be trusted or written.
        CommandFault: no validation could be started.
    """
    relayed = relayed_verb(event.tool_command, event.tool_output)
    if relayed is None or event.agent_id:
        return ""
    if relayed.verb == "note":
        return _note(runtime, mission, relayed.words)
    if relayed.verb == "direction":
        return _direction(runtime, mission, relayed)
    if relayed.verb == "finding":
        return _finding(runtime, mission, relayed)
    if relayed.words not in ((), *((name,) for name in _names(mission))) or mission.phase != "running":
        return ""  # another mission is meant, or the verb has nothing to do here any more
    if relayed.verb == "block":
        return _block(runtime, mission, relayed.options)
    return _validate(runtime, mission, event)


def relayed_verb(command: str, output: str) -> Relayed | None:
    """The verb that a command asks for, when its output carries the mark of that very verb; None for any other."""
    if PROGRAM not in command or len(command) > COMMAND_LIMIT:
        return None
    words = simple_words(command)
    if words is None or len(words) < 2 or os.path.basename(words[0]) != PROGRAM or words[1] not in VERBS:
        return None
    verb = words[1]
    if relay_line(verb) not in output:
        return None
    return _parsed(verb, words[2:])


def simple_words(command: str) -> list[str] | None:
    """The words of one simple command without anything that a shell would act on; None for every other text.

    ``2>&1`` at its end changes nothing that concerns us, and agents like to write it.
    """
    text = command.strip()
    if text.endswith(" 2>&1"):
        text = text[: -len("2>&1")].rstrip()
    if not _is_simple(text):
        return None
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return None


def _is_simple(text: str) -> bool:
    """True when every character outside quotes is literal, and nothing inside double quotes would be expanded."""
    quote, is_escaped = "", False
    for char in text:
        if is_escaped:
            is_escaped = False
        elif quote == '"' and char == "\\":
            is_escaped = True
        elif quote and char == quote:
            quote = ""
        elif char in (_NEVER_QUOTED if quote == '"' else "" if quote else _NEVER_BARE):
            return False
        elif not quote and char in "'\"":
            quote = char
    return not quote


def _parsed(verb: str, words: list[str]) -> Relayed | None:
    """Options and words; None where an option is unknown, stands twice or has no value."""
    found: list[str] = []
    options: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, has_value, value = word.partition("=")
        if word == "--":
            found += waiting
            break
        if not word.startswith("-"):
            found.append(word)
        elif name in _REPEATED and name in _OPTIONS[verb] and (has_value or waiting):
            one = value if has_value else waiting.pop(0)
            options[name] = f"{options[name]}\n{one}" if name in options else one
        elif name in _OPTIONS[verb] and name not in options and (has_value or waiting):
            options[name] = value if has_value else waiting.pop(0)
        elif word in _SWITCHES.get(verb, ()):
            options[word] = ""
        elif word not in _FLAGS:
            return None
    return Relayed(verb, tuple(found), options)


def _note(runtime: Runtime, mission: Mission, words: tuple[str, ...]) -> str:
    text = _own_text(runtime, mission, words)
    if text is None:
        return ""
    try:
        note(runtime, mission.task_id, text, origin="tool-event")
    except UsageError:
        return ""  # an empty note
    return "note"


def _own_text(runtime: Runtime, mission: Mission, words: tuple[str, ...]) -> str | None:
    """The words of a text, after a task id if the first of several is one; None if that is another mission's."""
    if len(words) > 1 and MissionStore(runtime.home).exists(words[0]):
        return " ".join(words[1:]) if words[0] == mission.task_id else None
    return " ".join(words)


def _direction(runtime: Runtime, mission: Mission, relayed: Relayed) -> str:
    """A declaration, judged as if the agent could have made it itself; a refused one changes nothing."""
    from omx_autoresearch.missions.directions import declare, direction_of, is_declared_now

    action, *words = relayed.words or ("",)
    text = _own_text(runtime, mission, tuple(words))
    if action != "add" or text is None:
        return ""
    given = (item.partition("=") for item in relayed.options.get("--axis", "").split("\n"))
    axes = {name.strip().replace("-", "_"): value for name, is_given, value in given if is_given}
    direction = direction_of(text, axes, is_pivot=_PIVOT in relayed.options)
    if mission.phase != "running" or is_declared_now(mission, direction):
        return ""  # the mission runs no more, or this is a duplicate of the event
    return "direction" if declare(runtime, mission.task_id, direction).is_recorded else ""


def _finding(runtime: Runtime, mission: Mission, relayed: Relayed) -> str:
    """A finding in the agent's words, recorded as its twin over MCP is: no command is run for it."""
    from omx_autoresearch.missions.findings import Submission, add_finding

    action, *words = relayed.words or ("",)
    summary = relayed.options.get("--summary", "")
    if action != "add" or words not in ([], *([name] for name in _names(mission))) or summary == "-":
        return ""  # another mission is meant, or a text that only the command itself could read
    paths = tuple(filter(None, relayed.options.get("--path", "").split("\n")))
    given = {name: relayed.options.get(f"--{name}", "") for name in ("kind", "criterion", "id", "command")}
    made = sha256(repr((summary, paths, sorted(given.items()))).encode("utf-8", "surrogatepass")).hexdigest()
    submission = Submission(
        summary,
        kind=given["kind"] or "manual",  # type: ignore[arg-type]  # judged with every other fault
        id=given["id"] or f"f-{made[:12]}",  # the same for a duplicate of the event
        command=given["command"],
        paths=paths,
        criterion_id=given["criterion"],
    )
    try:
        recorded = add_finding(runtime, mission.task_id, submission, source="hook")
    except (StepIllegal, UsageError):
        return ""  # it is refused; the command itself has told the agent
    return "" if recorded.is_known else "finding"


def _names(mission: Mission) -> tuple[str, ...]:
    """The names by which a command may call the mission."""
    return mission.task_id, mission.task_id.split("-", 2)[-1]


def _block(runtime: Runtime, mission: Mission, options: dict[str, str]) -> str:
    reason, needs = options.get("--reason", ""), options.get("--needs", "")
    try:
        lifecycle_commands.block(runtime, mission.task_id, reason=reason, needs=needs, by="agent")
    except (StepIllegal, UsageError):
        return ""  # a duplicate, or a block that says nothing
    return "block"


def _validate(runtime: Runtime, mission: Mission, event: HookEvent) -> str:
    """Start a validation and leave it to itself; ``wait`` and the next stop see its verdict."""
    from omx_autoresearch.missions.validation.asked import validate_now

    try:
        validate_now(runtime, mission, wait_seconds=0.0, is_sandboxed=event.is_sandboxed)
    except (CommandFault, WorkspaceFault):
        return ""  # the command itself has told the agent
    return "validate"
