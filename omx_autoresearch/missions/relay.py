"""Verbs of an agent whose sandbox lets it write nothing: the hook carries them out from the tool event.

The command ran in the sandbox, failed with :data:`~omx_autoresearch.missions.claims.RELAY_MARK` and its verb, and the
client's tool event brings command and output here. Only ``block``, ``validate``, ``note``, ``direction add`` and
``finding add``, only for the mission that this session is bound to, only where the command is one simple command that a
shell would not have changed. A finding's own words are never run: what it is offered for is looked at by the stop.
"""

from __future__ import annotations

import os.path

from omx_autoresearch.foundation.digests import sha256
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.missions.claims import note, relay_line
from omx_autoresearch.missions.store import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.agents.events import HookEvent
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission

PROGRAM = "omx-autoresearch"
VERBS = ("block", "validate", "note", "direction", "finding")
COMMAND_LIMIT = 64 * 1024
_OPTIONS = {
    "block": ("--reason", "--needs"),
    "validate": ("--seconds",),
    "note": (),
    "direction": ("--axis",),
    "finding": ("--summary", "--kind", "--criterion", "--id", "--command", "--path", "--seconds"),
}
_REPEATED = ("--axis", "--path")
_FLAGS = ("--json",)
_PIVOT = "--pivot"
_NEVER_BARE = frozenset(";&|<>()`$\n\r\\*?[]{}~!#")
"""What a shell acts on, or may change, outside quotes."""
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
        StateUntrusted: the journal cannot be believed or written.
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
        elif word == _PIVOT and verb == "direction":
            options[word] = ""
        elif word not in _FLAGS:
            return None
    return Relayed(verb, tuple(found), options)


def _note(runtime: Runtime, mission: Mission, words: tuple[str, ...]) -> str:
    """Its words are a text, after a task id where the first of several is one."""
    if len(words) > 1 and MissionStore(runtime.home).exists(words[0]):
        if words[0] != mission.task_id:
            return ""
        words = words[1:]
    try:
        note(runtime, mission.task_id, " ".join(words), origin="tool-event")
    except UsageError:
        return ""  # an empty note
    return "note"


def _direction(runtime: Runtime, mission: Mission, relayed: Relayed) -> str:
    """A declaration, judged as if the agent could have made it itself; a refused one changes nothing."""
    from omx_autoresearch.missions.directions import declare, is_declared_now
    from omx_autoresearch.missions.rules.directions import direction_of

    action, *words = relayed.words or ("",)
    if action != "add":
        return ""
    if len(words) > 1 and MissionStore(runtime.home).exists(words[0]):
        if words[0] != mission.task_id:
            return ""
        del words[0]
    given = (item.partition("=") for item in relayed.options.get("--axis", "").split("\n"))
    axes = {name.strip().replace("-", "_"): value for name, is_given, value in given if is_given}
    direction = direction_of(" ".join(words), axes, is_pivot=_PIVOT in relayed.options)
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
        return ""  # one that cannot stand; the command itself has said so
    return "" if recorded.is_known else "finding"


def _names(mission: Mission) -> tuple[str, ...]:
    """What a command may call the mission."""
    return mission.task_id, mission.task_id.split("-", 2)[-1]


def _block(runtime: Runtime, mission: Mission, options: dict[str, str]) -> str:
    from omx_autoresearch.missions.lifecycle_commands import block

    reason, needs = options.get("--reason", ""), options.get("--needs", "")
    try:
        block(runtime, mission.task_id, reason=reason, needs=needs, by="agent")
    except (StepIllegal, UsageError):
        return ""  # a duplicate, or a block that says nothing
    return "block"


def _validate(runtime: Runtime, mission: Mission, event: HookEvent) -> str:
    """Start a validation and leave it to itself; ``wait`` and the next stop see its verdict."""
    from omx_autoresearch.missions.looks import take_look
    from omx_autoresearch.missions.validation import runs

    look = take_look(runtime.home.mission(mission.task_id), mission)
    permit = runs.permission(runtime, mission, is_sandboxed=event.is_sandboxed)
    if look.changed_pins or not permit.may_run:
        return ""
    runs.validate(runtime, mission.task_id, runs.Ask(isolation=permit.isolation, look=look), wait_seconds=0.0)
    return "validate"
