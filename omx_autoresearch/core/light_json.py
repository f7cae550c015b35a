"""JSON by CPython's own scanner and encoder, without loading the package around them: 0.2 ms instead of 6.

``json`` loads ``re``, and that ``enum``, ``functools`` and ``collections``, for a pattern that skips white space. A
hook that reads and writes a few kilobytes pays more for that than for everything it does with them. The accelerators
are the very functions that ``json`` uses; where they are missing, ``json`` itself is used. Every error is the package's
own: a text that the scanner does not take is given to ``json``, which says what is wrong and where.
"""

from __future__ import annotations

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
    """What the scanner looks up by these names (``json.JSONDecoder`` has them)."""

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

    ``default`` gives the plain value of what JSON has no form for.

    It raises ValueError for a number that is none, TypeError for what JSON has no form for, and RecursionError for what
    nests too deeply, a value inside itself too.
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


_scalar = encoder()


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
    return _scalar(value)
