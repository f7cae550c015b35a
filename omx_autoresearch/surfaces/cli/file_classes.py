"""The table of a project's files by what a mission does with them: work, frozen, shown, unknown."""

from __future__ import annotations

from omx_autoresearch.foundation.text import count_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.freezing.manifest import FileClasses
    from omx_autoresearch.surfaces.cli.console import Row

_SHOWN = 5


def class_rows(files: FileClasses | None, *, has_work: bool) -> list[Row]:
    """Rows for `console.print_rows`: the count of each class and its first names; none without classes."""
    if files is None:
        return []
    unnamed = "not named, so only what is known to judge is frozen (--work GLOB)"
    opened = "seen to be opened up to the check's first failure"
    learned = len(set(files.opened).intersection(files.frozen))
    why = "not tracked by git, so not frozen" if has_work else "only you know whether this is the work"
    return [
        ("  work", (_listed(files.work) or "no file yet") if has_work else unnamed, ""),
        ("  frozen", _listed(files.frozen, f"{learned} of them {opened}" if learned else ""), ""),
        ("  shown", _listed(files.shown, "free to change, shown at completion"), ""),
        ("  unknown", _listed(files.unknown, f"{opened}; {why}"), "yellow"),
    ]


def _listed(paths: Sequence[str], what: str = "") -> str:
    """``3 files (WHAT): a, b, c``; empty for none."""
    if not paths:
        return ""
    more = ", ..." if len(paths) > _SHOWN else ""
    return f"{count_of(len(paths), 'file')}{what and f' ({what})'}: {', '.join(paths[:_SHOWN])}{more}"
