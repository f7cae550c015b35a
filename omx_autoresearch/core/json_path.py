"""Reading one number out of a JSON document by a small path.

    results[0].mean            a member, an item counted from 0 (or from the end: [-1]), a member of it
    $.results[0]["p 99.9"]     a leading $ is allowed; a name with dots, brackets or blanks stands in ["..."]
    bench.json#results[0].mean the document is a file, relative to the worktree; without # it is the last line of stdout

A key that stands twice in any object of the document is an error; so is a value that is no number.
"""

from __future__ import annotations

import json
import re

from omx_autoresearch.core.decimals import shown
from omx_autoresearch.core.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PATH_LIMIT = 500

_STEP = re.compile(
    r"""\.?(?P<name>[^\s.\[\]"'#$]+)|\[(?P<index>-?[0-9]{1,9})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
)


class JsonPathFault(ValueError):
    """The path, or what it leads to in this document, is not what it has to be; the message says why."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path that was understood.

    Attributes:
        file_path: of the document, relative to the worktree; empty for the last line of stdout.
        steps: names of members and numbers of items.
    """

    file_path: str
    steps: tuple[str | int, ...]


class _Number(str):
    """The raw text of a number in a document, told apart from a string."""

    __slots__ = ()


def parse_json_path(text: str) -> JsonPath:
    """Understand a path.

    Raises:
        JsonPathFault: it is none; says what is expected.
    """
    if len(text) > PATH_LIMIT:
        raise JsonPathFault(f"the JSON path has {len(text)} characters; at most {PATH_LIMIT} are taken")
    file_path, sharp, rest = text.partition("#")
    if not sharp:
        file_path, rest = "", text
    path = rest.strip().removeprefix("$")
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if not step or (step["name"] and at and path[at] != "."):
            raise JsonPathFault(
                f"the JSON path {shown(text)} cannot be read from {shown(path[at:], 20)} on; a path looks like"
                ' results[0].mean, a name with other signs like ["p 99.9"]'
            )
        at = step.end()
        steps.append(step["name"] or (int(step["index"]) if step["index"] else json.loads(step["quoted"])))
    if not steps:
        raise JsonPathFault(f"the JSON path {shown(text)} names no value; a path looks like results[0].mean")
    return JsonPath(file_path.strip(), tuple(steps))


def raw_number_at(document: str, path: JsonPath) -> str:
    """The raw text of the number that the path leads to; `decimal_of` judges it.

    Raises:
        JsonPathFault: no JSON, a doubled key, a path that leads nowhere, or a value that is no number.
    """
    value = _parsed(document)
    walked = ""
    for step in path.steps:
        value = _stepped(value, step, walked or "the document")
        walked += f"[{step}]" if isinstance(step, int) else f".{step}" if walked else step
    if not isinstance(value, _Number):
        kind = "a string" if isinstance(value, str) else _KINDS.get(type(value), "no number")
        raise JsonPathFault(f"{shown(walked)} is {kind} ({shown(_text_of(value), 40)}), not a number")
    return str(value)


_KINDS: dict[type, str] = {dict: "an object", list: "an array", bool: "a truth value", type(None): "null"}


def _text_of(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _stepped(value: Any, step: str | int, walked: str) -> Any:
    if isinstance(step, int):
        if not isinstance(value, list):
            raise JsonPathFault(f"{shown(walked)} is no array, so it has no item [{step}]")
        if not -len(value) <= step < len(value):
            raise JsonPathFault(f"{shown(walked)} has {len(value)} items, so there is no [{step}]")
        return value[step]
    if not isinstance(value, dict):
        raise JsonPathFault(f"{shown(walked)} is no object, so it has no {shown(step)}")
    if step not in value:
        names = ", ".join(shown(name, 40) for name in list(value)[:10])
        raise JsonPathFault(f"{shown(walked)} has no {shown(step)}; it has {names or 'nothing'}")
    return value[step]


def _parsed(document: str) -> Any:
    try:
        return json.loads(
            document.removeprefix("\ufeff"),
            object_pairs_hook=_object,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_Number,
        )
    except RecursionError:
        raise JsonPathFault("the document is nested too deeply") from None
    except json.JSONDecodeError as error:
        begin = shown(document.strip(), 60)
        raise JsonPathFault(f"the document is not JSON ({error}); it begins with {begin}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise JsonPathFault(f"the key {shown(key)} stands twice in one object of the document")
        made[key] = value
    return made
