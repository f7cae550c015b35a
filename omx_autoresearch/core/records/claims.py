"""Records of what somebody said or edited. A claim is kept and shown; nothing here is proof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from omx_autoresearch.core.mission import Mission


@dataclass(frozen=True, slots=True)
class ClaimRecorded:
    """A note or an inbox line, taken in as a claim.

    Attributes:
        text: the claim, bounded.
        origin: ``cli``, ``inbox``, ``tool-event`` or ``hand-edit``.
        claim_id: digest of the line; the same line is taken in once.
    """

    kind: ClassVar[str] = "claim_recorded"
    text: str
    origin: str
    claim_id: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Counted and shown."""
        return replace(mission, claim_count=mission.claim_count + 1, updated_at=ts)


@dataclass(frozen=True, slots=True)
class ProjectionEdited:
    """Somebody edited a projection; its lines became claims and the file was restored."""

    kind: ClassVar[str] = "projection_edited"
    path: str
    moved_to: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Told by the next summary."""
        return replace(mission, updated_at=ts)


@dataclass(frozen=True, slots=True)
class TornTailSetAside:
    """The last line of the journal was torn by a crash; its bytes were moved to a file."""

    kind: ClassVar[str] = "torn_tail_set_aside"
    path: str
    size_bytes: int

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Nothing acknowledged was lost."""
        return replace(mission, updated_at=ts)
