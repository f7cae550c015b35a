"""What changed between the launch of a mission and its completion, for ten seconds of a person's eyes. Pure.

Flagged changes come first: these are files that decide a verdict although nothing froze them.
"""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested, replace
from omx_autoresearch.foundation.text import count_of, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.foundation.types import ChangeFlag, ChangeKind

KEPT_CHANGES = 100
"""A record names at most so many changes."""
SHOWN_CHANGES = 10
"""A message names at most so many."""
_PATH_CHARACTERS = 300
_SHOWN_CHARACTERS = 120
_WEIGHTS: dict[ChangeFlag, int] = {
    "shadows an installed module": 8,
    "test or data": 3,
    "new in a loaded folder": 2,
    "read by the check": 1,
}


@dataclass(frozen=True, slots=True)
class Change:
    """One file that differs from the launch.

    Attributes:
        path: from the root of the repository, without one from the workspace.
        kind: ``added``, ``edited``, ``removed``, ``moved`` (same content, another name) or ``mode``.
        flags: why a person should look at it, the weightiest first.
        old_path: where a moved file stood.
    """

    path: str
    kind: ChangeKind
    flags: tuple[ChangeFlag, ...] = ()
    old_path: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs from the launch.

    Attributes:
        file_count: files that changed.
        flagged_count: how many of them have a flag.
        changes: the weightiest first, bounded.
        fault: why the difference is not known; empty where it is.
    """

    file_count: int = 0
    flagged_count: int = 0
    changes: tuple[Change, ...] = nested(Change, default=())
    fault: str = ""


def difference_of(changes: Iterable[Change]) -> Difference:
    """The difference that these changes make, all of them named."""
    ordered = tuple(sorted(changes, key=lambda change: (-weight(change.flags), change.path)))
    return Difference(len(ordered), sum(bool(change.flags) for change in ordered), ordered)


def weight(flags: tuple[ChangeFlag, ...]) -> int:
    """How much a change with these flags deserves a look."""
    is_judging_data = {"read by the check", "test or data"}.issubset(flags)
    return sum(_WEIGHTS[flag] for flag in flags) + (3 if is_judging_data else 0)


def by_weight(flags: Iterable[ChangeFlag]) -> tuple[ChangeFlag, ...]:
    """The flags, the weightiest first."""
    return tuple(sorted(flags, key=lambda flag: -_WEIGHTS[flag]))


def bounded(difference: Difference, limit: int = KEPT_CHANGES) -> Difference:
    """The difference with at most ``limit`` changes by name, and no endless path."""
    kept = (
        replace(change, path=_cut(change.path), old_path=_cut(change.old_path))
        for change in difference.changes[:limit]
    )
    return replace(difference, changes=tuple(kept))


def count_text(difference: Difference) -> str:
    """The difference in a few words: ``14 files changed since the launch, 3 flagged``."""
    if difference.fault:
        return f"what changed since the launch is not known: {difference.fault}"
    if not difference.file_count:
        return "no file changed since the launch"
    flagged = f", {difference.flagged_count} flagged" if difference.flagged_count else ""
    return f"{count_of(difference.file_count, 'file')} changed since the launch{flagged}"


def message_lines(difference: Difference, task_id: str) -> list[str]:
    """The difference as a person reads it at completion: the first changes by name, then how many more there are."""
    said = count_text(difference)
    lines = [f"{said[0].upper()}{said[1:]}{':' if difference.changes else '.'}"]
    shown = difference.changes[:SHOWN_CHANGES]
    lines += [f"  {change_text(change)}" for change in shown]
    if more := difference.file_count - len(shown):
        lines.append(f"  and {count_of(more, 'more file', 'more files')}")
    if shown:
        lines.append(f"To see them: omx-autoresearch diff {task_id}")
    return lines


def change_text(change: Change) -> str:
    """One change, one line: ``added tests/filecmp.py (shadows an installed module)``."""
    kind = "new mode of" if change.kind == "mode" else change.kind
    moved = f"{one_line(change.old_path, _SHOWN_CHARACTERS)} to " if change.old_path else ""
    flags = f" ({', '.join(change.flags)})" if change.flags else ""
    return f"{kind} {moved}{one_line(change.path, _SHOWN_CHARACTERS)}{flags}"


def _cut(path: str) -> str:
    return path if len(path) <= _PATH_CHARACTERS else f"…{path[1 - _PATH_CHARACTERS :]}"
