"""Names of metrics: which texts are one, and when two of them are the same.

A name begins with a letter of any script, a digit or ``_``; letters, digits, marks of letters and ``._-/%@:+`` may
follow, at most `NAME_LIMIT` characters. Both sides are compared in NFKC: a micro sign and a Greek mu are one letter.
Names are data everywhere: keys of a dict, never attributes.
"""

from __future__ import annotations

import unicodedata

from omx_autoresearch.foundation.decimals import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NAME_LIMIT = 100

_NAME_SIGNS = "._-/%@:+"


def normal_name(name: str) -> str:
    """The form in which names are compared."""
    return unicodedata.normalize("NFKC", name)


def name_faults(name: str) -> list[str]:
    """Why a text cannot name a metric; empty when it can."""
    if not name:
        return ["a metric needs a name"]
    if len(name) > NAME_LIMIT:
        return [
            f"the metric name {shown(name, 40)} has {len(name)} characters; at most {NAME_LIMIT} are taken"
        ]
    wrong = [c for c in normal_name(name) if not _is_name_sign(c)]
    if wrong:
        signs = " ".join(_NAME_SIGNS)
        return [f"the metric name {shown(name)} has {shown(wrong[0])}; letters, digits and {signs} are taken"]
    if not (normal_name(name)[0].isalnum() or name[0] == "_"):
        return [f"the metric name {shown(name)} must begin with a letter, a digit or _"]
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
