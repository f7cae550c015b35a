"""The content of each projection: pure functions of a mission and its records.

state/task_spec.json  progress.json  directions_tried.json     the state files, of the mission as it is
state/findings.jsonl  iteration_log.jsonl                      one line for each record that concerns them
logs/work.jsonl  orchestrator.jsonl
autoresearch-state.json                                        the mode state of a session
completion.json                                                the result of a completed mission, with its attestation
NOTICE                                                         news for the owner
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.json_codec import encode, without_surrogates
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.foundation.text import one_line
from omx_autoresearch.foundation.times import to_the_second
from omx_autoresearch.journal.layout import session_file_name
from omx_autoresearch.missions.rules import briefing
from omx_autoresearch.missions.rules.evidence import criteria_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.journal.reader import Entry
    from omx_autoresearch.missions.rules.mission import Mission

FINDINGS = "state/findings.jsonl"
ITERATIONS = "state/iteration_log.jsonl"
WORK = "logs/work.jsonl"
ORCHESTRATOR = "logs/orchestrator.jsonl"
LINE_FILES = (FINDINGS, ITERATIONS, WORK, ORCHESTRATOR)
"""Files that grow with the journal."""
HEARTBEAT = "logs/heartbeat.jsonl"
"""A copy of the heartbeat in the state home."""
TASK_SPEC = "state/task_spec.json"
PROGRESS = "state/progress.json"
DIRECTIONS = "state/directions_tried.json"
STATE_FILES = (TASK_SPEC, PROGRESS, DIRECTIONS)
"""Files that are replaced."""
_DIRECTION_KEYS = ("fingerprint", "summary", "first_seen_iteration", "last_seen_iteration", "count")
_FINDING_KEYS = (
    *("id", "kind", "summary", "source", "command", "paths", "accepted", "created_at", "criterion_id"),
    *("evidence", "claim_reason", "iteration", "direction"),
)
_ITERATION_KINDS = {"stop_refused": "refuse", "stop_released": "release", "stop_allowed": "allow"}
_QUIET_KINDS = ("validation_started", "person_prompted")
_WORK_KINDS = ("claim_recorded", "finding_recorded", "direction_declared")
"""The agent's own words and acts, for ``work.jsonl``."""
_WARNING_KINDS = (
    "heartbeat_failed",
    "pivot_required",
    "stop_released",
    "mission_blocked",
    "owner_verb_refused",
    "unproven_prompt",
    "projection_edited",
    "validation_lost",
    "readiness_blocked",
)


def states(mission: Mission) -> dict[str, bytes]:
    """The state files by name."""
    return {
        TASK_SPEC: pretty(task_spec(mission)),
        PROGRESS: pretty(progress(mission)),
        DIRECTIONS: directions_tried(mission),
    }


def line_of(name: str, entry: Entry) -> bytes:
    """The line that one record adds to a line file; empty when it adds none."""
    value = _LINE_OF[name](entry)
    return b"" if value is None else encode(value) + b"\n"


def task_spec(mission: Mission) -> dict[str, Any]:
    """``task_spec.json``: what was asked, in the typed mission's own fields."""
    return {
        "task_id": mission.task_id,
        "goal": mission.goal,
        "scope": list(mission.scope),
        "non_goals": list(mission.non_goals),
        "milestones": list(mission.milestones),
        "allowed_operations": allowed_operations(mission),
        "task_type": mission.task_type,
        "success_criteria": to_plain(criteria_of(mission)),
    }


def allowed_operations(mission: Mission) -> dict[str, bool]:
    """The operations that the contract does not forbid; a draft forbids nothing."""
    forbidden = mission.contract.forbidden if mission.contract is not None else ()
    return {name: name not in forbidden for name in ("write", "network", "publish")}


def progress(mission: Mission) -> dict[str, Any]:
    """``progress.json``: where it stands."""
    return {
        "status": mission.status,
        "phase": mission.phase,
        "iteration": mission.iteration,
        "current_direction": mission.current_direction,
        "stale_count": mission.usage.stale,
        "pivot_count": mission.pivot_count,
        "pivot_required": mission.is_pivot_required,
        "total_findings": mission.finding_count + mission.claim_count,
        "blocked_reason": mission.blocker.what if mission.blocker else "",
        "updated_at": mission.updated_at,
    }


def directions_tried(mission: Mission) -> bytes:
    """``directions_tried.json``: every direction, an entry a line."""
    return list_of(
        [direction_line({key: getattr(item, key) for key in _DIRECTION_KEYS}) for item in mission.directions]
    )


def direction_line(item: Any) -> bytes:
    """An entry of ``directions_tried.json``, in the runtime's order of keys, which an editor may have changed."""
    if isinstance(item, dict) and item.keys() == set(_DIRECTION_KEYS):
        item = {key: item[key] for key in _DIRECTION_KEYS}
    return encode(item)


def list_of(lines: list[bytes]) -> bytes:
    """A JSON list with an entry a line."""
    return b"[\n" + b",\n".join(lines) + b"\n]\n" if lines else b"[]\n"


def mode_state(mission: Mission, session_id: str) -> dict[str, Any]:
    """``autoresearch-state.json``: the mode state of a session; read by tools, never believed by us.

    A session that the mission no longer holds reads ``"active": false``.
    """
    is_bound = mission.binding is not None and mission.binding.session_id == session_id
    contract = mission.contract
    state: dict[str, Any] = {
        "active": mission.phase == "running" and is_bound,
        "task_id": mission.task_id,
        "phase": mission.phase,
        "session_id": session_id,
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


def mode_path(session_id: str) -> str:
    """Where the mode state of a session stands, relative to the project."""
    return os.path.join(".omx", "state", "sessions", session_file_name(session_id), "autoresearch-state.json")


def completion(mission: Mission) -> bytes:
    """``completion.json`` of a completed mission: the agreed keys, and the attestation that they rest on."""
    run, contract = mission.attestation, mission.contract
    attestation = run if run is not None and run.run_id == mission.completed_run_id else None
    document: dict[str, Any] = {
        "task_id": mission.task_id,
        "status": "passed",
        "passed": True,
        "summary": attestation.summary if attestation else "accepted without attestation by the contract",
        "completed_at": mission.completed_at,
    }
    if contract is not None and contract.validation_mode == "prompt-architect-artifact":
        document["validator_prompt"] = contract.validator_prompt
        document["architect_review"] = {"verdict": "approved", "rejections": mission.rejection_count}
        document["output_artifact_path"] = contract.output_artifact_path
    if mission.difference is not None:
        document["changed_since_launch"] = to_plain(mission.difference)
    if attestation:
        document["sandboxed"] = attestation.isolation != "none"
        document["attestation"] = to_plain(attestation)
    return pretty(document)


def notice(mission: Mission) -> str:
    """``NOTICE``: the state and the blocker of a mission for its owner, on one screen."""
    lines = [f"mission {mission.task_id}: {mission.phase}", f"goal: {one_line(mission.goal, 300)}"]
    if mission.blocker is not None:
        lines += [
            f"BLOCKED ({mission.blocker.reason_code}): {one_line(mission.blocker.what, 600)}",
            f"needed: {one_line(mission.blocker.needs, 600)}",
            f"next: {mission.blocker.command}",
        ]
    elif mission.phase == "running" and mission.lost_hold is not None:
        lines += [
            f"HOLD LOST: {one_line(mission.lost_hold.text, 600)}",
            f"next: type in the agent: $autoresearch {mission.task_id}; if it stays so: omx-autoresearch doctor",
        ]
    elif mission.last_stop is not None and mission.phase == "running" and mission.last_stop.answer == "allow":
        why = f"{mission.last_stop.reason_code} {mission.last_stop.text}".strip()
        lines.append(
            f"let its session go at {mission.last_stop.at}: {one_line(why, 300)}; the next stop is held again"
        )
    elif mission.phase == "running" and mission.binding is not None:
        client = mission.binding.client or "client unknown"
        lines.append(
            f"holds session {one_line(mission.binding.session_id, 120)} ({client}); to leave: "
            f"omx-autoresearch pause {mission.task_id}  or  omx-autoresearch cancel {mission.task_id}"
        )
    if mission.last_stop is not None and mission.last_stop.goal:
        lines.append(f"at the newest stop: {one_line(mission.last_stop.goal, 400)}")
    if mission.refused_verbs:
        lines.append("owner verbs that an agent tried: " + "; ".join(mission.refused_verbs[-5:]))
    lines += [f"{item.at} {item.text}" for item in mission.notices if item.kind == "unproven_prompt"][-5:]
    return to_the_second("\n".join(lines) + "\n")


def finding_of(entry: Entry) -> dict[str, Any] | None:
    """A record as a line of ``findings.jsonl``; None when it is neither finding nor claim."""
    if entry.kind == "finding_recorded":
        return finding_line(entry.data["finding"], entry.ts)
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


def finding_line(finding: dict[str, Any], at: str) -> dict[str, Any]:
    """A recorded finding as ``findings.jsonl`` has it: the fields of the protocol, then our own."""
    line = {"evidence": None, **finding, "created_at": at}
    line["accepted"] = line["evidence"] is not None
    return {key: line[key] for key in _FINDING_KEYS}


def iteration_of(entry: Entry) -> dict[str, Any] | None:
    """A record as a line of ``iteration_log.jsonl``; None when it ended no iteration."""
    if entry.kind not in _ITERATION_KINDS or not entry.data["stop"]["is_iteration"]:
        return None
    stop = entry.data["stop"]
    return {
        "at": entry.ts,
        "session_id": stop["session_id"],
        "answer": _ITERATION_KINDS[entry.kind],
        "reason_code": stop["reason_code"],
        "progress": entry.data.get("progress", ""),
        "stale_count": stop["usage"]["stale"],
        "tree_digest": stop["tree_digest"],
        "iteration": stop.get("iteration", 0),
        "began_at": stop.get("began_at", ""),
        "tools_used": stop.get("tool_count", 0),
        "direction": stop.get("direction", ""),
        "evidence_ids": list(stop.get("evidence_ids", ())),
        "verdict": stop.get("verdict", ""),
        "run_id": stop.get("run_id", ""),
    }


def _work(entry: Entry) -> dict[str, Any] | None:
    if entry.kind == "finding_recorded":
        finding = entry.data["finding"]
        word = "claim" if finding["evidence"] is None else "evidence"
        source = "runtime" if finding["source"] in ("runtime", "owner") else "agent"
        return _log_line(entry, source, "info", word, f"{finding['id']}: {one_line(finding['summary'], 300)}")
    if entry.kind == "direction_declared":
        direction = entry.data["direction"]
        word = "pivot" if direction["is_pivot"] else "direction"
        source = "owner" if direction["by"] == "owner" else "agent"
        return _log_line(entry, source, "decision", word, one_line(direction["summary"], 300))
    if entry.kind != "claim_recorded":
        return None
    return _log_line(entry, "agent", "info", "note", entry.data["text"])


def _orchestrated(entry: Entry) -> dict[str, Any] | None:
    if entry.kind in _WORK_KINDS or entry.kind in _QUIET_KINDS:
        return None
    level = (
        "warn" if entry.kind in _WARNING_KINDS else "decision" if entry.kind.startswith("stop_") else "info"
    )
    return _log_line(entry, "runtime", level, entry.kind, _detail(entry))


def _detail(entry: Entry) -> str:
    """The detail of a record beside its kind, one line."""
    data = entry.data
    if entry.kind == "pivot_required":
        return f"stale {data['stale']}, offered axis {data['axis']}"
    if entry.kind == "heartbeat_failed":
        return f"{data['status']}: {data['cause']}"
    if entry.kind == "direction_injected":
        return one_line(data["direction"]["summary"], 300)
    blocker, attestation, stop = data.get("blocker"), data.get("attestation"), data.get("stop")
    if isinstance(attestation, dict):
        return f"{attestation['verdict']}: {attestation['summary']}"
    if isinstance(blocker, dict):
        return f"{blocker['reason_code']}: {blocker['what']}"
    return str(stop["reason_code"] if isinstance(stop, dict) else data.get("reason") or "")


def _log_line(entry: Entry, source: str, level: str, event: str, detail: str) -> dict[str, Any]:
    return {"ts": entry.ts, "source": source, "level": level, "event": event, "detail": detail}


_LINE_OF = {FINDINGS: finding_of, ITERATIONS: iteration_of, WORK: _work, ORCHESTRATOR: _orchestrated}


def pretty(value: Any) -> bytes:
    """JSON that people read and edit, in strict UTF-8."""
    text = json_codec.pretty(value) + "\n"
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return without_surrogates(text).encode("utf-8")
