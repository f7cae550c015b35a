"""Reading the JSON of any client (one checked object, typed fields, bounded texts), and writing the reply."""

from __future__ import annotations

from omx_autoresearch.agents.events import BY_SIGNS, BackgroundTask, Client, HookEvent, Origin, Reply
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.text import MARK, harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from omx_autoresearch.foundation.types import EventKind, HostEnd

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
"""We do not read a larger payload. The largest one observed had 538 KB, a Gemini tool event."""

MAX_TEXT_CHARS = 64 * 1024
"""How much we keep of a tool's output and of the last message: the end, which has a bind token and the last words."""

PROMPTING_TOOLS = ("wakeup", "cron", "schedul", "send", "followup", "goal", "loop", "remind", "skill")
"""Words in the names of tools whose texts a client may submit as prompts: now, later, or to another agent."""

_MAX_HANDED_TEXTS = 1000
_MAX_HANDED_CHARS = 256 * 1024
_COMMANDS = ("$autoresearch", "/autoresearch")
_GOAL_PREFIXES = ("/goal ", "Goal set: ")
"""Claude Code submits a goal as one of these; the model may have set it."""
_MAX_TASKS = 100
_MAX_TASK_CHARS = 200
_SOURCES = {"session_start": "source", "session_end": "reason"}
"""The field that says why a session began or ended."""


class PayloadFault(ValueError):
    """The payload cannot be read; the message is one line."""


def read_object(raw: bytes) -> dict[str, Any]:
    """Parse a hook's stdin.

    Args:
        raw: the bytes, UTF-8 with or without a byte order mark; invalid bytes become U+FFFD in any locale.

    Raises:
        PayloadFault: it is too large, not JSON, nested too deeply, or not an object, or a key appears twice in it.
    """
    if len(raw) > MAX_PAYLOAD_BYTES:
        raise PayloadFault(f"the payload is larger than {MAX_PAYLOAD_BYTES} bytes")
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        # Inner objects end first, so the last call is for the outermost one. A repeated key inside tool data does not
        # concern us.
        found = dict(items)
        repeated[:] = [] if len(found) == len(items) else [key for key, _ in items]
        return found

    try:
        value = json_codec.decoder(pairs)(raw.decode("utf-8-sig", "replace"))
    except RecursionError:
        raise PayloadFault("the payload is nested too deeply") from None
    except ValueError as error:
        raise PayloadFault(f"the payload is not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise PayloadFault(f"the payload is a JSON {type(value).__name__}, not an object")
    if repeated:
        twice = next(key for key in repeated if repeated.count(key) > 1)
        raise PayloadFault(f"the key {twice[:80]!r} appears twice in the payload")
    return value


def text_of(payload: Mapping[str, Any], key: str) -> str:
    """A text field; empty if it is missing, null or of another type."""
    value = payload.get(key)
    return json_codec.without_surrogates(value) if isinstance(value, str) else ""


def end_of(text: str) -> str:
    """The last :data:`MAX_TEXT_CHARS` characters."""
    return text[-MAX_TEXT_CHARS:]


def session_id_of(payload: Mapping[str, Any]) -> str:
    """The session id, verbatim; empty if the payload has none.

    Raises:
        PayloadFault: it is not a text, so that no session can be proven.
    """
    value = payload.get("session_id")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PayloadFault(f"session_id is a JSON {type(value).__name__}, not text")
    return json_codec.without_surrogates(value)


def tool_command_of(payload: Mapping[str, Any], shell_tools: tuple[str, ...]) -> str:
    """The shell command of a tool event (``tool_input.command``); empty for other tools.

    Args:
        payload: of the event.
        shell_tools: the client's names of its own shell tool; other tools may have a ``command`` argument too.
    """
    if payload.get("tool_name") not in shell_tools:
        return ""
    tool_input = payload.get("tool_input")
    command = tool_input.get("command") if isinstance(tool_input, dict) else None
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        # an argument vector; of `bash -lc SCRIPT` the script is the command
        command = command[2] if len(command) == 3 and command[1] in ("-c", "-lc") else " ".join(command)
    return json_codec.without_surrogates(command) if isinstance(command, str) else ""


def output_text(value: object) -> str:
    """The text in a tool's response: a text, a list of parts, or an object with one of the usual fields."""
    if isinstance(value, str):
        return json_codec.without_surrogates(value)
    if isinstance(value, list):
        return "\n".join(filter(None, map(output_text, value[:1000])))
    if not isinstance(value, dict):
        return ""
    fields = [
        value[key]
        for key in ("stdout", "stderr", "text", "output", "error")
        if isinstance(value.get(key), str)
    ]
    content = value.get("content")
    # one level only: real responses nest no deeper, and a hostile one must not recurse
    parts = (
        [part.get("text") for part in content[:1000] if isinstance(part, dict)]
        if isinstance(content, list)
        else []
    )
    texts = [*fields, *(part for part in parts if isinstance(part, str))]
    if isinstance(content, str):
        texts.append(content)
    return "\n".join(json_codec.without_surrogates(text) for text in texts if text)


def event_of(
    client: Client,
    payload: Mapping[str, Any],
    *,
    shell_tools: tuple[str, ...],
    last_message: str,
    prefix: str = "",
    **own: Any,
) -> HookEvent:
    """The event of a payload, from the fields that all clients share.

    Args:
        client: the facts about the client; its entries give the kind of each event.
        payload: the object that was read.
        shell_tools: the client's names of its own shell tool.
        last_message: the field that holds the agent's last text.
        prefix: the pattern of text that the client puts before a prompt. It is removed, except its first group.
        own: further fields of the event; ``tool_response`` is the output of a tool, if the client sends it in a field
            of another name.

    Raises:
        PayloadFault: the session id is not a text.
    """
    native_event = text_of(payload, "hook_event_name")
    kind: EventKind = next((one.kind for one in client.entries if one.native_event == native_event), "other")
    agent_id = text_of(payload, "agent_id")
    if kind == "stop" and agent_id:
        kind = "subagent_stop"
    prompt = _without(prefix, text_of(payload, "prompt")) if kind == "prompt" else ""
    response = own.pop("tool_response", payload.get("tool_response"))
    if kind == "tool":
        own["tool_command"] = tool_command_of(payload, shell_tools)
        own["tool_output"] = end_of(output_text(response))
        if payload.get("tool_name") not in shell_tools:
            own["handed_texts"] = tuple(_without(prefix, text) for text in handed_texts(payload))
    return HookEvent(
        client=client.name,
        kind=kind,
        native_event=native_event,
        session_id=session_id_of(payload),
        cwd=text_of(payload, "cwd"),
        agent_id=agent_id,
        prompt=prompt,
        origin=prompt_origin(prompt, agent_id) if kind == "prompt" else BY_SIGNS,
        source=text_of(payload, _SOURCES[kind]) if kind in _SOURCES else "",
        host_end=host_end_of(payload) if kind in ("stop", "subagent_stop", "stop_failure") else "",
        last_message=end_of(text_of(payload, last_message)),
        transcript_path=text_of(payload, "transcript_path"),
        permission_mode=text_of(payload, "permission_mode"),
        **own,
    )


def _without(prefix: str, prompt: str) -> str:
    if not prompt or not prefix:
        return prompt
    import re  # only if there is a prompt

    return re.sub(rf"\A{prefix}", r"\1", prompt)


def prompt_origin(prompt: str, agent_id: str) -> Origin:
    """What the payload of a submitted prompt tells about its author.

    No person wrote an empty prompt (a client's own continuation), a sub-agent's prompt, our refusal, which Gemini
    submits as the next prompt, or a message of the client in an element of its own: ``<task-notification>``,
    ``<agent-message from=...>``, ``<codex_internal_context>``. Their names have a hyphen or an underscore; HTML's have
    none.
    """
    words = prompt.lstrip()
    if agent_id:
        return Origin("no_person", "a sub-agent was given it")
    if not words:
        return Origin("no_person", "it is empty")
    if words.startswith(MARK):
        return Origin("no_person", "it is a text of omx-autoresearch")
    name = words[1:80].replace(">", " ").partition(" ")[0] if words[0] == "<" else ""
    if ("-" in name or "_" in name) and name.replace("-", "").replace("_", "").isalnum():
        return Origin("no_person", f"it is a message of the agent CLI (<{name}>)")
    return BY_SIGNS


def prompt_key(text: str) -> str:
    """What makes two prompts the same: the characters without the white space, of a command its first line alone."""
    words = text.strip()
    for prefix in _GOAL_PREFIXES:
        words = words.removeprefix(prefix).lstrip()
    if words.startswith(_COMMANDS):
        words = "$" + words[1:].splitlines()[0]
    return "".join(words.split())


def handed_texts(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts of a tool call that may come back as a prompt.

    Those of a tool of :data:`PROMPTING_TOOLS` are taken, a list of parts also as the one prompt that it becomes, and a
    skill with its arguments as they would be typed. Any other tool may still be one that submits prompts, so a text
    that begins with our command is taken from each. Past :data:`_MAX_HANDED_TEXTS` only such a text is taken: however
    many others a call holds, no command hides among them.
    """
    found: list[str] = []

    def take(text: str) -> None:
        text = json_codec.without_surrogates(text[:_MAX_HANDED_CHARS])
        if len(found) < _MAX_HANDED_TEXTS or text.lstrip().startswith(_COMMANDS):
            found.append(text)

    waiting = [payload.get("tool_input")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            take(value)
        elif isinstance(value, list):
            parts = [part.get("text") if isinstance(part, dict) else part for part in value]
            take("".join(part for part in parts if isinstance(part, str)))
            waiting += reversed(value)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
    name = text_of(payload, "tool_name").lower()
    if any(word in name for word in PROMPTING_TOOLS):
        return (*filter(None, found), "/" + " ".join(found))
    return tuple(text for text in found if text.lstrip().startswith(_COMMANDS))


def running_tasks(value: object) -> tuple[BackgroundTask, ...]:
    """The tasks of a client's list that still run; a malformed list counts as empty."""
    found = []
    for task in value[:_MAX_TASKS] if isinstance(value, list) else ():
        if isinstance(task, dict) and task.get("status") in ("running", "pending"):
            what = next(
                filter(None, (text_of(task, key) for key in ("command", "description", "type"))), "a task"
            )
            found.append(
                BackgroundTask((text_of(task, "id") or what)[:_MAX_TASK_CHARS], what[:_MAX_TASK_CHARS])
            )
    return tuple(found)


_END_FIELDS = ("stop_reason", "end_turn_reason", "reason", "error", "error_message")
_EXACT_ENDS: dict[HostEnd, str] = {
    "user_abort": "abort aborted cancel cancelled canceled interrupt interrupted",
    "compaction": "compact compaction",
    "auth_failure": "401 unauthorized",
    "rate_limit": "429 overloaded",
}
"""The single words of the hosts, by their meaning."""
_PHRASE_ENDS: dict[HostEnd, tuple[str, ...]] = {
    "context_limit": ("context limit", "context window", "context length exceeded", "context exceeded",
                      "context full", "context overflow", "max context", "token limit exceeded",
                      "conversation too long", "conversation is too long", "prompt too long", "prompt is too long",
                      "input too long", "input is too long"),
    "compaction": ("auto compact", "auto compaction", "compaction required", "needs compaction"),
    "rate_limit": ("rate limit", "rate limited", "ratelimit", "too many requests", "quota exceeded", "usage limit",
                   "overloaded error", "billing error", "billing"),
    "auth_failure": ("authentication failed", "authentication error", "auth failure", "auth failed", "auth error",
                     "invalid api key", "not logged in", "oauth token expired", "permission error"),
    "user_abort": ("user abort", "user aborted", "aborted by user", "user cancel", "user cancelled", "user canceled",
                   "cancelled by user", "canceled by user", "user interrupt", "user interrupted",
                   "interrupted by user", "user exit", "user stop", "user requested", "manual stop"),
}  # fmt: skip
"""The phrases of the hosts, by their meaning; they match as whole words in a field that only the host writes."""


def host_end_of(payload: Mapping[str, Any]) -> HostEnd:
    """Why the host ended the turn, from its typed fields in snake and camel case; empty if the agent stopped.

    We never look at the last message: a model's text cannot open the gate.
    """
    for field in _END_FIELDS:
        head, *rest = field.split("_")
        for key in (field, head + "".join(word.capitalize() for word in rest)):
            value = payload.get(key)
            if isinstance(value, dict):
                value = value.get("type") or value.get("code") or value.get("message")
            if isinstance(value, str) and (end := _named_end(value[:500])):
                return end
    return ""


def _named_end(value: str) -> HostEnd:
    import re  # only if a host gives a reason: loading it costs more than the rest of an event

    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", value).lower()
    words = " ".join(re.findall(r"[a-z0-9]+", words))
    for end, names in _EXACT_ENDS.items():
        if words in names.split():
            return end
    for end, phrases in _PHRASE_ENDS.items():
        if any(f" {phrase} " in f" {words} " for phrase in phrases):
            return end
    return ""


# --- Writing the one JSON object that a client reads from a hook's stdout, or nothing at all.
#
# Every client lets the agent go if a hook prints a stray line or an unknown key, so we print only ``decision`` and
# ``reason`` on a stop, ``hookSpecificOutput.additionalContext`` and ``systemMessage`` for events that accept them.

MAX_REPLY_CHARS = 9_500
"""A text of a reply. Claude Code shows 10,000 characters of a hook's text and puts a longer one into a file."""

_CONTEXT_KINDS = ("session_start", "prompt", "tool")
_MESSAGE_KINDS = ("stop", "pre_compact", *_CONTEXT_KINDS)
_encode = json_codec.encoder(is_ascii=True, separators=(", ", ": "))


def fitting(text: str) -> str:
    """The text without control characters, at most :data:`MAX_REPLY_CHARS` long; a mark replaces a cut middle."""
    text = harmless(text).strip()
    if len(text) <= MAX_REPLY_CHARS:
        return text
    half = (MAX_REPLY_CHARS - 100) // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def socket_origin(event: HookEvent, began_at: str) -> Origin:
    """Whether a client that sends its events through a socket sent this one: the kernel names the sender."""
    from omx_autoresearch.agents import machine

    del event, began_at  # the kernel needs neither
    return machine.socket_origin()


def render_reply(event: HookEvent, reply: Reply) -> bytes:
    """Render a reply; ``b""`` prints nothing, and the agent goes on.

    Args:
        event: the event.
        reply: the reply. Only a stop can be refused, and only some events accept a context.
    """
    answer: dict[str, object] = {}
    if event.kind == "stop" and (refusal := fitting(reply.refusal)):
        answer["decision"] = "block"
        answer["reason"] = refusal
    if event.kind == "stop" and reply.ends_turn and "decision" not in answer:
        answer["continue"] = False
        answer["stopReason"] = fitting(reply.ends_turn)
    if event.kind in _MESSAGE_KINDS and (message := fitting(reply.person_message)):
        answer["systemMessage"] = message
    if event.kind in _CONTEXT_KINDS and (context := fitting(reply.context)):
        answer["hookSpecificOutput"] = {"hookEventName": event.native_event, "additionalContext": context}
    return _encode(answer).encode("ascii") + b"\n" if answer else b""
