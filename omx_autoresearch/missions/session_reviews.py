"""Verdicts of other sessions: believed by the tool event of the reviewing client, and by nothing that a shell says.

The command of a session names its verdict and the digest, and waits. The client's hook sees that very command in its
own tool event and records the verdict. So a variable in the environment of the session under review gives none: its
shell stands below its own client, and an event that no other client sent is refused. (specs/threat-model.md says what a
process can do that leaves the client's tree.)
"""

from __future__ import annotations

from datetime import timedelta

from omx_autoresearch.agents.events import SILENCE, HookEvent, Reply
from omx_autoresearch.foundation.errors import AutoresearchError, OwnerOnly, StateUntrusted, StepIllegal
from omx_autoresearch.missions import sessions
from omx_autoresearch.missions.lifecycle_commands import refuse_verb
from omx_autoresearch.missions.registry import ActiveSession, Registry
from omx_autoresearch.missions.rules.briefing import marked
from omx_autoresearch.missions.rules.reviews import refuse_settled
from omx_autoresearch.missions.speakers import speaker_of
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.reviews import record_review, refuse_itself, require_reviewer
from omx_autoresearch.missions.workspace import snapshot_workspace
from omx_autoresearch.system.clock import format_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.mission import Mission

_WAIT_MINUTES = 10


def hand_over(runtime: Runtime, mission: Mission, session_id: str, client: str, *, digest: str) -> None:
    """A session gave a verdict: wait for its client's word.

    Raises:
        StepIllegal: no session may give one now, this one is under review, or the artifact is another one.
        OwnerOnly: the session under review started this process; recorded in the mission.
        StorageFailed: the state cannot be written from here.
    """
    task_id = mission.task_id
    require_reviewer(mission, "session")
    if task_id in sessions.missions_around(runtime):
        _refuse(runtime, task_id, "the agent CLI under review started this process")
    refuse_itself(runtime, mission, session_id)
    look = snapshot_workspace(runtime.home.mission(task_id), mission)
    refuse_settled(mission, look)
    if digest != look.output_artifact_digest:
        raise StepIllegal(
            f"the artifact is sha256 {look.output_artifact_digest} now, and {digest[:64]} was named",
            next_step="read it again, and name the content that you have read",
        )
    registry = Registry(runtime.home)
    if registry.bound(session_id) is not None:
        return  # the hook looks at every event of a bound session
    expires_at = format_time(runtime.clock.now() + timedelta(minutes=_WAIT_MINUTES))
    registry.put(
        ActiveSession(
            state="reviewing",
            session_id=session_id,
            task_id=task_id,
            workspace_path=mission.workspace_path,
            client=client,
            at=runtime.now(),
            expires_at=expires_at,
        )
    )


def _refuse(runtime: Runtime, task_id: str, why: str) -> None:
    refuse_verb(runtime, "review", task_id, (why,))
    raise OwnerOnly(
        f"the session under review cannot review itself: {why}", next_step="ask another session or a person"
    )


def confirm(runtime: Runtime, event: HookEvent, words: tuple[str, ...], options: dict[str, str]) -> Reply:
    """The tool event after a session's ``review``: record its verdict, once.

    Args:
        runtime: the world.
        event: the tool's.
        words: of the command beside its options: the mission, or nothing.
        options: of the command, by name.
    """
    registry, store = Registry(runtime.home), MissionStore(runtime.home)
    entry = registry.find(event.session_id)
    waits = entry is not None and entry.state == "reviewing"
    if entry is not None and waits and sessions.is_late(runtime, entry):
        registry.remove(event.session_id)
        return SILENCE
    named = words[0] if words else ""
    task_id = named if store.exists(named) else entry.task_id if entry is not None and waits else ""
    verdicts = {"--approve", "--reject"} & options.keys()
    if not task_id or len(verdicts) != 1 or not options.get("--digest"):
        return SILENCE
    is_approved, digest = "--approve" in verdicts, options["--digest"].strip().lower()
    try:
        mission = store.load(task_id)
        run = mission.attestation
        if run is not None and run.cause.endswith("-by-session") and run.output_artifact_digest == digest:
            return SILENCE  # a duplicate of the event
        if why := _not_another(runtime, mission, event):
            _refuse(runtime, task_id, why)  # what waits goes on waiting for its own client
        if waits:
            registry.remove(event.session_id)
        record_review(
            runtime,
            task_id,
            "session",
            is_approved=is_approved,
            summary=options.get("--summary", ""),
            session_id=event.session_id,
            digest=digest,
        )
    except AutoresearchError as error:
        if isinstance(error, StateUntrusted):
            raise
        return Reply(context=marked(str(error)))
    word = "approved" if is_approved else "rejected"
    return Reply(context=marked(f"your verdict on mission {task_id} is recorded: {word}"))


def _not_another(runtime: Runtime, mission: Mission, event: HookEvent) -> str:
    """Why an event is not of another session's client; empty where it is."""
    speaker = speaker_of(runtime, event)
    if speaker.standing not in ("proven", "by_signs"):
        return speaker.why
    mine = sessions.client_process()
    held = Registry(runtime.home).bound(mission.binding.session_id) if mission.binding else None
    if (
        held is not None
        and mine is not None
        and (held.client_pid, held.client_started) == (mine.pid, mine.started)
    ):
        return f"process {mine.pid} also runs the session under review"
    return ""
