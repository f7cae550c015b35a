"""Records: frozen, slotted dataclasses that cost a hook process almost nothing to define; to plain values and back.

``dataclasses.dataclass`` compiles half a dozen functions for every class: 0.4 ms each, 30 ms for the seventy classes
that a stop needs, half of the whole allowance of a hook (specs/decisions). The classes made here behave the same
(constructor, equality, hash, repr, ``replace``, no assignment, inherited fields first) without compiling anything, and
become real stdlib dataclasses for a caller that asks: ``dataclasses.fields``, ``is_dataclass``, ``asdict`` and pydantic
see ``__dataclass_fields__``, which is built from a stdlib twin at the first look. A test holds every class of the
package against that twin. Type checkers see the stdlib's own names.

The way to plain JSON values and back (:func:`to_plain`, :func:`from_plain`) is driven by the declarations alone. A
field that holds another record (or a tuple of them) says so with ``nested(Kind)``; everything else is a JSON scalar, a
tuple of scalars, or a plain mapping. An unknown key means that a newer version wrote the value; a missing one without a
default means that it is damaged. Both are :class:`ShapeError`, never a silent default.

What is stored is named by its digest. ``hashlib`` loads OpenSSL for functions that a hook does not need (3 ms instead
of 0.4 ms); CPython's own :func:`sha1` and :func:`sha256` are the same functions under private names that change between
versions, so ``hashlib`` is the fallback. Large files are hashed with ``hashlib`` where that is faster.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import MISSING, dataclass, field, fields, replace
    from hashlib import sha1, sha256
    from typing import Any
else:
    try:
        from _sha1 import sha1
        from _sha256 import sha256  # CPython 3.11
    except ImportError:
        try:
            from _sha1 import sha1

            from _sha2 import sha256  # CPython 3.12 and later
        except ImportError:
            from hashlib import sha1, sha256

    class _Missing:
        """No default."""

    MISSING = _Missing()

    class Field:
        """One field: its name, type as written, default, default factory and metadata, as the stdlib's."""

        __slots__ = ("default", "default_factory", "metadata", "name", "type")

        def __init__(self, name="", default=MISSING, default_factory=MISSING, metadata=None):
            self.name = name
            self.default = default
            self.default_factory = default_factory
            self.metadata = metadata or {}
            self.type = ""

    def field(*, default=MISSING, default_factory=MISSING, metadata=None):
        """Declare a field, as ``dataclasses.field``."""
        return Field("", default, default_factory, metadata)

    def fields(value):
        """The fields of a record class or of an instance of one."""
        return value.__light_fields__

    def replace(value, /, **changes):
        """A copy of ``value`` with some fields changed, as ``dataclasses.replace``."""
        kind = value.__class__
        copy = object.__new__(kind)
        for name, put in kind.__light_setters__:
            put(copy, changes.pop(name) if name in changes else getattr(value, name))
        if changes:
            raise TypeError(
                f"{kind.__name__} has no field {', '.join(sorted(changes))}; it has {', '.join(kind.__match_args__)}"
            )
        return copy

    def dataclass(*, frozen, slots):
        """``dataclasses.dataclass(frozen=True, slots=True)``; other kinds are the stdlib's business."""
        if not (frozen and slots):
            raise TypeError("only frozen, slotted classes are made here")
        return _made

    def _made(cls):
        body = dict(cls.__dict__)
        declared = {}
        for name, annotation in body.get("__annotations__", {}).items():
            if annotation.startswith("ClassVar"):
                continue
            default = body.pop(name, MISSING)
            known = default if isinstance(default, Field) else Field("", default)
            known.name, known.type = name, annotation
            declared[name] = known
        body.pop("__dict__", None)
        body.pop("__weakref__", None)
        body["__slots__"] = own = tuple(declared)
        inherited = getattr(cls, "__light_setters__", ())
        if inherited:
            declared = {known.name: known for known in cls.__light_fields__} | declared
        body["__qualname__"] = cls.__qualname__
        body["__match_args__"] = tuple(declared)
        body["__light_fields__"] = tuple(declared.values())
        if "__post_init__" in body or (inherited and hasattr(cls, "__post_init__")):
            body.setdefault("__init__", _init_checked)
        for name, method in _METHODS.items():
            body.setdefault(name, method)
        body["__dataclass_fields__"] = _Twin("__dataclass_fields__")
        body["__dataclass_params__"] = _Twin("__dataclass_params__")
        made = type(cls)(cls.__name__, cls.__bases__, body)
        descriptors = (
            made.__dict__
        )  # read straight from there, since an attribute of a class takes longer to find
        setters = dict(inherited)
        for name in own:
            setters[name] = descriptors[name].__set__
        made.__light_setters__ = tuple(setters.items())
        made.__light_puts__ = tuple(setters.values())
        return made

    def _init(self, *args, **given):
        puts = self.__class__.__light_puts__
        if given or len(args) != len(puts):
            _init_some(self, args, given)
            return
        for put, value in zip(puts, args, strict=True):  # every field, in order: what is made most
            put(self, value)

    def _init_checked(self, *args, **given):
        _init(self, *args, **given)
        self.__post_init__()

    def _init_some(self, args, given):
        kind = self.__class__
        setters = kind.__light_setters__
        if len(args) > len(setters):
            raise TypeError(f"{kind.__name__} takes {len(setters)} values, received {len(args)}")
        for (name, put), value in zip(setters, args, strict=False):
            if name in given:
                raise TypeError(f"{kind.__name__} received {name} twice")
            put(self, value)
        for known, (name, put) in zip(kind.__light_fields__[len(args) :], setters[len(args) :], strict=True):
            if name in given:
                put(self, given.pop(name))
            elif known.default is not MISSING:
                put(self, known.default)
            elif known.default_factory is not MISSING:
                put(self, known.default_factory())
            else:
                raise TypeError(f"{kind.__name__} needs {name}")
        if given:
            raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(given))}")

    def _values(self):
        return tuple([getattr(self, name) for name in self.__match_args__])

    def _eq(self, other):
        if self is other:
            return True
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def _hash(self):
        return hash(_values(self))

    def _repr(self):
        inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{self.__class__.__qualname__}({inner})"

    def _refuse(self, name, *_):  # noqa: ARG001 - the signature of __setattr__ and __delattr__
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")

    def _getstate(self):
        return list(_values(self))

    def _setstate(self, state):
        for (_, put), value in zip(self.__light_setters__, state, strict=True):
            put(self, value)

    _METHODS = {
        "__init__": _init,
        "__eq__": _eq,
        "__hash__": _hash,
        "__repr__": _repr,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        "__getstate__": _getstate,
        "__setstate__": _setstate,
    }

    class _Twin:
        """The stdlib's value for the same attribute, made at the first access."""

        __slots__ = ("_name",)

        def __init__(self, name):
            self._name = name

        def __get__(self, _, kind):
            twin = twin_of(kind)
            for name in ("__dataclass_fields__", "__dataclass_params__"):
                setattr(kind, name, getattr(twin, name))
            return getattr(twin, self._name)


def twin_of(kind: type) -> type:
    """A stdlib dataclass with the fields of ``kind``, for introspection and for the test that compares the two."""
    import dataclasses
    import inspect

    types: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        types |= inspect.get_annotations(base)
    body: dict[str, object] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    body["__annotations__"] = {known.name: types[known.name] for known in fields(kind)}
    for known in fields(kind):
        options: dict[str, object] = {"metadata": known.metadata} if known.metadata else {}
        if known.default is not MISSING:
            options["default"] = known.default
        if known.default_factory is not MISSING:
            options["default_factory"] = known.default_factory
        body[known.name] = dataclasses.field(**options)  # type: ignore[call-overload]
    return dataclasses.dataclass(frozen=True)(type(kind.__name__, (), body))


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
    """A record or a stdlib dataclass (or tuple, or scalar) as plain JSON values; tuples become lists."""
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    names = getattr(value, "__match_args__", None)
    return value if names is None else {name: to_plain(getattr(value, name)) for name in names}


def as_fields(value: Any) -> dict[str, Any]:
    """The fields of a record or a stdlib dataclass, one level deep, as an encoder asks for them on its way down.

    Raises:
        TypeError: it is something else.
    """
    names = getattr(value, "__match_args__", None)
    if names is None:
        raise TypeError(f"{type(value).__name__} has no plain form")
    return {name: getattr(value, name) for name in names}


def from_plain(kind: type, data: Any) -> Any:
    """The inverse of :func:`to_plain` for a value of ``kind``.

    Raises:
        ShapeError: ``data`` is no object, has a field that ``kind`` does not know, lacks one it needs, or has another
            JSON type in it.
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
        value = data[item.name]
        if value.__class__ not in _JSON_TYPES.get(item.type, (value.__class__,)):
            raise ShapeError(
                f"{kind.__name__}.{item.name}: {item.type} is needed, received {type(value).__name__}"
            )
        values[item.name] = _thaw(inner, value)
    unknown = data.keys() - values.keys()
    if unknown:
        raise NewerShape(f"{kind.__name__} has unknown fields: {', '.join(sorted(unknown))}")
    return kind(**values)


_NUMBERS = (int, float, bool)
_JSON_TYPES: dict[Any, tuple[type, ...]] = {
    "str": (str,),
    "int": _NUMBERS,
    "float": _NUMBERS,
    "bool": _NUMBERS,
    "int | None": (*_NUMBERS, type(None)),
    "float | None": (*_NUMBERS, type(None)),
    "tuple[str, ...]": (list, tuple),
    "dict[str, str]": (dict,),
    "dict[str, int]": (dict,),
}
"""What a field may hold, by its type as written; a number of the wrong kind does no harm, a text in its place does."""


def _thaw(inner: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_thaw(inner, item) for item in value)
    if inner is not None and value is not None:
        return from_plain(inner, value) if isinstance(inner, type) else inner(value)
    if isinstance(value, dict):
        return {key: _thaw(None, item) for key, item in value.items()}
    return value


__all__ = ["MISSING", "dataclass", "field", "fields", "replace", "sha1", "sha256"]
