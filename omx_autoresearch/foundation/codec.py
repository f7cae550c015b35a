"""Between frozen dataclasses and plain JSON values, driven by the declarations alone.

A field that holds another dataclass (or a tuple of them) says so with ``nested(Kind)``; everything else is a JSON
scalar, a tuple of scalars, or a plain mapping. An unknown key means that a newer version wrote the value; a missing
one without a default means that it is damaged. Both are :class:`ShapeError`, never a silent default.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import MISSING, field, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ShapeError(ValueError):
    """A value does not have the shape of its class; the message names class and field."""


class NewerShape(ShapeError):
    """A value has more than its class knows, or is of an unknown kind: a newer version wrote it."""


class OlderShape(ShapeError):
    """A value is of a version so old that nothing here knows any more what it meant."""


def nested(kind: Any, **options: Any) -> Any:
    """Declare a field that holds ``kind`` or a tuple of it (``options`` go to :func:`dataclasses.field`).

    In the place of a class stands a function where the plain value says of which class it is.
    """
    return field(metadata={"nested": kind}, **options)


def to_plain(value: Any) -> Any:
    """A frozen dataclass (or tuple, or scalar) as plain JSON values; tuples become lists."""
    if hasattr(value, "__light_fields__"):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def as_fields(value: Any) -> dict[str, Any]:
    """The fields of a frozen dataclass, one level deep, as an encoder asks for them on its way down.

    Raises:
        TypeError: it is something else.
    """
    if not hasattr(value, "__light_fields__"):
        raise TypeError(f"{type(value).__name__} has no plain form")
    return {name: getattr(value, name) for name in value.__slots__}


def from_plain(kind: type, data: Any) -> Any:
    """The inverse of :func:`to_plain` for a value of ``kind``.

    Raises:
        ShapeError: ``data`` is no object, has a field that ``kind`` does not know, or lacks one it needs.
    """
    if not isinstance(data, dict):
        raise ShapeError(f"{kind.__name__}: an object is needed, received {type(data).__name__}")
    values: dict[str, Any] = {}
    for item in fields(kind):
        if item.name not in data:
            if item.default is MISSING and item.default_factory is MISSING:
                raise ShapeError(f"{kind.__name__}.{item.name} is missing")
            continue
        inner = item.metadata.get("nested")
        if inner is not None and data[item.name] is None and item.default is not None:
            raise ShapeError(f"{kind.__name__}.{item.name} is missing")
        values[item.name] = _thaw(inner, data[item.name])
    unknown = data.keys() - values.keys()
    if unknown:
        raise NewerShape(f"{kind.__name__} has unknown fields: {', '.join(sorted(unknown))}")
    return kind(**values)


def _thaw(inner: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_thaw(inner, item) for item in value)
    if inner is not None and value is not None:
        return from_plain(inner, value) if isinstance(inner, type) else inner(value)
    if isinstance(value, dict):
        return {key: _thaw(None, item) for key, item in value.items()}
    return value
