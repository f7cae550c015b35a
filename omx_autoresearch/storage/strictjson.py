"""JSON without its traps: no key given twice, no number that is none, output in strict UTF-8."""

from __future__ import annotations

from omx_autoresearch.core import light_json
from omx_autoresearch.core.shape import as_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEPTH_LIMIT = 100
"""Deeper values are refused when written, so that every reader, however deep its own stack, can read them."""

_UTF16_OPENINGS = (b"{\0", b"[\0", b"\0{", b"\0[")


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
    """Parse a whole file that anyone may have written: a UTF-8 byte order mark is accepted.

    Raises:
        ValueError: as :func:`decode`; also an empty file, and UTF-16 or UTF-32, each named.
    """
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    elif data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        raise ValueError("it is encoded in UTF-32; save it as UTF-8")
    elif data.startswith((b"\xff\xfe", b"\xfe\xff", *_UTF16_OPENINGS)):
        raise ValueError("it is encoded in UTF-16; save it as UTF-8")
    if not data.strip():
        raise ValueError("it is empty" if not data else "it holds only white space")
    return decode(data)


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
    """Do as :func:`encode`, for a caller who reads the result back himself and so finds equal keys."""
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
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


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


_decode = light_json.decoder(_unique, parse_float=_finite, parse_constant=_no_constant)
_encode = light_json.encoder()
_encode_dataclasses = light_json.encoder(default=as_fields)
