"""One look at the workspace: HEAD, content, pinned files, the artifact under review; freshness is judged by it."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omx_autoresearch.core.briefing import completion_path
from omx_autoresearch.core.evidence import Look, read_artifact
from omx_autoresearch.errors import AutoresearchError, WorkspaceFault
from omx_autoresearch.storage.atomic import load_json
from omx_autoresearch.storage.pins import check_pins, load_manifest
from omx_autoresearch.system.git import tree_state

if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.storage.layout import MissionFolder

_ARTIFACT_BYTES = 1024 * 1024 * 1024
_COMPLETION_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Artifact:
    """The output artifact as it stands.

    Attributes:
        digest: sha256 of its bytes; empty when there is a fault.
        fault: path and rule, when it cannot be taken.
    """

    digest: str = ""
    fault: str = ""


def take_look(folder: MissionFolder, mission: Mission) -> Look:
    """See the workspace of a mission as it is now.

    Raises:
        WorkspaceFault: the workspace is gone, or git cannot tell its state.
    """
    if not os.path.isdir(mission.workspace_path):
        raise WorkspaceFault(
            f"the workspace {mission.workspace_path} is gone",
            next_step=f"omx-autoresearch amend {mission.task_id} --workspace PATH",
        )
    tree = tree_state(mission.workspace_path)
    pins = check_pins(
        load_manifest(folder.frozen_path),
        mission.workspace_path,
        cache_path=os.path.join(folder.root_path, "pins.cache"),
    )
    contract = mission.contract
    artifact = Artifact()
    if contract is not None and contract.output_artifact_path:
        artifact = look_at_artifact(mission.workspace_path, contract.output_artifact_path)
    return Look(
        head=tree.head,
        tree_digest=tree.digest,
        pin_digest=pins.digest,
        changed_pins=(*pins.changed, *pins.added),
        output_artifact_digest=artifact.digest,
        artifact_fault=artifact.fault,
        **_hand_written(mission),
    )


def look_at_artifact(workspace_path: str, relative_path: str) -> Artifact:
    """The digest of an artifact inside the workspace; anything that is not a non-empty regular file is a fault.

    Nothing here can hang: a FIFO or device is recognised before a byte is read.
    """
    shown = relative_path if len(relative_path) <= 200 else f"{relative_path[:200]}…"
    if os.path.isabs(relative_path) or ".." in relative_path.split("/") or "\0" in relative_path:
        return Artifact(fault=f"{shown!r}: the path must be relative and stay inside the workspace")
    root = os.path.realpath(workspace_path)
    path = os.path.join(root, relative_path)
    try:
        if os.path.realpath(path) != path:
            return Artifact(
                fault=f"{shown!r}: a symbolic link is on the path; the artifact must be a plain file"
            )
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        return Artifact(fault=f"{shown!r}: {getattr(error, 'strerror', None) or error}")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Artifact(fault=f"{shown!r}: it is not a regular file")
        if not 0 < status.st_size <= _ARTIFACT_BYTES:
            return Artifact(
                fault=f"{shown!r}: it is empty" if status.st_size == 0 else f"{shown!r}: it is too large"
            )
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            return Artifact(digest=hashlib.file_digest(stream, "sha256").hexdigest())
    finally:
        os.close(descriptor)


def _hand_written(mission: Mission) -> dict[str, str]:
    """What a completion artifact says that somebody else than the runtime wrote."""
    path = os.path.join(mission.project_path, completion_path(mission))
    if not os.path.lexists(path):
        return {}
    try:
        artifact = load_json(path, limit_bytes=_COMPLETION_BYTES)
    except (AutoresearchError, OSError) as error:
        return {"artifact_report": f"a hand-written completion artifact cannot be read ({error.args[0]})"}
    is_passing, report = read_artifact(artifact, mission)
    return {"artifact_report": report, "artifact_claim": "passed" if is_passing else ""}
