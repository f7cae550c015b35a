"""The spelling of a metric: its name, and the one form of a number that a measurement may have.

A name begins with a letter of any script, a digit or ``_``; letters, digits, marks of letters and ``._-/%@:+`` may
follow, at most `NAME_LIMIT` characters. Both sides are compared in NFKC: a micro sign and a Greek mu are one letter.
Names are data everywhere: keys of a dict, never attributes.

A number is a finite decimal with optional sign and exponent. ``float`` takes more than that (``nan``, ``1_000``, digits
of every script), and other readers take the beginning of a text that they do not understand (``15,00`` as 15). Here a
spelling is right, or an error says why it is not.
"""

from __future__ import annotations

import re
import unicodedata

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH_LIMIT = 100
"""Characters of one number: more than any double needs."""

LARGEST = 1e150
"""Neither a sum or a product of two such numbers nor a ratio with `SMALLEST` leaves what a double can hold."""
SMALLEST = 1e-150

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)(?:\([^)]*\))?", re.IGNORECASE)
_HEX = re.compile(r"[+-]?0[xX][0-9a-fA-F.]*(?:[pP][+-]?[0-9]+)?")
_TRUTH = frozenset({"true", "false", "yes", "no", "none", "null"})


@dataclass(frozen=True, slots=True)
class Decimal:
    """A number, or the reason why a text is not one.

    Attributes:
        value: finite; None where the text is no number.
        is_finite: False for NaN, infinity, and a number beyond `LARGEST`.
        why: the fault of the text, for people; empty where there is none.
    """

    value: float | None
    is_finite: bool = True
    why: str = ""


def decimal_of(raw: str) -> Decimal:
    """The number that a text spells, without the blanks around it."""
    text = raw.strip(" \t")
    if len(text) > LENGTH_LIMIT:
        return Decimal(None, why=f"has {len(text)} characters; at most {LENGTH_LIMIT} are read as a number")
    if _NO_NUMBER.fullmatch(text):
        return Decimal(None, is_finite=False, why="is not a finite number")
    if not _DECIMAL.fullmatch(text):
        return Decimal(None, why=_why_no_decimal(text))
    value = float(text)
    if abs(value) > LARGEST:
        return Decimal(
            None, is_finite=False, why=f"is larger than any number that the judge compares ({LARGEST:g})"
        )
    if abs(value) < SMALLEST and re.search("[1-9]", re.split("[eE]", text)[0]):
        return Decimal(None, why="is too small to tell from 0")
    return Decimal(value + 0.0)  # -0.0 is 0.0


def _why_no_decimal(text: str) -> str:
    if not text:
        return "is empty"
    if text.casefold() in _TRUTH:
        return "is a boolean, not a number"
    if not text.isascii() and any(c.isdigit() and not c.isascii() for c in text):
        return "has digits other than 0-9"
    if "," in text:
        return "has a comma: write a decimal point and no thousands separators (LC_NUMERIC=C)"
    if "_" in text:
        return "has an underscore: write the digits without separators"
    if _HEX.fullmatch(text):
        return "is hexadecimal: write a decimal number"
    if number := _DECIMAL.match(text):
        rest = text[number.end() :].strip()
        return f"has something after the number ({quoted(rest)}): write only the number and put the unit elsewhere"
    return "is not a decimal number"


NAME_LIMIT = 100

_NAME_SIGNS = "._-/%@:+"


def normal_name(name: str) -> str:
    """The form in which names are compared."""
    return unicodedata.normalize("NFKC", name)


def name_faults(name: str) -> list[str]:
    """The reasons why a text cannot name a metric; none where it can."""
    if not name:
        return ["a metric needs a name"]
    if len(name) > NAME_LIMIT:
        return [
            f"the metric name {quoted(name, 40)} has {len(name)} characters; at most {NAME_LIMIT} are allowed"
        ]
    wrong = [c for c in normal_name(name) if not _is_name_sign(c)]
    if wrong:
        signs = " ".join(_NAME_SIGNS)
        return [
            f"the metric name {quoted(name)} has {quoted(wrong[0])}; letters, digits and {signs} are allowed"
        ]
    if not (normal_name(name)[0].isalnum() or name[0] == "_"):
        return [f"the metric name {quoted(name)} must begin with a letter, a digit or _"]
    return []


def near_name(name: str, seen: Sequence[str]) -> str:
    """The one of these names that was probably meant; empty where none is like it."""
    from difflib import get_close_matches

    folded = {_folded(each): each for each in seen[:100] if len(each) <= NAME_LIMIT}
    found = get_close_matches(_folded(name), list(folded), n=1, cutoff=0.75)
    return folded[found[0]] if found else ""


def _folded(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def _is_name_sign(c: str) -> bool:
    return c in _NAME_SIGNS or unicodedata.category(c)[0] in "LM" or unicodedata.category(c) == "Nd"
