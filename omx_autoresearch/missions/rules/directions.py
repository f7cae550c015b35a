"""Directions: approaches that are tried, told apart by fingerprint, and the change that a pivot must make.

A direction is a sentence and up to eight structural axes. Two that differ only in case, punctuation, spacing, width or
the encoding of accents are the same; word order, plural and symbols make them near, and near ones are said. A pivot
names an axis and changes it: another number in the same words is a parameter, no structure. Pure.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, field, replace, sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from omx_autoresearch.foundation.types import DirectionBy

FRESH: dict[str, str] = {
    "source_class": "learn from a different class of sources",
    "decomposition": "divide the problem differently, or begin at another end of it",
    "evidence_standard": "require another kind of evidence before a step counts",
    "evaluation_method": "measure improvement in another way",
    "search_space": "search where you have not searched yet",
    "representation": "represent the problem or its data in another form",
    "environment": "fix or change the environment: tools, versions, constraints",
    "objective": "work on another sub-goal of the contract",
}
"""The advice for a fresh direction, by the axis that it changes."""
AXES: tuple[str, ...] = tuple(FRESH)
"""Structural axes: changing one is a pivot, tuning a parameter is not."""
SUMMARY_LIMIT = 16_384
INJECTED_LIMIT = 1_000
AXIS_LIMIT = 500
DIRECTIONS_LIMIT = 500
"""Different directions that a mission remembers: every stop reads them, four hundred for a fifth of its cost."""
OPEN_LIMIT = 8
RECENT = 3
"""A pivot is compared with this many earlier directions."""
_KEPT_CHARACTERS = 300
_SHOWN_AXES = 8
_SEPARATING = frozenset(("Cc", "Cs", "Sk"))
_INVISIBLE = (
    ("\u034f", "\u034f"), ("\u115f", "\u1160"), ("\u17b4", "\u17b5"), ("\u180b", "\u180f"), ("\u2060", "\u206f"),
    ("\ufe00", "\ufe0f"), ("\ufff0", "\ufff8"), ("\U0001d159", "\U0001d159"), ("\U000e0000", "\U000e0fff"),
)  # fmt: skip
"""Ranges of invisible characters that are not all ``Cf``: Unicode's Default_Ignorable_Code_Point (fillers,
joiners, variation selectors, tags) and the null notehead."""
_BLANK = "\u2800\ufffd"
"""Shown as a space, or standing for what could not be read."""
_UNSPACED = (("\u2e80", "\u9fff"), ("\U00020000", "\U0003ffff"))
"""Han and kana, written without spaces: each sign is a word, so that spaces between them mean nothing."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction as declared.

    Attributes:
        fingerprint: see :func:`fingerprint_of`.
        summary: what is tried, in the words of its author.
        axes: structural axes by name, free text each; only those that are meant.
        is_pivot: declared as a change of structure, and one.
        by: who said it; a ``claim`` came through the inbox and moves no counter.
    """

    fingerprint: str
    summary: str
    axes: dict[str, str] = field(default_factory=dict)
    is_pivot: bool = False
    by: DirectionBy = "agent"


@dataclass(frozen=True, slots=True)
class Tried:
    """A direction that was tried, and how often.

    Attributes:
        fingerprint: of the direction.
        summary: of its first declaration, its beginning.
        first_seen_iteration: when it was first declared.
        last_seen_iteration: when it was last declared.
        count: how often.
        near_key: see :func:`near_key`.
    """

    fingerprint: str
    summary: str
    first_seen_iteration: int
    last_seen_iteration: int
    count: int
    near_key: str = ""


def direction_of(
    summary: str, axes: Mapping[str, str], *, is_pivot: bool = False, by: DirectionBy = "agent"
) -> Direction:
    """A direction from a text; empty axes are left out, and the others are in the order of :data:`AXES`."""
    named = {axis: " ".join(axes[axis].split()) for axis in (*AXES, *(set(axes) - set(AXES))) if axis in axes}
    given = {axis: value for axis, value in named.items() if value or axis not in AXES}
    return Direction(fingerprint_of(summary), " ".join(summary.split()), given, is_pivot, by)


def kept(direction: Direction) -> Direction:
    """A direction as the state keeps it: the beginning of a long summary; the journal has the whole."""
    text = direction.summary
    if len(text) <= _KEPT_CHARACTERS:
        return direction
    return replace(direction, summary=text[: _KEPT_CHARACTERS - 1] + "…")


def claim_text(direction: Direction) -> str:
    """A direction as a claim in the inbox says it: the summary, then an axis a line."""
    return "\n".join([direction.summary, *(f"{axis}: {value}" for axis, value in direction.axes.items())])


def claimed_direction(text: str) -> Direction:
    """The direction in the text of a claim; the inverse of :func:`claim_text`."""
    summary, *lines = text.strip().split("\n")
    named = (line.partition(":") for line in lines)
    return direction_of(
        summary, {name.strip(): value for name, _, value in named if name.strip()}, by="claim"
    )


# --- the same, and nearly the same


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text in any script: case folded, without punctuation and invisible signs; a symbol is a word.

    Compatibility caseless matching of the Unicode standard (3.13, D146), then composed.
    """
    from unicodedata import category, normalize

    folded = normalize("NFKD", normalize("NFD", text).casefold()).casefold()
    # Taken out before the composition: between a letter and its accent, an invisible sign would prevent it.
    seen = "".join(char for char in folded if char.isascii() or not _is_invisible(char, category(char)))
    spaced = []
    for char in normalize("NFKC", seen):
        kind = category(char)
        if kind[0] in "ZP" or kind in _SEPARATING or char in _BLANK:
            spaced.append(" ")
        elif kind[0] == "S" or any(first <= char <= last for first, last in _UNSPACED):
            spaced.append(f" {char} ")
        else:  # letters, marks, numbers; also what this Python's tables do not know yet
            spaced.append(char)
    return tuple("".join(spaced).split())


def _is_invisible(char: str, kind: str) -> bool:
    return kind == "Cf" or any(first <= char <= last for first, last in _INVISIBLE)


def fingerprint_of(summary: str) -> str:
    """A readable name of a direction without collisions: its first words and a digest of all; empty for no words."""
    words = words_of(summary)
    if not words:
        return ""
    digest = _digest_of(words)
    plain = "".join(char if char.isascii() and char.isalnum() else "-" for char in "-".join(words)[:60])
    readable = "-".join(filter(None, plain.split("-")))
    return f"{readable}-{digest}" if readable else digest


def near_key(summary: str) -> str:
    """The key that near duplicates share: a digest of the words without order, plural and symbols."""
    words = words_of(summary)
    spoken = [word for word in words if not _is_symbol(word)] or words
    return _digest_of(sorted(map(_stem, spoken)))


def _digest_of(words: Iterable[str]) -> str:
    return sha256(" ".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_symbol(word: str) -> bool:
    from unicodedata import category

    return len(word) == 1 and category(word)[0] == "S"


def _stem(word: str) -> str:
    """A word without the plural of English, as far as spelling tells."""
    if len(word) <= 3 or not word.isascii() or word.endswith("ss"):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    word = word.removesuffix("es") if word.endswith("es") else word.removesuffix("s")
    return word.removesuffix("e") if len(word) > 3 else word


def repeated(summary: str, tried: Iterable[Tried]) -> Tried | None:
    """The tried direction that ``summary`` repeats exactly, or None."""
    fingerprint = fingerprint_of(summary)
    return next((item for item in tried if item.fingerprint == fingerprint), None)


def near(summary: str, tried: Iterable[Tried]) -> Tried | None:
    """The tried direction that ``summary`` nearly repeats (word order, plural, symbols), or None."""
    key, fingerprint = near_key(summary), fingerprint_of(summary)
    return next((item for item in tried if item.near_key == key and item.fingerprint != fingerprint), None)


# --- what may be declared


def direction_faults(summary: str, axes: Mapping[str, str]) -> list[str]:
    """The faults that keep a direction from being declared, a sentence each."""
    faults = []
    if not words_of(summary):
        faults.append(f"a direction must say in words what to try, received {summary[:80]!r}")
    if len(summary) > SUMMARY_LIMIT:
        faults.append(f"a direction has at most {SUMMARY_LIMIT} characters, received {len(summary)}")
    unknown = [name for name in axes if name not in AXES]
    faults += [
        f"there is no axis {name[:40]!r}; the axes are {', '.join(AXES)}" for name in unknown[:_SHOWN_AXES]
    ]
    for name, value in axes.items():
        if name in AXES and len(value) > AXIS_LIMIT:
            faults.append(f"the axis {name} has at most {AXIS_LIMIT} characters, received {len(value)}")
    return faults


def changed_axes(axes: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, ...]:
    """The axes that ``axes`` names and that say another thing there than in ``other``, numbers aside."""
    return tuple(
        axis for axis in AXES if axes.get(axis) and _axis_key(axes[axis]) != _axis_key(other.get(axis, ""))
    )


def _axis_key(value: str) -> tuple[str, ...]:
    """The meaning of an axis: its words without order, plural, symbols and numbers."""
    words = ("".join(char for char in word if not char.isnumeric()) for word in words_of(value))
    return tuple(sorted(_stem(word) for word in words if word and not _is_symbol(word)))


def pivot_faults(direction: Direction, recent: Iterable[Direction]) -> list[str]:
    """The faults of a declared pivot: it must change at least one axis against each recent direction."""
    if not any(direction.axes.get(axis) for axis in AXES):
        return [f"a pivot must name the axis that it changes; the axes are {', '.join(AXES)}"]
    return [
        f"it changes no structural axis from {item.summary[:80]!r} (another number is a parameter, not a structure)"
        for item in recent
        if not changed_axes(direction.axes, item.axes)
    ]


# --- what to try next


def perturbation(history: Iterable[Tried], recent: Iterable[Direction]) -> str:
    """The axis to change next: one of those least often named lately; the same history offers the same axis."""
    recent = tuple(recent)
    named = {axis: sum(bool(item.axes.get(axis)) for item in recent) for axis in AXES}
    seed = sha256("|".join(sorted(item.fingerprint for item in history)).encode()).hexdigest()
    least = min(named.values())
    open_axes = [axis for axis in AXES if named[axis] == least]
    return open_axes[int(seed[:8], 16) % len(open_axes)]


def by_diversity(waiting: Iterable[Direction], recent: Iterable[Direction]) -> tuple[Direction, ...]:
    """Directions that wait to be tried, the one that differs most from the recent ones first.

    Counted is, against the nearest recent one, how many axes change, then the share of other words; of equals the
    older one comes first.
    """
    recent = tuple(recent)
    return tuple(sorted(waiting, key=lambda item: _distance(item, recent), reverse=True))


def _distance(direction: Direction, recent: tuple[Direction, ...]) -> tuple[int, float]:
    words = set(words_of(direction.summary))
    distances = []
    for item in recent:
        other = set(words_of(item.summary))
        share = len(words ^ other) / max(1, len(words | other))
        distances.append((len(changed_axes(direction.axes, item.axes)), share))
    return min(distances, default=(0, 0.0))


_SUMMARY_KEYS = ("summary", "finding", "text", "title", "detail", "description", "direction")


def entry_words(item: object) -> str:
    """The words of an entry, under the first known key that has some."""
    if not isinstance(item, dict):
        return ""
    return next(
        (item[key] for key in _SUMMARY_KEYS if isinstance(item.get(key), str) and item[key].strip()), ""
    )
