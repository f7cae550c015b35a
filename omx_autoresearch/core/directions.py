"""Directions: what is tried, told apart by fingerprint, and what a pivot must change.

A direction is a sentence and up to eight structural axes. Two that differ only in case, punctuation, spacing, accents'
encoding or width are the same; word order and plural make them near, and near ones are said. Pure.
"""

from __future__ import annotations

import re

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AXES: tuple[str, ...] = (
    "source_class",
    "decomposition",
    "evidence_standard",
    "evaluation_method",
    "search_space",
    "representation",
    "environment",
    "objective",
)
"""Structural axes: changing one is a pivot, tuning a parameter is not."""
SUMMARY_LIMIT = 10_000
RECENT = 3
"""How many directions back a pivot is held against."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction as declared.

    Attributes:
        fingerprint: see :func:`fingerprint_of`.
        summary: what is tried, in the words of whoever declared it.
        axes: structural axes by name, free text each; only those that are meant.
        is_pivot: declared as a change of structure.
        by: ``agent`` or ``owner``.
    """

    fingerprint: str
    summary: str
    axes: dict[str, str] = field(default_factory=dict)
    is_pivot: bool = False
    by: str = "agent"


@dataclass(frozen=True, slots=True)
class Tried:
    """How often a direction was tried.

    Attributes:
        fingerprint: of the direction.
        summary: of its first declaration.
        first_seen_iteration: when it was first declared.
        last_seen_iteration: when it was last declared.
        count: how often.
    """

    fingerprint: str
    summary: str
    first_seen_iteration: int
    last_seen_iteration: int
    count: int


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text: NFKC, case folded, every script, without punctuation; symbols (emoji) count as words."""
    import unicodedata

    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    spaced = "".join(
        char
        if unicodedata.category(char)[0] in "LNM"
        else f" {char} "
        if unicodedata.category(char) in ("So", "Sk", "Sm", "Sc")
        else " "
        for char in folded
    )
    return tuple(spaced.split())


def fingerprint_of(summary: str) -> str:
    """A readable name of a direction without collisions: its first words and a digest of all; empty for no words."""
    words = words_of(summary)
    if not words:
        return ""
    digest = sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    readable = re.sub(r"[^a-z0-9]+", "-", "-".join(words)[:60].lower()).strip("-")
    return f"{readable}-{digest}" if readable else digest


def near_key(summary: str) -> tuple[str, ...]:
    """What near duplicates share: the words without order and plural."""
    return tuple(
        sorted(word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words_of(summary))
    )


def repeated(summary: str, tried: Iterable[Tried]) -> Tried | None:
    """The tried direction that ``summary`` repeats exactly, or None."""
    fingerprint = fingerprint_of(summary)
    return next((item for item in tried if item.fingerprint == fingerprint), None)


def near(summary: str, tried: Iterable[Tried]) -> Tried | None:
    """The tried direction that ``summary`` nearly repeats (word order, plural), or None."""
    key, fingerprint = near_key(summary), fingerprint_of(summary)
    return next(
        (item for item in tried if item.fingerprint != fingerprint and near_key(item.summary) == key), None
    )


def changed_axes(axes: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """The axes that differ between two directions; an axis that one leaves out and the other names differs."""
    return tuple(axis for axis in AXES if words_of(axes.get(axis, "")) != words_of(other.get(axis, "")))


def direction_faults(summary: str, axes: Mapping[str, str]) -> list[str]:
    """Why a direction cannot be declared, a sentence a fault."""
    faults = []
    if not words_of(summary):
        faults.append(f"a direction says in words what is tried, received {summary[:80]!r}")
    if len(summary) > SUMMARY_LIMIT:
        faults.append(f"a direction has at most {SUMMARY_LIMIT} characters, received {len(summary)}")
    faults += [
        f"there is no axis {name!r}; the axes are {', '.join(AXES)}" for name in axes if name not in AXES
    ]
    return faults


def pivot_faults(direction: Direction, recent: Iterable[Direction]) -> list[str]:
    """Why a declared pivot is none: it must change at least one axis against each recent direction."""
    return [
        f"it changes no structural axis against {item.summary[:80]!r}; change one of {', '.join(AXES)}"
        for item in recent
        if not changed_axes(direction.axes, item.axes)
    ]


def perturbation(history: Iterable[Tried], recent: Iterable[Direction]) -> str:
    """The axis to change next: the one least often named lately; the same history offers the same axis."""
    recent = tuple(recent)
    named = {axis: sum(bool(item.axes.get(axis)) for item in recent) for axis in AXES}
    seed = sha256("|".join(sorted(item.fingerprint for item in history)).encode()).hexdigest()
    least = min(named.values())
    open_axes = [axis for axis in AXES if named[axis] == least]
    return open_axes[int(seed[:8], 16) % len(open_axes)]
