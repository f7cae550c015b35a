"""The artifact as a person is shown it before a verdict: name, size, digest, and its content or what changed in it.

The content that was last reviewed is kept in the mission's folder, so that a person reads the difference.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal, StorageFailed, WorkspaceFault
from omx_autoresearch.foundation.records import dataclass, sha256
from omx_autoresearch.foundation.text import escaped
from omx_autoresearch.journal.safe_files import read_bounded, read_inside, replace_file
from omx_autoresearch.missions.rules.reviews import UNSEEN, rejection_of
from omx_autoresearch.missions.workspace import MARKED_BYTES, snapshot_workspace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import MissionFolder, Runtime
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Mission, Rejection

_KEPT_NAME = "reviewed"
LINES_SHOWN = 200
"""A longer content or difference is shown up to here, and the rest is counted."""
_COLUMNS_SHOWN = 2000
_LINES_COMPARED = 20_000


@dataclass(frozen=True, slots=True)
class Exhibit:
    """What a verdict is about.

    Attributes:
        question: to the reviewer.
        path: of the artifact, relative to the workspace.
        size_bytes: of the artifact.
        digest: sha256 of exactly what is shown.
        content: its bytes; empty for one that is too large to show.
        rejection: that stands against this content; None for none.
        is_difference: ``lines`` are the difference to an earlier content.
        lines: harmless, bounded.
        more_lines: how many there are besides; -1 where the content is not shown at all.
    """

    question: str
    path: str
    size_bytes: int
    digest: str
    content: bytes
    rejection: Rejection | None
    is_difference: bool
    lines: tuple[str, ...]
    more_lines: int


def exhibit(runtime: Runtime, mission: Mission, *, earlier: bytes = b"") -> Exhibit:
    """The artifact of a mission as it is now: a short one whole, a long one beside what was last reviewed.

    Args:
        runtime: the world.
        mission: that a review completes.
        earlier: content that was shown before; the difference to it is shown, however short both are.

    Raises:
        StepIllegal: there is nothing to review.
        WorkspaceFault: the workspace cannot be looked at.
    """
    folder, contract = runtime.home.mission(mission.task_id), mission.contract
    look = snapshot_workspace(folder, mission)
    path = contract.output_artifact_path if contract else ""
    if not look.output_artifact_digest:
        raise StepIllegal(f"there is nothing to review: {look.artifact_fault}", next_step=f"write {path}")
    content = _content(mission, look)
    shown, before = _lines(content), earlier or _last_reviewed(folder)
    is_compared = bool(before and content) and (bool(earlier) or len(shown) > LINES_SHOWN)
    difference = _differences(before, content) if is_compared else []
    is_difference = bool(difference)
    shown = difference or shown
    return Exhibit(
        question=contract.validator_prompt if contract else "",
        path=path,
        size_bytes=len(content) or os.path.getsize(os.path.join(mission.workspace_path, path)),
        digest=look.output_artifact_digest,
        content=content,
        rejection=rejection_of(mission, look),
        is_difference=is_difference,
        lines=tuple(map(_shown, shown[:LINES_SHOWN])),
        more_lines=max(0, len(shown) - LINES_SHOWN) if content else -1,
    )


def keep_reviewed(folder: MissionFolder, mission: Mission, look: WorkspaceSnapshot) -> None:
    """Keep the content that a verdict is about, if it still stands there and is not too large."""
    content = _content(mission, look)
    if not content:
        return
    try:
        replace_file(os.path.join(folder.root_path, _KEPT_NAME), content, is_durable=False)
    except StorageFailed:
        return  # the next person is shown the whole instead


def _content(mission: Mission, look: WorkspaceSnapshot) -> bytes:
    """The artifact's bytes, exactly those of the look; empty where they are not."""
    path = mission.contract.output_artifact_path if mission.contract else ""
    try:
        content = read_inside(mission.workspace_path, path, MARKED_BYTES)
    except (OSError, WorkspaceFault):
        return b""
    return content if sha256(content).hexdigest() == look.output_artifact_digest else b""


def _last_reviewed(folder: MissionFolder) -> bytes:
    try:
        return read_bounded(os.path.join(folder.root_path, _KEPT_NAME), MARKED_BYTES)
    except (OSError, AutoresearchError):
        return b""


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "backslashreplace").split("\n")


def _differences(before: bytes, after: bytes) -> list[str]:
    """The lines of a unified difference; empty where there is none, or where both are too long to compare."""
    old, new = _lines(before), _lines(after)
    if len(old) + len(new) > _LINES_COMPARED:
        return []
    import difflib  # a review that a stop runs keeps the content and compares nothing

    return list(difflib.unified_diff(old, new, "last reviewed", "now", lineterm=""))


def _shown(line: str) -> str:
    """A line in which nothing is hidden: what cannot be seen is its code."""
    text = escaped(line.expandtabs(4))
    if not text.isascii():
        text = text.translate({code: f"\\u{code:04x}" for code in UNSEEN})
    left = len(text) - _COLUMNS_SHOWN
    return text if left <= 0 else f"{text[:_COLUMNS_SHOWN]}… ({left} characters more)"
