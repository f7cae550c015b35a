"""Our hooks inside a client's settings text: read, put in, taken out, with every other character kept.

All clients here share one shape: ``{"hooks": {EVENT: [{"matcher": M, "hooks": [HANDLER, ...]}, ...]}}``. A handler is
ours when its command is a line that :mod:`omx_autoresearch.agents.installations` composes, for whatever state home.
"""

from __future__ import annotations

from dataclasses import dataclass

from omx_autoresearch.agents import json_text
from omx_autoresearch.agents.installations import Installation, group_of, handler_of, state_home_of_line
from omx_autoresearch.agents.json_text import JsonTextFault, Node

EMPTY = "{}\n"


@dataclass(frozen=True, slots=True)
class Registered:
    """One handler of ours in a settings text.

    Attributes:
        event: the client's event name.
        group: the place in the event's list, from 0.
        handler: the place in the group, from 0.
        line: the command.
        timeout: as written, in the client's unit; None where there is none or it is no number.
        matcher: of its group.
        is_alone: the group holds nothing else.
    """

    event: str
    group: int
    handler: int
    line: str
    timeout: float | None
    matcher: str
    is_alone: bool

    @property
    def state_home_path(self) -> str:
        """The state home that is baked into the line."""
        return state_home_of_line(self.line)


def registered(text: str, *, comments: bool) -> list[Registered]:
    """Find every handler of ours, in the order of the text.

    Raises:
        JsonTextFault: the text cannot be read, or ``hooks`` has another shape.
    """
    if not text.strip():
        return []
    found = []
    for event, groups in _events(text, json_text.parse(text, comments=comments)):
        for number, group in enumerate(groups.items):
            found += _in_group(event, number, json_text.value_of(text, group))
    return found


def _in_group(event: str, number: int, group: object) -> list[Registered]:
    handlers = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(group, dict) or not isinstance(handlers, list):
        return []
    found = []
    for place, handler in enumerate(handlers):
        line = handler.get("command") if isinstance(handler, dict) else None
        if isinstance(line, str) and state_home_of_line(line):
            timeout = handler.get("timeout")
            seconds = timeout if isinstance(timeout, (int, float)) and timeout is not True else None
            matcher = str(group.get("matcher") or "")
            found.append(Registered(event, number, place, line, seconds, matcher, len(handlers) == 1))
    return found


def merged(text: str, installation: Installation, state_home_path: str) -> str:
    """Put our hooks in: one registration an event, older ones of ours replaced where they stand, the rest untouched.

    Raises:
        JsonTextFault: the text cannot be read, or something that we must add to has another shape.
    """
    text = text if text.strip() else EMPTY
    wanted = {entry.native_event: entry for entry in installation.client.entries}
    text = _without(text, installation, keep_first_of=set(wanted))
    for event, entry in wanted.items():
        found = [one for one in _found(text, installation) if one.event == event]
        if not found:
            text = _with_group(text, installation, event, group_of(installation, entry, state_home_path))
            continue
        place = found[0]
        value: dict[str, object] = handler_of(installation, entry, state_home_path)
        group = _group(text, installation, place)
        node = _handlers(group).items[place.handler]
        if place.is_alone and place.matcher != entry.matcher:
            node, value = group, group_of(installation, entry, state_home_path)
        if json_text.value_of(text, node) != value:
            text = json_text.replaced(text, node, value)
    return _with_environment(text, installation)


def without_ours(text: str, installation: Installation, *, environment: tuple[str, ...]) -> str:
    """Take every handler of ours out, with what it leaves empty, and the named variables with our value.

    Raises:
        JsonTextFault: the text cannot be read.
    """
    if not text.strip():
        return text
    text = _without(text, installation, keep_first_of=set())
    for name, value in installation.environment:
        root = _parse(text, installation)
        node = root.get("env")
        ours = node.get(name) if node else None
        if name in environment and node and ours and json_text.value_of(text, ours) == value:
            text = _without_member(text, node, name)
            text = _without_empty(text, installation, "env")
    return text


def added_environment(text: str, installation: Installation) -> tuple[str, ...]:
    """Say which variables of ours :func:`merged` would add to a text; a value of the user's stays."""
    node = _parse(text, installation).get("env") if text.strip() else None
    return tuple(name for name, _ in installation.environment if node is None or node.get(name) is None)


def others_behind(text: str, found: list[Registered]) -> bool:
    """Say whether a handler that is not ours stands behind one of ours in the same list, so that its place moves."""
    ours = {(one.event, one.group) for one in found}
    events = dict(_events(text, json_text.parse(text, comments=True))) if found else {}
    return any(
        (event, number + 1) not in ours and number + 1 < len(events[event].items) for event, number in ours
    )


def switch_faults(text: str, installation: Installation) -> list[str]:
    """Name the settings in a text that turn hooks off, as ``a.b is true``."""
    root = _parse(text, installation) if text.strip() else None
    found = []
    for paths, bad in ((installation.off_switches, True), (installation.on_switches, False)):
        for path in paths:
            node = root
            for key in path:
                node = node.get(key) if node else None
            if node and json_text.value_of(text, node) is bad:
                found.append(f"{'.'.join(path)} is {str(bad).lower()}")
    return found


def environment_value(text: str, installation: Installation, name: str) -> str:
    """Give a variable of the client's ``env`` setting; empty when it is not set there."""
    node = _parse(text, installation).get("env") if text.strip() else None
    value = node.get(name) if node else None
    return str(json_text.value_of(text, value)) if value else ""


def _parse(text: str, installation: Installation) -> Node:
    return json_text.parse(text, comments=installation.allows_comments)


def _found(text: str, installation: Installation) -> list[Registered]:
    return registered(text, comments=installation.allows_comments)


def _events(text: str, root: Node) -> list[tuple[str, Node]]:
    if root.kind != "object":
        raise JsonTextFault("the settings are not an object", text, root.start)
    hooks = root.get("hooks")
    if hooks is None:
        return []
    if hooks.kind != "object":
        raise JsonTextFault('"hooks" is not an object', text, hooks.start)
    return [(event, value) for event, _, value in hooks.members if value.kind == "array"]


def _group(text: str, installation: Installation, place: Registered) -> Node:
    events = dict(_events(text, _parse(text, installation)))
    return events[place.event].items[place.group]


def _handlers(group: Node) -> Node:
    handlers = group.get("hooks")
    assert handlers is not None, "a registered handler stands in a list"
    return handlers


def _with_group(text: str, installation: Installation, event: str, group: dict[str, object]) -> str:
    root = _parse(text, installation)
    hooks = root.get("hooks")
    if hooks is None:
        return json_text.with_member(text, root, "hooks", {event: [group]})
    groups = hooks.get(event)
    if groups is None:
        return json_text.with_member(text, hooks, event, [group])
    if groups.kind != "array":
        raise JsonTextFault(f'"hooks.{event}" is not a list', text, groups.start)
    return json_text.with_item(text, groups, group)


def _with_environment(text: str, installation: Installation) -> str:
    for name, value in installation.environment:
        root = _parse(text, installation)
        node = root.get("env")
        if node is None:
            text = json_text.with_member(text, root, "env", {name: value})
        elif node.kind != "object":
            raise JsonTextFault('"env" is not an object', text, node.start)
        elif node.get(name) is None:
            text = json_text.with_member(text, node, name, value)
    return text


def _without(text: str, installation: Installation, *, keep_first_of: set[str]) -> str:
    """Take handlers of ours out one by one, since each removal moves the others; keep the first of some events."""
    while True:
        kept: set[str] = set()
        for place in _found(text, installation):
            if place.event in keep_first_of and place.event not in kept:
                kept.add(place.event)
                continue
            text = _without_one(text, installation, place)
            break
        else:
            return text


def _without_one(text: str, installation: Installation, place: Registered) -> str:
    if not place.is_alone:
        handlers = _handlers(_group(text, installation, place))
        return json_text.without_part(text, handlers, place.handler)
    hooks = _parse(text, installation).get("hooks")
    groups = hooks.get(place.event) if hooks else None
    assert hooks is not None, "a registered handler stands under hooks"
    assert groups is not None, "a registered handler stands under its event"
    if len(groups.items) > 1:
        return json_text.without_part(text, groups, place.group)
    return _without_empty(_without_member(text, hooks, place.event), installation, "hooks")


def _without_member(text: str, node: Node, key: str) -> str:
    return json_text.without_part(text, node, [name for name, _, _ in node.members].index(key))


def _without_empty(text: str, installation: Installation, key: str) -> str:
    root = _parse(text, installation)
    node = root.get(key)
    if node and not node.members and not text[node.start + 1 : node.end - 1].strip():
        return _without_member(text, root, key)
    return text
