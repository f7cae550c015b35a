"""One member of a client's JSON settings that is ours, at a path of keys: read, put in, taken out; the rest stays.

The objects on the way are made where they are missing, and go with the member when nothing else is left in them.
"""

from __future__ import annotations

from omx_autoresearch.core import json_text
from omx_autoresearch.core.json_text import JsonTextFault, Node

EMPTY = "{}\n"


def member(text: str, path: tuple[str, ...], *, comments: bool) -> object | None:
    """Give the value at a path; None where there is none.

    Raises:
        JsonTextFault: the text cannot be read.
    """
    node = _node(text, path, comments=comments) if text.strip() else None
    return json_text.value_of(text, node) if node else None


def with_member(text: str, path: tuple[str, ...], value: object, *, comments: bool) -> str:
    """Put a value at a path, in the place of an older one.

    Raises:
        JsonTextFault: the text cannot be read, or something on the way is no object.
    """
    text = text if text.strip() else EMPTY
    node = _node(text, path, comments=comments)
    if node is not None:
        same = json_text.value_of(text, node) == value
        return text if same else json_text.replaced(text, node, value)
    outer = json_text.parse(text, comments=comments)
    if outer.kind != "object":
        raise JsonTextFault("the settings are not an object", text, outer.start)
    for number, key in enumerate(path):
        inner = outer.get(key)
        if inner is None:
            for missing in reversed(path[number + 1 :]):
                value = {missing: value}
            return json_text.with_member(text, outer, key, value)
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
        text = json_text.without_part(text, outer, keys.index(path[length - 1]))
    return text


def _node(text: str, path: tuple[str, ...], *, comments: bool) -> Node | None:
    node: Node | None = json_text.parse(text, comments=comments)
    for key in path:
        node = node.get(key) if node else None
    return node


def _is_bare(text: str, node: Node) -> bool:
    return node.kind == "object" and not node.members and not text[node.start + 1 : node.end - 1].strip()
