"""The owner's approvals to run commands outside a sandbox: one small file a key, outside every workspace.

The key binds project, task, contract and pinned files; a change of any of these needs a new approval. A file counts by
its content, not by its name alone.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import StateUntrusted
from omx_autoresearch.foundation.records import ShapeError, dataclass, from_plain, sha256, to_plain
from omx_autoresearch.journal.safe_files import ensure_folder, load_json, replace_file, storage_failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.journal.layout import StateHome
    from omx_autoresearch.missions.rules.mission import Mission

LIMIT_BYTES = 4096
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Approval:
    """The owner's word for one key.

    ``is_unsandboxed``: also for a client that itself runs in a sandbox.
    """

    key: str
    is_unsandboxed: bool
    ts: str


def approval_key(project_path: str, task_id: str, contract_digest: str, pin_digest: str) -> str:
    """The sha256 under which exactly these four are approved."""
    parts = (os.path.realpath(project_path), task_id, contract_digest, pin_digest)
    return sha256(b"\0".join(os.fsencode(part) for part in parts)).hexdigest()


def mission_key(mission: Mission) -> str:
    """The key of a mission's contract and pins as they are."""
    pin_digest = mission.contract.pin_digest if mission.contract else ""
    return approval_key(mission.project_path, mission.task_id, mission.contract_digest, pin_digest)


def approve(home: StateHome, key: str, *, is_unsandboxed: bool, ts: str) -> Approval:
    """Record that the owner allows the commands of ``key``; an older approval of it is replaced whole.

    The caller has made sure that it is the owner who speaks.

    Raises:
        StorageFailed: the system refused.
    """
    approval = Approval(key, is_unsandboxed, ts)
    path = _path(home, key)
    ensure_folder(home.approved_path)
    replace_file(path, json_codec.encode(to_plain(approval)), mode=0o600)
    return approval


def is_approved(home: StateHome, key: str) -> Approval | None:
    """Return the approval of ``key``; None without a file that is one.

    A file that is empty, cut, of another key, of another user, or writable by others approves nothing; the cure is the
    same as for a missing one: ``omx-autoresearch approve``.

    Raises:
        StorageFailed: the system refused the read.
    """
    path = _path(home, key)
    try:
        status = os.lstat(path)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        found: Any = from_plain(Approval, load_json(path, limit_bytes=LIMIT_BYTES))
    except (FileNotFoundError, NotADirectoryError, ShapeError):
        return None
    except StateUntrusted as error:
        if type(error) is not StateUntrusted:
            raise  # the system refused: that is no answer
        return None
    except OSError as error:
        raise storage_failed("read", path, error) from error
    if found.key != key or not isinstance(found.is_unsandboxed, bool) or not isinstance(found.ts, str):
        return None
    return Approval(found.key, found.is_unsandboxed, found.ts)


def _path(home: StateHome, key: str) -> str:
    if len(key) != 64 or not _HEX.issuperset(key):
        raise ValueError(f"not an approval key: {key[:80]!r}")
    return os.path.join(home.approved_path, key)
