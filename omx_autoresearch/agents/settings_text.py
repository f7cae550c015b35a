"""Changing a few values in a settings text, JSON or TOML, without changing any other character.

``json.loads`` and ``json.dumps`` would lose a person's indentation, comments and number formats. Here we parse a JSON
text to a tree of nodes with positions, and splice each change in. Settings are small, so each change parses the text
again. A TOML table is added at the end of the text or cut out as a whole, and the result is parsed before it is used.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass, field
from typing import Any

EMPTY = "{}\n"
Keys = tuple[str | int, ...]
"""The path to a value: keys of objects, indices of lists."""

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")
_MAX_DEPTH = 100


class TextFault(ValueError):
    """The text cannot be read, or cannot be changed without changing something else.

    Attributes:
        line: the line of the fault, from 1.
    """

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        self.line = text.count("\n", 0, position) + 1
        super().__init__(message)


@dataclass(slots=True)
class Node:
    """One value in a text.

    Attributes:
        kind: ``object``, ``array`` or ``scalar``.
        start: the position of its first character; ``end`` is the position after its last.
        parts: the members of an object or the items of a list, in the order of the text.
        commas: the position of the comma after each part but the last.
    """

    kind: str
    start: int
    end: int = 0
    parts: list[Part] = field(default_factory=list)
    commas: list[int] = field(default_factory=list)

    def index(self, key: str | int) -> int | None:
        """The index of a key's member, or of an item; None if there is none."""
        return next((place for place, part in enumerate(self.parts) if part.key == key), None)

    def get(self, key: str | int) -> Node | None:
        """The value of a key, or at an index of a list; None if there is none."""
        return next((part.value for part in self.parts if part.key == key), None)


@dataclass(slots=True)
class Part:
    """A member of an object or an item of a list.

    Attributes:
        key: the member's key, or the item's index.
        start: the position of its first character, that of the key for a member.
        value: its value, at its end.
    """

    key: str | int
    start: int
    value: Node


def parse(text: str, *, comments: bool) -> Node:
    """Parse a whole text to its root.

    Args:
        text: JSON, without a byte order mark.
        comments: whether comments are allowed; a trailing comma is not, since no client accepts one.

    Raises:
        TextFault: the text is not such JSON, or a key appears twice in an object.
    """
    parser = _Parser(text, comments)
    root = parser.value(parser.space(0), 0)
    rest = parser.space(root.end)
    if rest < len(text):
        raise TextFault("there is more text after the closing bracket", text, rest)
    return root


class _Parser:
    def __init__(self, text: str, comments: bool) -> None:
        self.text = text
        self.comments = comments

    def space(self, at: int) -> int:
        while True:
            at = self._match(_SPACE, at) or at
            comment = _COMMENT.match(self.text, at)
            if not comment:
                return at
            if not self.comments:
                raise TextFault("it has a comment, which this client does not read", self.text, at)
            at = comment.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise TextFault("the values are nested too deeply", self.text, at)
        opening = self.text[at : at + 1]
        if opening in ("{", "["):
            return self._container(at, depth)
        end = self._match(_STRING if opening == '"' else _SCALAR, at)
        if end is None:
            raise TextFault("a value is expected", self.text, at)
        return Node("scalar", at, end)

    def _container(self, at: int, depth: int) -> Node:
        node = Node("object" if self.text[at] == "{" else "array", at)
        closing = "}" if node.kind == "object" else "]"
        at = self.space(at + 1)
        while self.text[at : at + 1] != closing:
            if node.parts:
                node.commas.append(at)
                at = self.space(self._expect(",", at))
            start = at
            key: str | int = len(node.parts)
            if node.kind == "object":
                key, at = self._key(node, at)
            node.parts.append(Part(key, start, self.value(at, depth + 1)))
            at = self.space(node.parts[-1].value.end)
        node.end = at + 1
        return node

    def _key(self, node: Node, at: int) -> tuple[str, int]:
        """A member's key, and the position of its value."""
        end = self._match(_STRING, at)
        if end is None:
            raise TextFault("a key in double quotes is expected", self.text, at)
        key = json.loads(self.text[at:end])
        if node.get(key) is not None:
            raise TextFault(f"the key {key!r} appears twice", self.text, at)
        return key, self.space(self._expect(":", self.space(end)))

    def _expect(self, sign: str, at: int) -> int:
        if self.text[at : at + 1] != sign:
            raise TextFault(f"{sign!r} is expected", self.text, at)
        return at + 1

    def _match(self, pattern: re.Pattern[str], at: int) -> int | None:
        match = pattern.match(self.text, at)
        return match.end() if match else None


def value_of(text: str, node: Node) -> Any:
    """A node's value in Python, without comments."""
    if node.kind == "object":
        return {part.key: value_of(text, part.value) for part in node.parts}
    if node.kind == "array":
        return [value_of(text, part.value) for part in node.parts]
    value: object = json.loads(text[node.start : node.end])
    return value


def _replaced(text: str, node: Node, value: object) -> str:
    """The text with a value in place of a node."""
    return text[: node.start] + _rendered(text, value, _indent_at(text, node.start)) + text[node.end :]


def _without_part(text: str, node: Node, index: int) -> str:
    """The text without a member or an item, its comma and its line; comments stay."""
    parts = node.parts
    start, end = parts[index].start, parts[index].value.end
    if index + 1 < len(parts):
        comma, following = node.commas[index], parts[index + 1].start
        between = text[end:comma] + text[comma + 1 : following]
        return text[:start] + (between.lstrip() if between.strip() else "") + text[following:]
    if index > 0:
        comma = node.commas[index - 1]
        return text[:comma] + text[comma + 1 : start].rstrip() + text[end:]
    inside = text[node.start + 1 : start] + text[end : node.end - 1]
    return text[: node.start + 1] + (inside if inside.strip() else "") + text[node.end - 1 :]


def _with_part(text: str, node: Node, prefix: str, value: object) -> str:
    closing = node.end - 1
    if not node.parts and not text[node.start + 1 : closing].strip():
        outer = _indent_at(text, node.start)
        inner = outer + _unit(text)
        body = prefix + _rendered(text, value, inner)
        return f"{text[: node.start + 1]}{_newline(text)}{inner}{body}{_newline(text)}{outer}{text[closing:]}"
    inside = text[node.start : closing].rstrip()
    at = node.start + len(inside)
    if "\n" not in text[node.start : closing]:  # one line stays one line
        separator = ", " if node.parts else " "
        return f"{text[:at]}{separator}{prefix}{json.dumps(value, ensure_ascii=False)}{text[at:]}"
    last = node.parts[-1].value.end if node.parts else at
    inner = (
        _indent_at(text, node.parts[-1].start) if node.parts else _indent_at(text, node.start) + _unit(text)
    )
    comma = "," if node.parts else ""
    body = f"{_newline(text)}{inner}{prefix}{_rendered(text, value, inner)}"
    return f"{text[:last]}{comma}{text[last:at]}{body}{text[at:]}"


def _rendered(text: str, value: object, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """The text's unit of indentation, taken from its first indented line."""
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else "  "


def _indent_at(text: str, position: int) -> str:
    """The indentation of the line at a position."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    match = re.match(r"[ \t]*", line)
    return match[0] if match else ""


# --- One value at a path of keys: read, set, removed.


def value_at(text: str, keys: Keys, *, comments: bool) -> Any:
    """The value at a path; None if there is none.

    Raises:
        TextFault: the text cannot be read.
    """
    node = _node(text, keys, comments=comments) if text.strip() else None
    return value_of(text, node) if node else None


def with_value(text: str, keys: Keys, value: object, *, comments: bool) -> str:
    """Set a value; missing containers on its path are created.

    Args:
        text: the settings; an empty text counts as an empty object.
        keys: the path to the value; an index after the end of a list appends to the list.
        value: the new value.
        comments: whether the client reads comments.

    Raises:
        TextFault: the text cannot be read, or a container on the path has another type.
    """
    text = text if text.strip() else EMPTY
    node = parse(text, comments=comments)
    for place, key in enumerate(keys):
        kind, what = ("array", "a list") if isinstance(key, int) else ("object", "an object")
        if node.kind != kind:
            name = ".".join(str(one) for one in keys[:place])
            where = f'"{name}" is' if name else "the settings are"
            raise TextFault(f"{where} not {what}", text, node.start)
        inner = node.get(key)
        if inner is None:
            for missing in reversed(keys[place + 1 :]):
                value = [value] if isinstance(missing, int) else {missing: value}
            return _with_part(text, node, "" if isinstance(key, int) else json.dumps(key) + ": ", value)
        node = inner
    return text if value_of(text, node) == value else _replaced(text, node, value)


def without_value(text: str, keys: Keys, *, comments: bool) -> str:
    """Remove a value, and the containers on its path that become empty.

    Raises:
        TextFault: the text cannot be read.
    """
    for length in range(len(keys), 0, -1):
        node = _node(text, keys[:length], comments=comments) if text.strip() else None
        if node is None or (length < len(keys) and not _is_bare(text, node)):
            return text
        outer = _node(text, keys[: length - 1], comments=comments)
        place = outer.index(keys[length - 1]) if outer else None
        assert outer is not None, "what holds a value is there"
        assert place is not None, "the value was found"
        text = _without_part(text, outer, place)
    return text


def _node(text: str, keys: Keys, *, comments: bool) -> Node | None:
    node: Node | None = parse(text, comments=comments)
    for key in keys:
        node = node.get(key) if node else None
    return node


def _is_bare(text: str, node: Node) -> bool:
    return node.kind != "scalar" and not node.parts and not text[node.start + 1 : node.end - 1].strip()


def inner_value(values: Any, keys: tuple[str, ...]) -> Any:
    """The value at a path through parsed objects; None if there is none."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


# --- One TOML table of simple values.


def toml_values(text: str) -> dict[str, Any]:
    """The values of a TOML text.

    Raises:
        TextFault: it cannot be read.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TextFault(str(error)) from None


def with_table(text: str, keys: tuple[str, ...], values: dict[str, object]) -> str:
    """Add a table at the end.

    Args:
        text: the settings, without that table.
        keys: the table's name.
        values: texts, and lists of texts.

    Raises:
        TextFault: the text cannot be read, or its form does not allow adding the table.
    """
    wanted = inner = toml_values(text)
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise TextFault(f"{key} is not a table")
    inner[keys[-1]] = values
    newline = _newline(text)
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    # for the characters of a path, JSON and TOML have the same escapes
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    changed = text + gap + newline.join([_header(keys), *lines]) + newline
    if _read_back(changed) != wanted:
        raise TextFault(f"{keys[0]} has a form to which no table can be added")
    return changed


def without_table(text: str, keys: tuple[str, ...]) -> str:
    """Remove a table, and the tables that contained nothing else.

    Raises:
        TextFault: the text cannot be read, or the table cannot be removed alone.
    """
    wanted = toml_values(text)
    way = [wanted]
    for key in keys[:-1]:
        inner = way[-1].get(key)
        way.append(inner if isinstance(inner, dict) else {})
    if way[-1].pop(keys[-1], None) is None:
        return text
    for key, outer in reversed(list(zip(keys, way[:-1], strict=False))):
        if not outer[key]:
            del outer[key]
    table = rf"(?:^\r?\n)?^{re.escape(_header(keys))}[ \t]*(?:\r?\n|\Z)(?:[A-Za-z_]+[ \t]*=.*(?:\r?\n|\Z))*"
    changed = re.sub(table, "", text, flags=re.MULTILINE)
    if _read_back(changed) != wanted:
        raise TextFault(f"{_header(keys)} contains more than `install` wrote; remove it by hand")
    return changed


def _header(keys: tuple[str, ...]) -> str:
    names = (
        key if re.fullmatch(r"[\w-]+", key, re.ASCII) else json.dumps(key, ensure_ascii=False) for key in keys
    )
    return f"[{'.'.join(names)}]"


def _read_back(text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
