"""JSON by CPython's own scanner and encoder, without loading the package around them: 0.2 ms instead of 6.

``json`` loads ``re``, and that ``enum``, ``functools`` and ``collections``, for a pattern that skips white space. A
hook that reads and writes a few kilobytes pays more for that than for everything it does with them. The accelerators
are the very functions that ``json`` uses; where they are missing, ``json`` itself is used. Every error is the package's
own: ``json`` parses again each text that the scanner refuses, and says what is wrong and where.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import as_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Pairs = Callable[[list[tuple[str, Any]]], Any]
    """Makes the value of an object from its keys and values, in order, doubled keys and all."""

try:
    from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner

    HAS_ACCELERATORS = True
except ImportError:
    from json.encoder import encode_basestring, encode_basestring_ascii

    HAS_ACCELERATORS = False

_SPACE = " \t\n\r"


class _Rules:
    """Attributes that the scanner looks up by these names (``json.JSONDecoder`` has them)."""

    __slots__ = ("object_hook", "object_pairs_hook", "parse_constant", "parse_float", "parse_int", "strict")

    def __init__(self, pairs: Pairs, parse_float: Callable[[str], Any], parse_constant: Callable[[str], Any]):
        self.strict = True
        self.object_hook = None
        self.object_pairs_hook = pairs
        self.parse_float = parse_float
        self.parse_int = int
        self.parse_constant = parse_constant


def decoder(
    pairs: Pairs,
    *,
    parse_float: Callable[[str], Any] = float,
    parse_constant: Callable[[str], Any] = float,
) -> Callable[[str], Any]:
    """A function that parses one text, as ``json.JSONDecoder(object_pairs_hook=pairs, ...).decode``.

    It raises ``json.JSONDecodeError``, whatever the given functions raise, and RecursionError.
    """

    def by_package(text: str) -> Any:
        import json

        return json.JSONDecoder(
            object_pairs_hook=pairs, parse_float=parse_float, parse_constant=parse_constant
        ).decode(text)

    if not HAS_ACCELERATORS:
        return by_package
    rules = _Rules(pairs, parse_float, parse_constant)
    scan = make_scanner(rules)  # type: ignore[arg-type]  # it takes whatever has these attributes

    def decode(text: str) -> Any:
        body = text.strip(_SPACE)
        try:
            value, end = scan(body, 0)
        except (StopIteration, ValueError, SystemError):
            # SystemError: what CPython 3.11 raises where json.decoder, whose error it would raise, is not loaded yet
            return by_package(text)
        return value if end == len(body) else by_package(text)

    return decode


def encoder(
    *,
    is_ascii: bool = False,
    separators: tuple[str, str] = (",", ":"),
    default: Callable[[Any], Any] | None = None,
) -> Callable[[Any], str]:
    """A function that writes one value, as ``json.JSONEncoder(allow_nan=False, ...).encode``.

    ``default`` gives the plain value of an object that JSON has no form for.

    It raises ValueError for NaN and infinity, TypeError for an object without a form, and RecursionError for a value
    that nests too deeply, or inside itself.
    """
    if not HAS_ACCELERATORS:
        import json

        return json.JSONEncoder(
            ensure_ascii=is_ascii,
            separators=separators,
            allow_nan=False,
            check_circular=False,
            default=default,
        ).encode
    quote = encode_basestring_ascii if is_ascii else encode_basestring
    write = make_encoder(
        None, default or _no_form, quote, None, separators[1], separators[0], False, False, False
    )
    join = "".join
    return lambda value: join(write(value, 0))


def _no_form(value: object) -> Any:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def pretty(value: Any) -> str:
    """A value as people read it: ``json.dumps(value, ensure_ascii=False, indent=2)``; keys are texts.

    Raises:
        TypeError: a value that JSON has no form for, or a key that is no text.
        ValueError: NaN or Infinity.
    """
    return _pretty(value, "\n")


def _pretty(value: Any, margin: str) -> str:
    if isinstance(value, dict) and value:
        inner = margin + "  "
        parts = [f"{encode_basestring(key)}: {_pretty(item, inner)}" for key, item in value.items()]
        return f"{{{inner}{f',{inner}'.join(parts)}{margin}}}"
    if isinstance(value, (list, tuple)) and value:
        inner = margin + "  "
        return f"[{inner}{f',{inner}'.join([_pretty(item, inner) for item in value])}{margin}]"
    return _encode(value)


# --- JSON without its traps: no key given twice, no number that is none, output in strict UTF-8.

DEPTH_LIMIT = 100
"""Deeper values are refused when written, so that every reader, however deep its own stack, can read them."""

_UTF16_OPENINGS = (b"{\0", b"[\0", b"-\0", b"\0{", b"\0[", b"\0-")


def decode(data: bytes) -> Any:
    """Parse one JSON text in UTF-8.

    Raises:
        ValueError: not UTF-8, not JSON, a duplicate key (named), NaN, Infinity or a number out of range, or
            nested too deeply; the message is the cause, without the file.
    """
    try:
        return _decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        import json

        if not isinstance(error, json.JSONDecodeError):
            raise
        if b"\0" in data:
            raise ValueError(f"it holds NUL bytes, the first at byte {data.index(0)}") from None
        raise ValueError(f"it is not JSON ({error})") from None


def decode_document(data: bytes) -> Any:
    """Parse a whole file from any program: a UTF-8 byte order mark is accepted.

    Raises:
        ValueError: as :func:`decode`; also an empty file, and UTF-16 or UTF-32, each named.
    """
    data = as_utf8(data)
    if not data.strip():
        raise ValueError("it is empty" if not data else "it holds only white space")
    return decode(data)


def as_utf8(data: bytes) -> bytes:
    """A file's content without a UTF-8 byte order mark.

    Raises:
        ValueError: it is UTF-16 or UTF-32; says which.
    """
    if data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        raise ValueError("it is encoded in UTF-32; save it as UTF-8")
    if data.startswith((b"\xff\xfe", b"\xfe\xff", *_UTF16_OPENINGS)):
        raise ValueError("it is encoded in UTF-16; save it as UTF-8")
    return data.removeprefix(b"\xef\xbb\xbf")


def encode(value: Any) -> bytes:
    """Return compact JSON on one line in strict UTF-8.

    A lone surrogate, which no strict parser takes, becomes U+FFFD.

    Raises:
        ValueError: NaN or Infinity, a value nested deeper than :data:`DEPTH_LIMIT`, or keys that are one key
            in JSON (``1`` and ``"1"``).
        TypeError: a value that JSON has no form for.
    """
    data = encode_unchecked(value)
    decode(data)  # what is written must be readable: this finds keys that became equal
    return data


def encode_unchecked(value: Any) -> bytes:
    """Do as :func:`encode`, for a caller that reads the result back and so finds equal keys."""
    try:
        text = _encode(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = without_surrogates(text).encode("utf-8")
    if data.count(b"{") + data.count(b"[") > DEPTH_LIMIT and _depth(value) > DEPTH_LIMIT:
        raise ValueError(f"the value is nested deeper than {DEPTH_LIMIT}")
    return data


def encode_dataclasses(value: Any) -> bytes:
    """Return what :func:`encode` gives for the plain form of frozen dataclasses, in a third of the time.

    Their fields bound the depth and name each key once, so neither is looked for. For what is written at every record.
    """
    text = _encode_dataclasses(value)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return without_surrogates(text).encode("utf-8")


def without_surrogates(text: str) -> str:
    """Return ``text`` with every lone surrogate replaced by U+FFFD; a pair becomes its character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:80]!r} is given twice")
            seen.add(key)
    return result


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:  # infinite; math.isfinite would cost an import on the hook path
        raise ValueError(f"the number {text[:40]} is out of range")
    return number


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")


def _depth(value: Any) -> int:
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, dict):
            item = list(item.values())
        elif not isinstance(item, (list, tuple)):
            continue
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in item)
    return deepest


_decode = decoder(_unique, parse_float=_finite, parse_constant=_no_constant)
_encode = encoder()
_encode_dataclasses = encoder(default=as_fields)
