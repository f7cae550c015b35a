"""What people and agents read of a mission under ``.omx``: files derived from the journal, never the truth.

    state/task_spec.json  progress.json  directions_tried.json  findings.jsonl  iteration_log.jsonl
    logs/heartbeat.jsonl  work.jsonl  orchestrator.jsonl
    state/sessions/{session}/autoresearch-state.json        the mode state
    NOTICE (in the state home)                              what the owner must read

Line files grow with the journal; the others are replaced. A file that somebody edited is noticed by its size, inode
and time, its foreign lines are moved to ``inbox/`` and it is written anew: people may steer by editing, and nothing
edited becomes proof. A project folder that cannot be written is no fault of the mission.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core import briefing
from omx_autoresearch.errors import StateUntrusted
from omx_autoresearch.storage.atomic import ensure_folder, replace_file, write_all
from omx_autoresearch.storage.layout import ProjectFolder
from omx_autoresearch.storage.strictjson import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.storage.layout import MissionFolder
    from omx_autoresearch.storage.lines import Entry

FINDINGS = "state/findings.jsonl"
ITERATIONS = "state/iteration_log.jsonl"
WORK = "logs/work.jsonl"
ORCHESTRATOR = "logs/orchestrator.jsonl"
HEARTBEAT = "logs/heartbeat.jsonl"
LINE_FILES = (FINDINGS, ITERATIONS, WORK, ORCHESTRATOR)
_ITERATION_KINDS = ("stop_refused", "stop_released")
_QUIET_KINDS = ("validation_started", "person_prompted")
_WARNING_KINDS = (
    "stop_released",
    "mission_blocked",
    "owner_verb_refused",
    "projection_edited",
    "validation_lost",
)


class Projections:
    """The derived files of one mission."""

    def __init__(self, folder: MissionFolder, mission: Mission) -> None:
        self._folder = folder
        self._mission = mission
        project = ProjectFolder(mission.project_path)
        self._project = project
        self._task_path = project.task_path(mission.task_id)
        self._stamps_path = os.path.join(folder.root_path, "projected.json")

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add the lines of new entries and replace the state files; quiet about a project that cannot be written."""
        entries = tuple(entries)
        try:
            if not os.path.isdir(self._mission.project_path):
                return
            stamps = self._stamps()
            for name in LINE_FILES:
                lines = b"".join(_lines(name, entries))
                if lines and stamps.get(name) == _stamp(os.path.join(self._task_path, name)):
                    self._append(name, lines)
                    stamps[name] = _stamp(os.path.join(self._task_path, name))
            self._replace_states(stamps)
            self._save_stamps(stamps)
        except (OSError, StateUntrusted):
            return

    def needs_rebuild(self) -> bool:
        """True when a projection is missing although the project's folder is there."""
        if not os.path.isdir(self._mission.project_path):
            return False
        names = (*LINE_FILES, "state/progress.json", "state/task_spec.json")
        return any(not os.path.exists(os.path.join(self._task_path, name)) for name in names)

    def edited(self) -> tuple[str, ...]:
        """Names of projections whose bytes are not the ones that we wrote, judged by size, inode and time."""
        found = []
        for name, stamp in self._stamps().items():
            now = _stamp(os.path.join(self._task_path, name))
            if now is not None and now != stamp:
                found.append(name)
        return tuple(sorted(found))

    def rebuild(self, entries: Iterable[Entry]) -> None:
        """Write every projection anew from the whole journal; the same journal gives the same bytes.

        Raises:
            OSError: the project's folder cannot be written.
        """
        if not os.path.isdir(self._mission.project_path):
            return
        for sub in ("state", "logs", "inbox"):
            ensure_folder(os.path.join(self._task_path, sub), mode=0o755)
        streams = {name: open(self._temporary(name), "wb") for name in LINE_FILES}  # noqa: SIM115
        try:
            for entry in entries:
                for name, stream in streams.items():
                    stream.writelines(_lines(name, (entry,)))
        finally:
            for stream in streams.values():
                stream.close()
        for name in LINE_FILES:
            os.replace(self._temporary(name), os.path.join(self._task_path, name))
        stamps = {name: _stamp(os.path.join(self._task_path, name)) for name in LINE_FILES}
        self._replace_states(stamps)
        self._save_stamps(stamps)

    def rebuild_quietly(self, entries: Iterable[Entry]) -> None:
        """As :meth:`rebuild`, but a project that cannot be written is no fault of the mission."""
        try:
            self.rebuild(entries)
        except (OSError, StateUntrusted):
            return

    def foreign_lines(self, name: str, entries: Iterable[Entry]) -> list[str]:
        """The lines of an edited projection that the journal does not say, for the inbox."""
        path = os.path.join(self._task_path, name)
        with open(path, "rb") as stream:
            found = stream.read(1024 * 1024).decode("utf-8", "replace").splitlines()
        if name in LINE_FILES:
            ours = {line.decode("utf-8").rstrip("\n") for line in _lines(name, entries)}
        else:
            ours = set(self._states().get(name, b"").decode("utf-8").splitlines())
        return [line for line in found if line.strip() and line not in ours]

    # --- the files

    def _temporary(self, name: str) -> str:
        return os.path.join(self._task_path, f"{name}.tmp-{os.getpid()}")

    def _append(self, name: str, lines: bytes) -> None:
        descriptor = os.open(os.path.join(self._task_path, name), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            write_all(descriptor, lines)
        finally:
            os.close(descriptor)

    def _replace_states(self, stamps: dict[str, Any]) -> None:
        for name, data in self._states().items():
            path = os.path.join(self._task_path, name)
            if stamps.get(name) is None or stamps[name][3] != _digest(data) or _stamp(path) != stamps[name]:
                replace_file(path, data, mode=0o644, is_durable=False)
                stamps[name] = _stamp(path)
        self._copy_heartbeat()
        if self._mission.binding is not None:
            path = self._project.session_state_path(self._mission.binding.session_id)
            ensure_folder(os.path.dirname(path), mode=0o755)
            replace_file(path, _pretty(mode_state(self._mission)), mode=0o644, is_durable=False)
        replace_file(self._folder.notice_path, notice(self._mission).encode("utf-8"), is_durable=False)

    def _states(self) -> dict[str, bytes]:
        return {
            "state/task_spec.json": _pretty(task_spec(self._mission)),
            "state/progress.json": _pretty(progress(self._mission)),
            "state/directions_tried.json": _pretty([]),
        }

    def _copy_heartbeat(self) -> None:
        """Copy what the heartbeat has gained; it is no part of the journal and is never edited back."""
        target = os.path.join(self._task_path, HEARTBEAT)
        try:
            with open(self._folder.heartbeat_path, "rb") as source:
                size = os.path.getsize(target) if os.path.exists(target) else 0
                source.seek(size)
                gained = source.read(4 * 1024 * 1024)
        except FileNotFoundError:
            return
        if gained:
            descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                write_all(descriptor, gained)
            finally:
                os.close(descriptor)

    def _stamps(self) -> dict[str, Any]:
        try:
            with open(self._stamps_path, "rb") as stream:
                loaded = json.loads(stream.read(256 * 1024))
        except (OSError, ValueError):
            return {}
        return loaded if isinstance(loaded, dict) else {}

    def _save_stamps(self, stamps: dict[str, Any]) -> None:
        replace_file(self._stamps_path, encode(stamps) + b"\n", is_durable=False)


def task_spec(mission: Mission) -> dict[str, Any]:
    """``task_spec.json``: what was asked, in the typed mission's own fields."""
    return {
        "task_id": mission.task_id,
        "goal": mission.goal,
        "scope": list(mission.scope),
        "non_goals": list(mission.non_goals),
        "task_type": mission.task_type,
        "success_criteria": [],
    }


def progress(mission: Mission) -> dict[str, Any]:
    """``progress.json``: where it stands."""
    return {
        "status": mission.status,
        "phase": mission.phase,
        "iteration": mission.iteration,
        "current_direction": mission.current_direction,
        "stale_count": mission.usage.stale,
        "pivot_count": 0,
        "total_findings": mission.claim_count,
        "blocked_reason": mission.blocker.what if mission.blocker else "",
        "updated_at": mission.updated_at,
    }


def mode_state(mission: Mission) -> dict[str, Any]:
    """``autoresearch-state.json``: the mode state of the bound session; read by tools, never believed by us."""
    contract = mission.contract
    state: dict[str, Any] = {
        "active": mission.phase == "running",
        "task_id": mission.task_id,
        "phase": mission.phase,
        "session_id": mission.binding.session_id if mission.binding else "",
        "iteration": mission.iteration,
        "completion_artifact_path": briefing.completion_path(mission),
    }
    if contract is not None:
        state["validation_mode"] = contract.validation_mode
        if contract.validation_mode == "mission-validator-script":
            state["mission_validator_command"] = contract.validator_command
        else:
            state["validator_prompt"] = contract.validator_prompt
        if contract.output_artifact_path:
            state["output_artifact_path"] = contract.output_artifact_path
    return state


def notice(mission: Mission) -> str:
    """``NOTICE``: what the owner must read, in one screen."""
    lines = [f"mission {mission.task_id}: {mission.phase}", f"goal: {briefing.one_line(mission.goal, 300)}"]
    if mission.blocker is not None:
        lines += [
            f"BLOCKED ({mission.blocker.reason_code}): {briefing.one_line(mission.blocker.what, 600)}",
            f"needed: {briefing.one_line(mission.blocker.needs, 600)}",
            f"next: {mission.blocker.command}",
        ]
    elif mission.phase == "running" and mission.binding is not None:
        lines.append(
            f"holds session {mission.binding.session_id} ({mission.binding.client}); to leave: "
            f"omx-autoresearch pause {mission.task_id}  or  omx-autoresearch cancel {mission.task_id}"
        )
    if mission.refused_verbs:
        lines.append("owner verbs that an agent tried: " + "; ".join(mission.refused_verbs[-5:]))
    return "\n".join(lines) + "\n"


def _lines(name: str, entries: Iterable[Entry]) -> Iterator[bytes]:
    """The lines that entries add to one line file."""
    for entry in entries:
        value = _LINE_OF[name](entry)
        if value is not None:
            yield encode(value) + b"\n"


def _finding(entry: Entry) -> dict[str, Any] | None:
    if entry.kind != "claim_recorded":
        return None
    return {
        "id": entry.data["claim_id"],
        "kind": "manual",
        "summary": entry.data["text"],
        "source": entry.data["origin"],
        "paths": [],
        "accepted": False,
        "created_at": entry.ts,
    }


def _iteration(entry: Entry) -> dict[str, Any] | None:
    if entry.kind not in _ITERATION_KINDS or not entry.data["stop"]["is_iteration"]:
        return None
    stop = entry.data["stop"]
    return {
        "at": entry.ts,
        "session_id": stop["session_id"],
        "answer": "refuse" if entry.kind == "stop_refused" else "release",
        "reason_code": stop["reason_code"],
        "progress": entry.data["progress"],
        "stale_count": stop["usage"]["stale"],
        "tree_digest": stop["tree_digest"],
    }


def _work(entry: Entry) -> dict[str, Any] | None:
    if entry.kind != "claim_recorded":
        return None
    return _log_line(entry, "agent", "info", "note", entry.data["text"])


def _orchestrated(entry: Entry) -> dict[str, Any] | None:
    if entry.kind == "claim_recorded" or entry.kind in _QUIET_KINDS:
        return None
    level = (
        "warn" if entry.kind in _WARNING_KINDS else "decision" if entry.kind.startswith("stop_") else "info"
    )
    stop = entry.data.get("stop")
    detail = stop["reason_code"] if isinstance(stop, dict) else entry.data.get("reason") or ""
    blocker = entry.data.get("blocker")
    if isinstance(blocker, dict):
        detail = f"{blocker['reason_code']}: {blocker['what']}"
    attestation = entry.data.get("attestation")
    if isinstance(attestation, dict):
        detail = f"{attestation['verdict']}: {attestation['summary']}"
    return _log_line(entry, "runtime", level, entry.kind, detail)


def _log_line(entry: Entry, source: str, level: str, event: str, detail: str) -> dict[str, Any]:
    return {"ts": entry.ts, "source": source, "level": level, "event": event, "detail": detail}


_LINE_OF = {FINDINGS: _finding, ITERATIONS: _iteration, WORK: _work, ORCHESTRATOR: _orchestrated}


def _pretty(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _stamp(path: str) -> list[Any] | None:
    """[inode, size, mtime, digest of a small state file] of a projection; None when it is missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    digest = ""
    if path.endswith(".json"):
        with open(path, "rb") as stream:
            digest = _digest(stream.read())
    return [status.st_ino, status.st_size, status.st_mtime_ns, digest]
