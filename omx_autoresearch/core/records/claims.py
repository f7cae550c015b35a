"""Records of what somebody said or edited. A claim is kept and shown; nothing here is proof."""

from __future__ import annotations

from omx_autoresearch.core.mission import Mission
from omx_autoresearch.core.records.notices import noticed
from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

_KEPT_EDITS = 8


@dataclass(frozen=True, slots=True)
class ClaimRecorded:
    """A note or an inbox line, taken in as a claim.

    Attributes:
        text: the claim, bounded.
        origin: ``cli``, ``inbox``, ``tool-event``, or ``unknown`` (a file that somebody put into the inbox, a line
            or entry that somebody added to a projection; ``hand-edit`` in older journals).
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
    """Somebody edited a projection otherwise than by adding to it; the file was set aside and written anew.

    Attributes:
        path: of the projection, relative to the mission's folder under ``.omx/autoresearch``.
        moved_to: where the edited file stands now, relative to the same.
    """

    kind: ClassVar[str] = "projection_edited"
    path: str
    moved_to: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Told by the next summary, and by a notice."""
        text = f"{self.path} was edited and is written anew; the edited file is {self.moved_to}"
        mission = noticed(mission, ts, self.kind, text)
        kept = (*(path for path in mission.edited_projections if path != self.path), self.path)
        return replace(mission, edited_projections=kept[-_KEPT_EDITS:], updated_at=ts)


@dataclass(frozen=True, slots=True)
class TornTailSetAside:
    """The last line of the journal was torn by a crash; its bytes were moved to a file."""

    kind: ClassVar[str] = "torn_tail_set_aside"
    path: str
    size_bytes: int

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Nothing acknowledged was lost."""
        return replace(mission, updated_at=ts)
