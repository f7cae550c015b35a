"""What mirrors a mission and is never edited back: the notice, the mode state of its session, the copied heartbeat.

Written anew where it is not right; what somebody else writes there is nobody's claim and is lost.
"""

from __future__ import annotations

import os

from omx_autoresearch.errors import AutoresearchError, StateUntrusted, WorkspaceFault
from omx_autoresearch.storage import views
from omx_autoresearch.storage.atomic import read_bounded, replace_file
from omx_autoresearch.storage.layout import ProjectFolder, session_file_name
from omx_autoresearch.storage.omx_folder import OmxFolder
from omx_autoresearch.storage.strictjson import decode_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.storage.layout import MissionFolder
    from omx_autoresearch.storage.lines import Entry
    from omx_autoresearch.storage.omx_folder import Stamp
    from omx_autoresearch.storage.projected import Projected

_HEARTBEAT = "heartbeat.jsonl"
_COPY_BYTES = 4 * 1024 * 1024
_SMALL_BYTES = 1024 * 1024
_MODE_NAME = "autoresearch-state.json"


class Mirrors:
    """The mirrors of one mission. Whoever writes them holds the mission's lock.

    Args:
        folder: of the mission, in the state home.
        mission: its newest state.
    """

    def __init__(self, folder: MissionFolder, mission: Mission) -> None:
        self._folder = folder
        self._mission = mission

    def write_notice(self) -> None:
        """What the owner must read, in the state home.

        Raises:
            StorageFailed: the system refused.
        """
        data, path = views.notice(self._mission).encode("utf-8"), self._folder.notice_path
        try:
            if read_bounded(path, _SMALL_BYTES) == data:
                return
        except (FileNotFoundError, StateUntrusted):
            pass  # there is none that can be read
        replace_file(path, data, is_durable=False)

    def write_mode(self, kept: Projected) -> OSError | AutoresearchError | None:
        """The mode state of the session that is held; one that is held no longer reads ``"active": false``.

        Returns why it could not be written; the caller saves ``kept``, and has more to do before anybody is told.
        """
        binding = self._mission.binding
        session_id = binding.session_id if binding is not None else ""
        try:
            if kept.session_id and kept.session_id != session_id:
                self._close_mode(kept.session_id)
            if session_id:
                self._put_mode(kept, session_id)
        except (OSError, AutoresearchError) as error:
            return error
        kept.session_id = session_id
        return None

    def _put_mode(self, kept: Projected, session_id: str) -> None:
        data = views.pretty(views.mode_state(self._mission, session_id))
        if kept.says(_MODE_NAME, data) and self._mode_stamp(session_id) == kept.stamp(_MODE_NAME):
            return
        self._write_mode_file(session_id, data)
        stamp = self._mode_stamp(session_id)
        if stamp is not None:
            kept.keep(_MODE_NAME, stamp, data)

    def _mode_stamp(self, session_id: str) -> Stamp | None:
        path = ProjectFolder(self._mission.project_path).session_state_path(session_id)
        try:
            status = os.lstat(path)
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def _write_mode_file(self, session_id: str, data: bytes) -> None:
        with self._mode_folder(session_id, make=True) as folder:
            try:
                if folder.read(_MODE_NAME, _SMALL_BYTES) == data:
                    return
            except (FileNotFoundError, WorkspaceFault):
                pass  # there is none of ours
            folder.replace(_MODE_NAME, data)

    def _close_mode(self, session_id: str) -> None:
        """Say that a session is held no longer, unless another mission holds it now."""
        try:
            with self._mode_folder(session_id) as folder:
                state = decode_document(folder.read(_MODE_NAME, _SMALL_BYTES))
        except (OSError, WorkspaceFault):
            return
        except ValueError:
            state = {"task_id": self._mission.task_id}  # broken: ours to write anew
        if isinstance(state, dict) and state.get("task_id") == self._mission.task_id:
            self._write_mode_file(session_id, views.pretty(views.mode_state(self._mission, session_id)))

    def close_modes(self, entries: Iterable[Entry]) -> None:
        """Of every session that was ever held, as far as the journal tells."""
        binding = self._mission.binding
        held = {entry.data.get("session_id") for entry in entries if entry.kind == "session_bound"}
        for session_id in held - {binding.session_id if binding is not None else ""}:
            if isinstance(session_id, str) and session_id:
                self._close_mode(session_id)

    def _mode_folder(self, session_id: str, *, make: bool = False) -> OmxFolder:
        path = os.path.join(".omx", "state", "sessions", session_file_name(session_id))
        return OmxFolder(self._mission.project_path, path, make=make)

    def copy_heartbeat(self, logs: OmxFolder, *, is_whole: bool = False) -> None:
        """Copy what the heartbeat has gained; it is no part of the journal and is never edited back."""
        stamp = logs.stamp(_HEARTBEAT)
        try:
            if (
                not is_whole
                and stamp is not None
                and stamp[1] == os.stat(self._folder.heartbeat_path).st_size
            ):
                return
            source = open(self._folder.heartbeat_path, "rb")  # noqa: SIM115 - closed by the with below
        except FileNotFoundError:
            return
        with source:
            size = os.fstat(source.fileno()).st_size
            if is_whole or stamp is None or not stamp[0] or stamp[1] > size:
                logs.replace(_HEARTBEAT, b"")
                stamp = logs.stamp(_HEARTBEAT)
            source.seek(stamp[1] if stamp else 0)
            while gained := source.read(_COPY_BYTES):
                logs.append(_HEARTBEAT, gained)
                if not is_whole:
                    break
