"""The one spelling of a number that a measurement may have: a finite decimal with optional sign and exponent.

``float`` takes more than that (``nan``, ``1_000``, digits of every script), and other readers take the beginning of
what they do not understand (``15,00`` as 15). Here a spelling is right or an error that says why.
"""

from __future__ import annotations

import re

from omx_autoresearch.foundation.records import dataclass

LENGTH_LIMIT = 100
"""Characters of one number: more than any double needs."""

LARGEST = 1e150
"""Neither a sum or a product of two such numbers nor a ratio with `SMALLEST` leaves what a double can hold."""
SMALLEST = 1e-150

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)(?:\([^)]*\))?", re.IGNORECASE)
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F.]*(?:[pP][+-]?[0-9]+)?")
_TRUTH = frozenset({"true", "false", "yes", "no", "none", "null"})
_SHOWN_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number, or why a text is none.

    Attributes:
        value: finite; None where the text is no number.
        is_finite: False where the text means a number that is none: NaN, infinity, or one beyond `LARGEST`.
        why: what is wrong with the text, for people; empty where nothing is.
    """

    value: float | None
    is_finite: bool = True
    why: str = ""


def decimal_of(raw: str) -> Decimal:
    """The number that a text spells; blanks around it are no part of it."""
    text = raw.strip(" \t")
    if len(text) > LENGTH_LIMIT:
        return Decimal(None, why=f"has {len(text)} characters, at most {LENGTH_LIMIT} are read as a number")
    if _NO_NUMBER.fullmatch(text):
        return Decimal(None, is_finite=False, why="is not a finite number")
    if not _DECIMAL.fullmatch(text):
        return Decimal(None, why=_why_no_decimal(text))
    value = float(text)
    if abs(value) > LARGEST:
        return Decimal(None, is_finite=False, why=f"is larger than any number that is compared ({LARGEST:g})")
    if abs(value) < SMALLEST and re.search("[1-9]", re.split("[eE]", text)[0]):
        return Decimal(None, why="is so small that it cannot be told from 0")
    return Decimal(value + 0.0)  # -0.0 is 0.0


def _why_no_decimal(text: str) -> str:
    if not text:
        return "is empty"
    if text.casefold() in _TRUTH:
        return "is a truth value, not a number"
    if not text.isascii() and any(c.isdigit() and not c.isascii() for c in text):
        return "has digits other than 0-9"
    if "," in text:
        return "has a comma: write a decimal point and no separators of thousands (LC_NUMERIC=C)"
    if "_" in text:
        return "has an underscore: write the digits without separators"
    if _HEX.fullmatch(text):
        return "is hexadecimal: write a decimal number"
    if number := _DECIMAL.match(text):
        rest = text[number.end() :].strip()
        return f"has something behind the number ({shown(rest)}): write the bare number, the unit elsewhere"
    return "is not a decimal number"


def shown(text: str, limit: int = _SHOWN_LENGTH) -> str:
    """A foreign text in a message: in quotes, cut, with everything that cannot be seen as its code."""
    cut = text[:limit]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)
    return f"'{safe}{'...' if len(text) > limit else ''}'"
