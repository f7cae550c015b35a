"""What ``direction`` and ``direct`` print with ``--json``; ``documents.py`` has the others."""

from __future__ import annotations

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.runtime.task_files import TriedDirection


@dataclass(frozen=True, slots=True)
class DirectionDocument:
    """``direction add`` and ``direct``.

    Attributes:
        task_id: of the mission.
        fingerprint: of the direction; empty for a text without a word.
        summary: what is tried.
        axes: structural axes by name.
        is_recorded: it stands in the journal; otherwise it is refused, or waits in the mission's inbox as a claim.
        is_pivot_accepted: it was declared as a pivot, and is one.
        repeats: the tried direction that it repeats; empty for a new one.
        near: the tried direction that it nearly repeats (word order, plural, symbols); empty for none.
        faults: why it is not declared, a sentence each.
        offered_axis: the axis to change next.
        next: the command that follows.
    """

    task_id: str
    fingerprint: str
    summary: str
    axes: dict[str, str]
    is_recorded: bool
    is_pivot_accepted: bool
    repeats: str
    near: str
    faults: tuple[str, ...]
    offered_axis: str
    next: str


@dataclass(frozen=True, slots=True)
class OpenDirection:
    """A direction that the owner injected and that nobody has taken up.

    Attributes:
        fingerprint: takes it up, as the text of ``direction add``.
        summary: what is to be tried.
        axes: structural axes by name.
    """

    fingerprint: str
    summary: str
    axes: dict[str, str]


@dataclass(frozen=True, slots=True)
class DirectionListDocument:
    """``direction list``.

    Attributes:
        task_id: of the mission.
        current_direction: the declared direction; empty for none.
        stale_count: iterations without progress.
        pivot_count: untried pivots declared.
        pivot_required: the stale count demands one.
        offered_axis: the axis to change next.
        open_directions: of the owner, the most different one first.
        tried: every direction tried, in the order of their first declaration.
    """

    task_id: str
    current_direction: str
    stale_count: int
    pivot_count: int
    pivot_required: bool
    offered_axis: str
    open_directions: tuple[OpenDirection, ...]
    tried: tuple[TriedDirection, ...]


DIRECTION_SCHEMAS: dict[str, object] = {
    "direction": DirectionDocument,
    "direction-list": DirectionListDocument,
}
DIRECTION_VERBS: dict[str, str] = {"direction": "direction", "direct": "direction"}
