"""Markdown files with YAML frontmatter: written and read by the YAML library, with fewer surprises than YAML 1.1.

Only ``true``, ``false``, ``null``, whole and decimal numbers are anything but text: ``no``, ``on``, ``12:30`` and dates
stay what somebody typed. A key given twice, an alias and a tag are errors that name the line.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from omx_autoresearch.core.values import dataclass, field
from omx_autoresearch.errors import MissionInvalid

LIMIT_BYTES = 1024 * 1024
Place = tuple[str | int, ...]

_FENCE = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_UTF16 = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """What stands between the two fences at the top of a file.

    Attributes:
        values: its fields.
        lines: the line of each key path in the file, from 1.
    """

    values: dict[str, Any]
    lines: dict[Place, int] = field(default_factory=dict)


# --- writing


class _Dumper(yaml.SafeDumper):
    """Block lists indented, texts of several lines as blocks."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_block = (
        "\n" in text and "\r" not in text and not re.search(r"[ \t]\n|^\s|\n\n\Z|[\x85\u2028\u2029]", text)
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if is_block else _quoting(text))


def _quoting(text: str) -> str | None:
    return '"' if any(ord(c) < 32 or ord(c) == 127 or c in "\x85\u2028\u2029\ufeff" for c in text) else None


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(tuple, lambda dumper, items: dumper.represent_list(list(items)))


def dump(values: dict[str, Any]) -> str:
    """Return ``values`` as YAML lines that :func:`parse` reads back unchanged; ends in a newline."""
    text: str = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9, default_flow_style=False
    )
    return text


# --- reading


class _Loader(yaml.SafeLoader):
    """YAML's safe loader with its own, shorter table of what is not text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # yaml's own name


for _tag, _pattern, _starts in (
    ("bool", r"true|false", "tf"),
    ("null", r"null|~|", ["n", "~", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?", "-+.0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), list(_starts)
    )


def parse(data: bytes, *, where: str) -> Frontmatter:
    """Return the frontmatter of a file. A UTF-8 byte order mark and CRLF line ends are taken.

    Raises:
        MissionInvalid: no UTF-8 (UTF-16 is named), no frontmatter, no YAML mapping, a key given twice, an alias or
            a tag; names the file and the line.
    """
    inner, _ = _divided(data, where)
    values, lines = _load(inner, where)
    if not isinstance(values, dict):
        raise _invalid(where, "the frontmatter must be a mapping: `key: value` lines", 2)
    return Frontmatter(values, lines)


def replaced(data: bytes, values: dict[str, Any], *, where: str) -> bytes:
    """Return a file with other frontmatter; the text below it stays as it is.

    Raises:
        MissionInvalid: as for :func:`parse`.
    """
    _, below = _divided(data, where)
    return f"---\n{dump(values)}---{below}".encode()


def _divided(data: bytes, where: str) -> tuple[str, str]:
    """What stands between the fences, and what stands below them."""
    text = _decoded(data, where)
    opening = _FENCE.match(text)
    closing = _FENCE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        raise _invalid(
            where, "it has no frontmatter: YAML lines between two lines of `---`, the first one at the top"
        )
    return text[opening.end() : closing.start()], text[closing.end() :]


def _load(text: str, where: str) -> tuple[Any, dict[Place, int]]:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        reader = _Reader(loader, where)
        return (reader.value(node, ()) if node is not None else {}), reader.lines
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise _invalid(where, f"{error.problem or error.context or error}", line) from None
    except yaml.reader.ReaderError as error:
        at = int(error.position)
        what = (
            f"the character U+{int(error.character):04X} is not taken; write it as an escape in double quotes"
        )
        raise _invalid(where, what, text[:at].count("\n") + 1) from None
    except RecursionError:
        raise _invalid(where, "it is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _invalid(where, f"it is not YAML: {error}") from None


def _decoded(data: bytes, where: str) -> str:
    for mark, name in _UTF16:
        if data.startswith(mark):
            raise _invalid(where, f"it is encoded in {name}; save it as UTF-8")
    if b"\0" in data[:4]:
        raise _invalid(where, "it is encoded in UTF-16; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _invalid(where, f"byte {error.start} is not UTF-8", line) from None


def _invalid(where: str, what: str, line: int = 0) -> MissionInvalid:
    place = f"{where}, line {line}" if line else where
    return MissionInvalid(f"{place}: {what}", next_step=f"mend {where}, then run the same command again")


class _Reader:
    """Nodes to values, noting the line of every key."""

    def __init__(self, loader: _Loader, where: str) -> None:
        self.loader = loader
        self.where = where
        self.lines: dict[Place, int] = {}
        self.seen: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        if id(node) in self.seen:
            raise _invalid(self.where, "an alias (`*name`) is not taken; write the value itself", _line(node))
        self.seen.add(id(node))
        self.lines.setdefault(place, _line(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        if node.tag not in _SCALARS:
            raise _invalid(self.where, f"the tag {node.tag} is not taken", _line(node))
        return self.loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _invalid(self.where, "a key must be plain text", _line(key_node))
            key = key_node.value
            if key in values:
                raise _invalid(self.where, f"the key {key[:80]!r} is given twice", _line(key_node))
            self.lines[*place, key] = _line(key_node)
            values[key] = self.value(value_node, (*place, key))
        return values


_SCALARS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "bool", "int", "float", "null"))


def _line(node: yaml.Node) -> int:
    """The line of a node in its file: the frontmatter's first line end belongs to the fence."""
    return int(node.start_mark.line) + 1
