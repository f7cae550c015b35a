"""What ``adopt`` prints with ``--json``; ``documents.py`` has the others."""

from __future__ import annotations

from omx_autoresearch.core.values import dataclass


@dataclass(frozen=True, slots=True)
class AdoptDocument:
    """``adopt``.

    Attributes:
        task_id: of the new mission.
        phase: ``draft``.
        origin_path: the folder that it was taken from, which stays as it was.
        layout: ``host``, ``own`` (our own projections) or ``protocol``.
        origin_status: what the folder said of its task.
        findings: taken over, all of them as claims.
        directions: taken over, as tried.
        criteria: ids of the criteria taken over.
        notes: what was left out, a line each.
        sandbox_path: sandbox.md, which says how the mission is judged.
        next: the command that follows.
    """

    task_id: str
    phase: str
    origin_path: str
    layout: str
    origin_status: str
    findings: int
    directions: int
    criteria: tuple[str, ...]
    notes: tuple[str, ...]
    sandbox_path: str
    next: str


ADOPTION_SCHEMAS: dict[str, object] = {"adopt": AdoptDocument}
ADOPTION_VERBS: dict[str, str] = {"adopt": "adopt"}
