"""Changing a few values in a JSON text while every other character of it stays.

``json.loads`` and ``json.dumps`` would lose a person's indentation, comments and spelling of numbers. Here a text is
parsed to a tree of nodes that know their place, and a change is a splice. The texts are settings files: small, so each
change parses anew.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null")
_MAX_DEPTH = 100


class JsonTextFault(ValueError):
    """The text is not what it has to be.

    Attributes:
        line: where, counted from 1.
    """

    def __init__(self, message: str, text: str, position: int) -> None:
        self.line = text.count("\n", 0, position) + 1
        super().__init__(message)


@dataclass(slots=True)
class Node:
    """One value in a text.

    Attributes:
        kind: ``object``, ``array`` or ``scalar``.
        start: where it begins; ``end`` is one behind it.
        members: of an object, (key, where the key begins, value) in the order of the text.
        items: of an array.
        commas: where the comma behind each member or item but the last stands.
    """

    kind: str
    start: int
    end: int = 0
    members: list[tuple[str, int, Node]] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    commas: list[int] = field(default_factory=list)

    def get(self, key: str) -> Node | None:
        """Give the value of a key; None when it is not there or this is no object."""
        return next((value for name, _, value in self.members if name == key), None)

    @property
    def parts(self) -> list[tuple[int, int]]:
        """Where each member or item begins and ends."""
        return [(start, value.end) for _, start, value in self.members] or [
            (i.start, i.end) for i in self.items
        ]


def parse(text: str, *, comments: bool) -> Node:
    """Parse a whole text to its root.

    Args:
        text: JSON, without a byte order mark.
        comments: comments are allowed; a trailing comma never is, no client here reads one.

    Raises:
        JsonTextFault: the text is not that, or a key stands twice in an object.
    """
    parser = _Parser(text, comments)
    root = parser.value(parser.space(0), 0)
    rest = parser.space(root.end)
    if rest < len(text):
        raise JsonTextFault("something follows the closing bracket", text, rest)
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
                raise JsonTextFault("there is a comment, which this client does not read", self.text, at)
            at = comment.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise JsonTextFault("the values are nested too deeply", self.text, at)
        opening = self.text[at : at + 1]
        if opening in ("{", "["):
            return self._container(at, depth)
        end = self._match(_STRING if opening == '"' else _SCALAR, at)
        if end is None:
            raise JsonTextFault("a value is expected", self.text, at)
        return Node("scalar", at, end)

    def _container(self, at: int, depth: int) -> Node:
        node = Node("object" if self.text[at] == "{" else "array", at)
        closing = "}" if node.kind == "object" else "]"
        at = self.space(at + 1)
        while self.text[at : at + 1] != closing:
            if node.parts:
                node.commas.append(at)
                at = self.space(self._expect(",", at))
            at = self._member(node, at, depth) if node.kind == "object" else self._item(node, at, depth)
        node.end = at + 1
        return node

    def _item(self, node: Node, at: int, depth: int) -> int:
        node.items.append(self.value(at, depth + 1))
        return self.space(node.items[-1].end)

    def _member(self, node: Node, at: int, depth: int) -> int:
        end = self._match(_STRING, at)
        if end is None:
            raise JsonTextFault("a key in double quotes is expected", self.text, at)
        key = json.loads(self.text[at:end])
        if node.get(key) is not None:
            raise JsonTextFault(f"the key {key!r} stands twice", self.text, at)
        value = self.value(self.space(self._expect(":", self.space(end))), depth + 1)
        node.members.append((key, at, value))
        return self.space(value.end)

    def _expect(self, sign: str, at: int) -> int:
        if self.text[at : at + 1] != sign:
            raise JsonTextFault(f"{sign!r} is expected", self.text, at)
        return at + 1

    def _match(self, pattern: re.Pattern[str], at: int) -> int | None:
        match = pattern.match(self.text, at)
        return match.end() if match else None


def value_of(text: str, node: Node) -> object:
    """Give a node's value as plain Python; comments inside it are left out."""
    if node.kind == "object":
        return {key: value_of(text, value) for key, _, value in node.members}
    if node.kind == "array":
        return [value_of(text, item) for item in node.items]
    value: object = json.loads(text[node.start : node.end])
    return value


def replaced(text: str, node: Node, value: object) -> str:
    """Put a value in the place of a node."""
    return text[: node.start] + _rendered(text, value, _indent_at(text, node.start)) + text[node.end :]


def with_member(text: str, node: Node, key: str, value: object) -> str:
    """Add a member at the end of an object."""
    return _with_part(text, node, json.dumps(key) + ": ", value)


def with_item(text: str, node: Node, value: object) -> str:
    """Add an item at the end of an array."""
    return _with_part(text, node, "", value)


def without_part(text: str, node: Node, index: int) -> str:
    """Take a member of an object or an item of an array away, with its comma and its line; comments stay."""
    parts = node.parts
    start, end = parts[index]
    if index + 1 < len(parts):
        comma, following = node.commas[index], parts[index + 1][0]
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
    last = node.parts[-1][1] if node.parts else at
    inner = _indent_at(text, node.parts[-1][0]) if node.parts else _indent_at(text, node.start) + _unit(text)
    comma = "," if node.parts else ""
    body = f"{_newline(text)}{inner}{prefix}{_rendered(text, value, inner)}"
    return f"{text[:last]}{comma}{text[last:at]}{body}{text[at:]}"


def _rendered(text: str, value: object, indent: str) -> str:
    lines = json.dumps(value, indent=_unit(text), ensure_ascii=False).split("\n")
    return (_newline(text) + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(text: str) -> str:
    """Give the text's own step of indentation: what stands before its first indented line."""
    match = re.search(r"\n([ \t]+)\S", text)
    return match[1] if match else "  "


def _indent_at(text: str, position: int) -> str:
    """Give the indentation of the line that a position stands on."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    match = re.match(r"[ \t]*", line)
    return match[0] if match else ""


# --- One member of a client's JSON settings that is ours, at a path of keys: read, put in, taken out; the rest stays.
#
# The objects on the way are made where they are missing, and go with the member when nothing else is left in them.

EMPTY = "{}\n"


def member(text: str, path: tuple[str, ...], *, comments: bool) -> object | None:
    """Give the value at a path; None where there is none.

    Raises:
        JsonTextFault: the text cannot be read.
    """
    node = _node(text, path, comments=comments) if text.strip() else None
    return value_of(text, node) if node else None


def with_settings_member(text: str, path: tuple[str, ...], value: object, *, comments: bool) -> str:
    """Put a value at a path, in the place of an older one.

    Raises:
        JsonTextFault: the text cannot be read, or something on the way is no object.
    """
    text = text if text.strip() else EMPTY
    node = _node(text, path, comments=comments)
    if node is not None:
        same = value_of(text, node) == value
        return text if same else replaced(text, node, value)
    outer = parse(text, comments=comments)
    if outer.kind != "object":
        raise JsonTextFault("the settings are not an object", text, outer.start)
    for number, key in enumerate(path):
        inner = outer.get(key)
        if inner is None:
            for missing in reversed(path[number + 1 :]):
                value = {missing: value}
            return with_member(text, outer, key, value)
        if inner.kind != "object":
            raise JsonTextFault(f'"{key}" is not an object', text, inner.start)
        outer = inner
    raise AssertionError("a path that is there was found above")


def without_member(text: str, path: tuple[str, ...], *, comments: bool) -> str:
    """Take the value at a path out, and every object on the way that it leaves empty.

    Raises:
        JsonTextFault: the text cannot be read.
    """
    for length in range(len(path), 0, -1):
        node = _node(text, path[:length], comments=comments) if text.strip() else None
        if node is None or (length < len(path) and not _is_bare(text, node)):
            return text
        outer = _node(text, path[: length - 1], comments=comments)
        assert outer is not None, "what holds a member is there"
        keys = [name for name, _, _ in outer.members]
        text = without_part(text, outer, keys.index(path[length - 1]))
    return text


def _node(text: str, path: tuple[str, ...], *, comments: bool) -> Node | None:
    node: Node | None = parse(text, comments=comments)
    for key in path:
        node = node.get(key) if node else None
    return node


def _is_bare(text: str, node: Node) -> bool:
    return node.kind == "object" and not node.members and not text[node.start + 1 : node.end - 1].strip()
