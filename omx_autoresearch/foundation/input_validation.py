"""Validate foreign data: files that a person or a model can touch, the command line, MCP.

The types are the house's own frozen dataclasses; only this module validates against them, with pydantic. Four rules
hold for all: unknown fields are errors; numbers are strict and finite (``"5"``, ``true`` for a number, NaN are errors);
a duplicate key is an error of the parser (JSON in ``journal.safe_files``, YAML in ``missions.intake``); an
instance is taken apart and validated anew.
"""

from __future__ import annotations

import dataclasses
import json
import types
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from omx_autoresearch.foundation import types as words
from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid
from omx_autoresearch.foundation.records import to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    import pydantic
    from pydantic.json_schema import JsonSchemaMode

Kind = TypeVar("Kind")

_SHOWN_CHARACTERS = 80


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One field that cannot be taken.

    Attributes:
        field: its path, ``limits.refusals_total``; empty for the document itself.
        received: the value, shortened; empty where there was none.
        needed: the form that is accepted.
        line: in the file, from 1; 0 where it is not known.
    """

    field: str
    received: str
    needed: str
    line: int = 0

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        field = f"{self.field}: " if self.field else ""
        received = f", received {self.received}" if self.received else ""
        return f"{where}{field}{self.needed}{received}"


def validated(
    kind: type[Kind],
    value: Any,
    *,
    where: str,
    lines: Mapping[tuple[str | int, ...], int] | None = None,
    error: type[AutoresearchError] = MissionInvalid,
) -> Kind:
    """Return ``value`` (plain JSON values, or an instance) as ``kind``.

    Args:
        kind: a frozen dataclass.
        value: as parsed, with duplicate keys already refused.
        where: names the source for people: a file, an option, a tool argument.
        lines: line of each key path, where the parser knows them.
        error: class of the error to raise.

    Raises:
        AutoresearchError: of class ``error``, with every fault: the field, its value, the form that is accepted.
    """
    found, faults = checked(kind, value, lines or {})
    if faults:
        raise error(refusal(where, faults), next_step=f"fix {where}, then run the same command again")
    return cast("Kind", found)


def checked(
    kind: type[Kind], value: Any, lines: Mapping[tuple[str | int, ...], int]
) -> tuple[Kind | None, list[Fault]]:
    """As :func:`validated`, for a caller that reads on: the value, or None and every fault."""
    import pydantic

    try:
        text = json.dumps([to_plain(value)], allow_nan=True)
        return cast("Kind", _adapter(cast("Any", kind)).validate_json(text)[0]), []
    except pydantic.ValidationError as found:
        return None, [_fault(item, lines) for item in found.errors(include_url=False, include_context=True)]
    except (TypeError, ValueError, RecursionError) as found:
        return None, [Fault("", "", f"it holds something that JSON cannot represent: {found}")]


def refusal(where: str, faults: list[Fault]) -> str:
    """Return the sentence that names a source and every fault in it, once each."""
    shown = list(dict.fromkeys(str(fault) for fault in faults))
    if len(shown) == 1:
        return f"{where}: {shown[0]}"
    return "\n".join([f"{where}: {len(shown)} faults", *(f"  - {item}" for item in shown)])


@cache
def _adapter(kind: Hashable) -> pydantic.TypeAdapter[Any]:
    """The strict adapter of a list of ``kind``.

    pydantic takes a configuration for a list, not for a dataclass, and hands it on to every dataclass within; so the
    core's own classes stay as they are.
    """
    import pydantic

    strict = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
    many: Any = types.GenericAlias(list, (kind,))
    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(many, config=strict)
    adapter.rebuild(_types_namespace=vars(words))  # the core imports its words for type checkers only
    return adapter


def schema_of(kind: Hashable, *, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
    """Return the JSON Schema of one ``kind``, as :func:`validated` takes it or as it is printed."""
    schema = _adapter(kind).json_schema(ref_template="#/$defs/{model}", mode=mode)
    definitions: dict[str, Any] = schema.pop("$defs", {})
    item: dict[str, Any] = schema["items"]
    if "$ref" in item:
        item = definitions.pop(item["$ref"].rsplit("/", 1)[1])
    return {**item, "$defs": definitions} if definitions else item


def _fault(item: Any, lines: Mapping[tuple[str | int, ...], int]) -> Fault:
    loc = item["loc"][1:]  # the first part is the place in the list
    place = tuple(part for part in loc if not _is_type_word(part, loc))
    line = next((lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in lines), 0)
    is_about_a_name = item["type"] in ("missing", "unexpected_keyword_argument", "json_invalid")
    received = "" if is_about_a_name else _shown(item["input"])
    field = ".".join(str(part) for part in place)
    return Fault(field, received, _needed(item), line)


def _is_type_word(part: str | int, place: tuple[str | int, ...]) -> bool:
    """Of a union, pydantic names the branch that it tried, last; it is no field."""
    return part in ("int", "float", "str", "bool") and part is place[-1] and len(place) > 1


_NEEDED: dict[str, Callable[[Any], str]] = {
    "missing": lambda _: "it is required but missing",
    "unexpected_keyword_argument": lambda _: "unknown field",
    "literal_error": lambda item: f"must be {item['ctx']['expected']}",
    "string_type": lambda _: "must be text",
    "bool_type": lambda _: "must be true or false",
    "int_type": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number",
    "finite_number": lambda _: "must be a finite number",
    "tuple_type": lambda _: "must be a list",
    "dict_type": lambda _: "must be a mapping",
    "dataclass_type": lambda _: "must be a mapping of fields",
    "model_type": lambda _: "must be a mapping of fields",
    "list_type": lambda _: "must be a list",
    "string_pattern_mismatch": lambda item: f"must match {item['ctx']['pattern']}",
    "greater_than_equal": lambda item: f"must be at least {item['ctx']['ge']}",
    "value_error": lambda item: str(item["ctx"]["error"]),
    "json_invalid": lambda _: "it holds a character that UTF-8 cannot encode (half of a surrogate pair)",
}


def _needed(item: Any) -> str:
    words = _NEEDED.get(item["type"])
    return words(item) if words else str(item["msg"])


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
