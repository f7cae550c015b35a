"""The command that a person types in an agent: ``$autoresearch TASK``.

Only a prompt that *begins* with it is a command; free text, quotes, code and the runtime's own words bind nothing.
"""

from __future__ import annotations

import re

from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.foundation.types import PromptVerb


_COMMAND = re.compile(r"\A\s*[$/]autoresearch(?:[^\S\r\n]+(?P<words>[^\r\n]*))?(?:\r?\n|\Z)")
_WORD = re.compile(r"(?P<quote>[\"'`])(?P<quoted>.+?)(?P=quote)|(?:\\.|\S)+")
_VERBS = ("yes", "pause", "resume", "status", "cancel")
_USAGE = (
    "`$autoresearch TASK` has a mission hold this session; `$autoresearch status`, `pause`, `resume` and `cancel` act "
    "on it, or on the TASK behind them; omx-autoresearch list shows every TASK"
)
_TASK_FOLDER = re.compile(
    r"\.(?P<root>omx|reasonix)[/\\]+autoresearch[/\\]+(?P<task>[A-Za-z0-9][A-Za-z0-9._-]*)"
)
_PREFIX_BACKWARDS = re.compile(r"(?: \\|[^\s\"'`<>|])*")
_PREFIX_CHARACTERS = 1024
_TRIM = (
    " \t\"'`<>()[]{}.,;:!?"
    "\u3002\uff0c\u3001\uff1b\uff1a\uff1f\uff01\u300c\u300d\u300e\u300f\u201c\u201d\u2018\u2019"
)
"""Characters that people type around a name: quotes, brackets, the end of a sentence, also in Chinese and Japanese."""


@dataclass(frozen=True, slots=True)
class NamedFolder:
    """A task's folder that a text names.

    Attributes:
        task_id: the folder's name.
        root: ``omx`` or ``reasonix``.
        path: as it was written, up to the folder; with ``/`` where it was written with backslashes.
    """

    task_id: str
    root: str
    path: str


@dataclass(frozen=True, slots=True)
class PromptCommand:
    """A command found in a prompt.

    Attributes:
        verb: ``bind`` for ``$autoresearch TASK``; the owner verbs by name.
        task: the task id meant; empty when none was named (the bound or only one is meant). Of ``yes``, the code.
    """

    verb: PromptVerb
    task: str


def command_in(prompt: str) -> PromptCommand | None:
    """The command that a prompt begins with, or None."""
    found = _COMMAND.match(prompt)
    if found is None:
        return None
    words = (found["words"] or "").strip()
    bare = words.split(None, 1)[0] if words else ""
    if bare.lower() in _VERBS:
        verb: PromptVerb = bare.lower()  # type: ignore[assignment]
        return PromptCommand(verb, task_named(_first_word(words[len(bare) :].lstrip())))
    return PromptCommand("bind", task_named(_first_word(words)))


def usage_for(command: PromptCommand) -> str:
    """What may be typed, for a command whose word is no mission: ``help``, or a verb that was mistyped; else empty."""
    from difflib import get_close_matches

    word = command.task.lower() if command.verb == "bind" else ""
    if word in ("help", "-h", "--help"):
        return _USAGE
    near = get_close_matches(word, _VERBS, 1, 0.7)
    return f"no mission is called {word!r}; did you mean `$autoresearch {near[0]}`? {_USAGE}" if near else ""


def task_named(word: str) -> str:
    """The task id in a word: itself, or the folder's name in a ``.omx/autoresearch/ID/`` path, quotes taken off.

    A word that holds nothing but punctuation stays as it is: it names a task that does not exist, not the only one.
    """
    named = paths_named(word)
    if named:
        return named[0].task_id
    return word.strip(_TRIM).rstrip("/\\") or word


def paths_named(text: str) -> tuple[NamedFolder, ...]:
    """Every ``.omx/autoresearch/ID`` and ``.reasonix/autoresearch/ID`` folder that a text names, in order, each once.

    What stands before, behind and around it (another machine's prefix, quotes, escaped spaces, doubled backslashes, a
    file of the folder, the end of a sentence) changes nothing of the id.
    """
    found: dict[tuple[str, str], NamedFolder] = {}
    for match in _TASK_FOLDER.finditer(text):
        task_id = match["task"].rstrip(".-_")
        before = text[max(0, match.start() - _PREFIX_CHARACTERS) : match.start()]
        path = f"{_prefix(before)}.{match['root']}/autoresearch/{task_id}"
        named = NamedFolder(task_id, match["root"], re.sub(r"[/\\]+", "/", path))
        found.setdefault((named.root, task_id), named)
    return tuple(found.values())


def _prefix(before: str) -> str:
    """The part of the text before a path that belongs to it: from a blank, or from an opening quotation mark."""
    mark = max(before.rfind(quote) for quote in "\"'`")
    if mark >= 0 and not before[:mark][-1:].isalnum() and "\n" not in before[mark:]:
        return before[mark + 1 :]
    bare = _PREFIX_BACKWARDS.match(before[::-1])
    return bare[0][::-1].replace("\\ ", " ").lstrip("([{") if bare else ""


def _first_word(text: str) -> str:
    """The first word; quotes and backslashes keep a path with spaces together."""
    found = _WORD.match(text)
    if found is None:
        return ""
    return found["quoted"] or re.sub(r"\\(\s)", r"\1", found[0])
