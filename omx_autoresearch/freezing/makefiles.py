"""Read a makefile as make does, as far as text alone can tell: its variables, what it includes, and what that includes.

A variable stands for all values that the makefiles give it, since which one counts may hang on a condition. So more
is found than one run would read, never less.
"""

from __future__ import annotations

import glob
import os
import re
from itertools import pairwise

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.journal.safe_files import script_text

_ASSIGNED = re.compile(r"(?m)^ *(?:export +|override +)*([\w.-]+) *(?::{0,3}|\?|\+|!)= *([^\n#]*)")
_INCLUDED = re.compile(r"(?m)^ *(-|s)?include[ \t]+([^\n#]+)")
_REFERENCE = re.compile(r"\$(?:\(([\w.-]+)\)|\{([\w.-]+)\})")
_WILDCARD = re.compile(r"\$[({]wildcard +([^(){}]*)[)}]")
_OWN_FOLDER = re.compile(
    r"\$[({]dir +(?:\$\((?:abspath|realpath) +)?\$[({]lastword +\$[({]MAKEFILE_LIST[)}]+/?"
)
_MADE_BY_BUILDS = re.compile(r"(?:^|/)\.depend[\w.-]*$|\.(?:d|dep|deps|P|Po)$|%")
_KNOWN = {"MAKE": "make", "CURDIR": ".", "PWD": ".", "SHELL": "sh"}
_DEPTH = 8
_FILE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class MakeText:
    """What make reads in one folder.

    Attributes:
        text: of the makefile and all that it includes, with variables in place of their names.
        paths: included files that are there, relative to the workspace.
        absent: files that it includes where they are there, and that are not.
        globs: paths whose matches it includes, relative to the workspace.
    """

    text: str
    paths: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()


def named_by(words: list[str]) -> list[str]:
    """The makefiles that a call of make names by an option."""
    return [word for option, word in pairwise(words) if option in ("-f", "--file", "--makefile")]


def read(workspace_path: str, path: str, folder: str) -> MakeText:
    """Read the makefile at ``path``, for a make that runs in ``folder``; both relative to the workspace."""
    texts: list[str] = []
    values: dict[str, list[str]] = {}
    absent: dict[str, None] = {}
    globs: dict[str, None] = {}
    waiting, seen = [path], {path}
    while waiting and len(seen) < _FILE_LIMIT:
        current = waiting.pop(0)
        text = script_text(workspace_path, current).replace("\\\n", " ")
        own_folder = f"{os.path.dirname(current)}/".lstrip("/").replace("\\", r"\\")
        text = _OWN_FOLDER.sub(own_folder, text)
        texts.append(text)
        for name, value in _ASSIGNED.findall(text):
            values.setdefault(name, []).append(value.strip())
        for sign, words in _INCLUDED.findall(text):
            is_optional = bool(sign) or "wildcard" in words
            for word in expanded(words, values).split():
                place = os.path.normpath(os.path.join(folder, word.strip("\"'")))
                if place.startswith(("..", "/")) or "$" in place:
                    continue
                if any(char in place for char in "*?["):
                    globs[place] = None
                    found = sorted(glob.glob(place, root_dir=workspace_path))
                else:
                    found = [place] if os.path.isfile(os.path.join(workspace_path, place)) else []
                    if not found and is_optional and not _MADE_BY_BUILDS.search(place):
                        absent[place] = None
                waiting += [each for each in found if each not in seen]
                seen.update(found)
    whole = expanded("\n".join(texts), values)
    made = {os.path.normpath(os.path.join(folder, word)) for word in _targets(whole)}
    return MakeText(
        whole, tuple(sorted(seen - {path})), tuple(p for p in absent if p not in made), tuple(globs)
    )


def expanded(text: str, values: dict[str, list[str]]) -> str:
    """A text with the values of variables in the place of their names; what is not known stays."""

    def value_of(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return " ".join(values[name]) if name in values else _KNOWN.get(name, found[0])

    for _ in range(_DEPTH):
        before, text = text, _REFERENCE.sub(value_of, _WILDCARD.sub(r"\1", text))
        if text == before or len(text) > 4_000_000:
            break
    return text


def _targets(text: str) -> set[str]:
    """Files for which the makefile has a rule: make itself makes them."""
    return {word for line in re.findall(r"(?m)^([^\s:#=][^:#=\n]*):(?!=)", text) for word in line.split()}
