"""The hold on a session as it really is: proven, ended, lost, let go, or not proven yet.

The hold is **proven** when a stop of the bound session was answered. That proof ends where the session ends, its
client dies or overrides a refusal, a stop gets no answer, or the client's settings turn the hooks off.
:func:`hold_of` says what can be seen now; :func:`record_loss` writes a lost hold into the journal, so that ``status``,
NOTICE and the status line tell it once more than the moment it is seen.
"""

from __future__ import annotations

import contextlib
import os

from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import duration_text
from omx_autoresearch.foundation.times import seconds_between
from omx_autoresearch.journal.safe_files import read_bounded
from omx_autoresearch.missions.records.sessions import HoldLost
from omx_autoresearch.missions.registry import Registry, is_expired, last_beats
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.system.processes import ProcessIdentity, is_alive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.registry import ActiveSession, Beat
    from omx_autoresearch.missions.rules.mission import LastStop, Mission

ANSWER_SECONDS = 150.0
"""No known client lets a stop hook run for longer (120 s); a stop that is older and has no answer gets none."""
OVERRIDE_SECONDS = 60.0
"""An agent that goes on after a refusal leaves an event within this time; the wait proves nothing, so we say `may`."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The hold on a mission's session.

    Attributes:
        text: one line. It begins with ``proven``, ``unproven``, ``unbound``, ``stale``, ``let go``, ``session ended``
            or ``lost``.
        next_command: the command that brings the hold back; empty where nothing has to be done.
    """

    text: str
    next_command: str = ""

    @property
    def is_lost(self) -> bool:
        """The mission runs, and the session that it is bound to is not held any more."""
        return self.text.startswith(("lost", "session ended"))


def hold_of(runtime: Runtime, mission: Mission) -> Hold:
    """The hold as it can be seen now; nothing is written."""
    task_id, binding = mission.task_id, mission.binding
    if binding is None:
        return Hold("unbound")
    if mission.phase != "running":
        return Hold(f"let go (the mission is {mission.phase})")
    entry = _registered(runtime, mission)
    if entry is None:
        cure = f"omx-autoresearch repair {task_id}"
        return Hold(f"lost (the registry did not know the session, so every stop was let go: {cure})", cure)
    beats = last_beats(runtime.home.mission(task_id).heartbeat_path)
    ours = tuple(one for one in beats if one.session_id == binding.session_id and one.at >= binding.at)
    heard_at = ours[-1].at if ours else binding.at
    if is_expired(runtime, mission, runtime.now()):
        bind_again = f"$autoresearch {task_id}"
        return Hold(f"stale (last event {heard_at}; type {bind_again} to go on)", bind_again)
    return _lost(runtime, mission, entry, ours) or _by_newest_stop(mission, ours)


def _lost(runtime: Runtime, mission: Mission, entry: ActiveSession, beats: tuple[Beat, ...]) -> Hold | None:
    """The hold where it is lost; None where nothing shows that."""
    bind_again = f"$autoresearch {mission.task_id}"
    doctor = (
        f"omx-autoresearch doctor {entry.client}"
        if entry.client in CLIENT_NAMES
        else "omx-autoresearch doctor"
    )
    if faults := _switched_off(runtime, mission, entry.client):
        return Hold(f"lost ({'; '.join(faults)})", doctor)
    last_at = beats[-1].at if beats else ""
    if beats and beats[-1].status == "session_end":
        return Hold(ended_text(mission, beats), bind_again)
    is_agent = any(
        map(runtime.environ.get, runtime.shell_marks)
    )  # it may not see the process of its own client
    if (
        entry.client_pid
        and not is_agent
        and not is_alive(ProcessIdentity(entry.client_pid, entry.client_started))
    ):
        what = (
            f"client gone: process {entry.client_pid} ended without a word; last event {last_at or entry.at}"
        )
        return Hold(f"lost ({what})", bind_again)
    if text := _left_unanswered(mission, entry, beats, runtime.now()):
        return Hold(text, doctor)
    recorded = mission.lost_hold
    is_newest = recorded is not None and max(last_at, entry.at) <= recorded.at
    return Hold(recorded.text, bind_again) if recorded and is_newest else None


def _left_unanswered(mission: Mission, entry: ActiveSession, beats: tuple[Beat, ...], now: str) -> str:
    """That the newest stop got no answer, or one that the client may have overridden; empty otherwise."""
    stop, last_at = mission.last_stop, beats[-1].at if beats else ""
    answered_at = max(stop.at if stop else "", mission.running_since)
    if beats and beats[-1].status == "turn_done" and answered_at < last_at:
        is_late = seconds_between(last_at, now) > ANSWER_SECONDS
        return f"lost (the stop at {last_at} got no answer from the hook)" if is_late else ""
    if stop is None or not stop.override_expected or max(last_at, entry.at) > stop.at:
        return ""
    what = "the client's cap of refusals in a row is reached, and it may have overridden the newest one"
    return f"lost ({what}, at {stop.at})" if seconds_between(stop.at, now) > OVERRIDE_SECONDS else ""


def _by_newest_stop(mission: Mission, beats: tuple[Beat, ...]) -> Hold:
    """The hold by the newest answered stop of the bound session, since it was bound."""
    stop, binding = mission.last_stop, mission.binding
    if stop is None or binding is None or stop.session_id != binding.session_id or stop.at < binding.at:
        seen = f" (no stop of this session was answered yet; last event {beats[-1].at})" if beats else ""
        return Hold(f"unproven{seen}")
    if stop.answer == "allow" and (not beats or beats[-1].at <= stop.at):
        return Hold(f"let go ({_why_allowed(stop)}; stop answered {stop.at})")
    return Hold(f"proven (stop answered {stop.at})")


def _why_allowed(stop: LastStop) -> str:
    """Why the newest stop was let through, for people."""
    if stop.reason_code == "background-work":
        return f"background work{f' still runs: {stop.text}' if stop.text else ''}"
    if stop.reason_code.startswith("host-"):
        return f"the client ended the turn: {stop.reason_code.removeprefix('host-').replace('-', ' ')}"
    return stop.reason_code.replace("-", " ")


def ended_text(mission: Mission, beats: tuple[Beat, ...]) -> str:
    """That the session ended in mid-mission, and what the client left out before.

    Args:
        mission: whose session ended.
        beats: its session's newest heartbeats; the end of the session is the last of them.
    """
    stop = mission.last_stop
    since = max(stop.at if stop else "", mission.running_since)
    behind = {one.status for one in beats[:-1] if one.at > since}
    how = ""
    if "turn_done" in behind:
        how = "; its last stop got no answer from the hook"
    elif behind & {"tool", "starting_turn"}:
        how = "; the client did not ask the stop hook before it ended"
    return f"session ended (in mid-mission, at {beats[-1].at if beats else mission.updated_at}{how})"


def _registered(runtime: Runtime, mission: Mission) -> ActiveSession | None:
    """The registry's entry, by which the hook finds the mission; None where there is none."""
    session_id = mission.binding.session_id if mission.binding else ""
    try:
        entry = Registry(runtime.home).bound(session_id)
    except AutoresearchError:
        return None
    return entry if entry is not None and entry.task_id == mission.task_id else None


def _switched_off(runtime: Runtime, mission: Mission, client: str) -> list[str]:
    """The client's settings that keep our hooks from running, or end their hold early."""
    if client not in CLIENT_NAMES:
        return []
    from omx_autoresearch.agents.parts.switches import lowered_caps, turned_off
    from omx_autoresearch.agents.registry import installation_of

    installation = installation_of(client, "user", runtime.environ, mission.workspace_path)
    return [*turned_off(installation), *lowered_caps(installation)]


# --- What is recorded of a lost hold.


def record_loss(runtime: Runtime, task_id: str, text: str) -> None:
    """Record once that a running mission lost its hold; where nothing can be written, the next look tells it."""
    now = runtime.now()
    with (
        contextlib.suppress(AutoresearchError),
        MissionStore(runtime.home).transaction(task_id, now) as transaction,
    ):
        mission = transaction.mission
        if mission.phase == "running" and mission.binding is not None and mission.lost_hold is None:
            transaction.record(HoldLost(mission.binding.session_id, text))


def record_end(runtime: Runtime, mission: Mission) -> None:
    """The client ended the session of a running mission; its heartbeat was left before."""
    session_id = mission.binding.session_id if mission.binding else ""
    beats = last_beats(runtime.home.mission(mission.task_id).heartbeat_path)
    ours = tuple(one for one in beats if one.session_id == session_id)
    record_loss(runtime, mission.task_id, ended_text(mission, ours))


def tools_closed(runtime: Runtime, entries: list[ActiveSession], called_at: str) -> None:
    """The client above the server of tools closed it: a held session whose hooks were silent since is lost.

    Args:
        runtime: whose missions.
        entries: the sessions bound in that client's process.
        called_at: when the newest tool call ended, ISO 8601 UTC; empty for none.
    """
    for entry in entries if called_at else ():
        with contextlib.suppress(AutoresearchError):
            mission = MissionStore(runtime.home).load(entry.task_id)
            if mission.phase != "running" or _registered(runtime, mission) != entry:
                continue
            beats = last_beats(runtime.home.mission(entry.task_id).heartbeat_path)
            if max((one.at for one in beats if one.session_id == entry.session_id), default="") < called_at:
                what = f"the client closed its tools, and its hooks sent nothing after the tool call at {called_at}"
                record_loss(runtime, entry.task_id, f"lost ({what})")


# --- doctor's proof, in the words of `start` and `status`.

_PROOF = ".proven"


def remember_proof(runtime: Runtime, record_path: str, *, is_held: bool) -> None:
    """Keep when ``doctor`` proved an installation; a fault that it found ends the proof."""
    from omx_autoresearch.journal.safe_files import replace_file

    path = record_path + _PROOF
    with contextlib.suppress(AutoresearchError, OSError):
        if is_held and os.path.exists(record_path):
            replace_file(path, runtime.now().encode(), is_durable=False)
        elif os.path.lexists(path):
            os.unlink(path)


def waiting_text(runtime: Runtime) -> str:
    """How the hold stands before a session is bound: by the newest proof of ``doctor``."""
    folder_path = os.path.join(runtime.home.root_path, "installed")
    proofs = []
    with contextlib.suppress(OSError):
        names = set(os.listdir(folder_path))
        for name in names:
            if name.endswith(_PROOF) and name.removesuffix(_PROOF) in names:
                with contextlib.suppress(OSError, AutoresearchError):
                    proofs.append(
                        read_bounded(os.path.join(folder_path, name), 64).decode("ascii", "replace")
                    )
    with contextlib.suppress(ValueError):
        if proofs:
            age = seconds_between(max(proofs), runtime.now())
            return f"waits for a session (proven {duration_text(max(0.0, age))} ago)"
    return "waits for a session (UNPROVEN: prove the hook with omx-autoresearch doctor)"
