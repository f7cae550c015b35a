"""The words that a person types to an agent and that mean us: ``$autoresearch TASK`` and nothing else.

Only a prompt that *begins* with the command is one; free text, quotes and our own words never bind anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PromptVerb = Literal["bind", "pause", "resume", "status", "cancel"]

_COMMAND = re.compile(r"\A\s*[$/]autoresearch(?:[ \t]+(?P<words>[^\r\n]*))?(?:\r?\n|\Z)")
_VERBS = ("pause", "resume", "status", "cancel")
_TASK_PATH = re.compile(r"\.(?:omx|reasonix)[/\\]autoresearch[/\\](?P<task>[^/\\\s\"'`]+)")
_TRIM = " \t\"'`<>()[]{}.,;:!?"


@dataclass(frozen=True, slots=True)
class PromptCommand:
    """A command found in a prompt.

    Attributes:
        verb: ``bind`` for ``$autoresearch TASK``; the owner verbs by name.
        task: the task id meant; empty when none was named (the bound or only one is meant).
    """

    verb: PromptVerb
    task: str


def command_in(prompt: str) -> PromptCommand | None:
    """The command that a prompt begins with, or None."""
    found = _COMMAND.match(prompt)
    if found is None:
        return None
    words = (found.group("words") or "").split()
    if words and words[0].lower() in _VERBS:
        verb: PromptVerb = words[0].lower()  # type: ignore[assignment]
        return PromptCommand(verb, task_named(words[1]) if len(words) > 1 else "")
    return PromptCommand("bind", task_named(words[0]) if words else "")


def task_named(word: str) -> str:
    """The task id in a word: itself, or the folder's name in a ``.omx/autoresearch/ID/`` path, quotes taken off."""
    path = _TASK_PATH.search(word)
    if path:
        return path.group("task").strip(_TRIM)
    return word.strip(_TRIM).rstrip("/\\")
