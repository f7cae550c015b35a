"""The past-tense lines of a journal, one class a kind, each with its effect on the mission.

A record is a frozen dataclass with a ``kind`` and an ``apply``: fold the records in order and you have the state.
Adding a kind is adding a class to the module of its concept and its name to :data:`KINDS`.
"""

from __future__ import annotations

from importlib import import_module

from omx_autoresearch.foundation.records import NewerShape, ShapeError, from_plain, replace, to_plain
from omx_autoresearch.missions.rules.mission import Mission, charged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, ClassVar, Protocol

    class Record(Protocol):
        """The members of every record class."""

        kind: ClassVar[str]

        def apply(self, mission: Mission, ts: str) -> Mission:
            """The mission after this record, written at ``ts``; pure."""
            ...


KINDS: dict[str, str] = {
    "mission_created": "lifecycle.MissionCreated",
    "schema_migrated": "lifecycle.SchemaMigrated",
    "mission_adopted": "lifecycle.MissionAdopted",
    "mission_launched": "lifecycle.MissionLaunched",
    "mission_amended": "lifecycle.MissionAmended",
    "mission_blocked": "lifecycle.MissionBlocked",
    "mission_unblocked": "lifecycle.MissionUnblocked",
    "mission_paused": "lifecycle.MissionPaused",
    "mission_resumed": "lifecycle.MissionResumed",
    "mission_cancelled": "lifecycle.MissionCancelled",
    "mission_completed": "lifecycle.MissionCompleted",
    "owner_verb_refused": "lifecycle.OwnerVerbRefused",
    "unproven_prompt": "lifecycle.UnprovenPrompt",
    "session_bound": "sessions.SessionBound",
    "session_unbound": "sessions.SessionUnbound",
    "session_forked": "sessions.SessionForked",
    "hold_lost": "sessions.HoldLost",
    "person_prompted": "sessions.PersonPrompted",
    "heartbeat_failed": "sessions.HeartbeatFailed",
    "stop_refused": "work.StopRefused",
    "stop_allowed": "work.StopAllowed",
    "stop_released": "work.StopReleased",
    "validation_started": "work.ValidationStarted",
    "validation_finished": "work.ValidationFinished",
    "validation_lost": "work.ValidationLost",
    "commands_approved": "work.CommandsApproved",
    "pins_restored": "work.PinsRestored",
    "finding_recorded": "work.FindingRecorded",
    "verification_excused": "work.VerificationExcused",
    "criteria_checked": "work.CriteriaChecked",
    "readiness_blocked": "work.ReadinessBlocked",
    "direction_declared": "work.DirectionDeclared",
    "direction_injected": "work.DirectionInjected",
    "pivot_required": "work.PivotRequired",
    "experiment_linked": "work.ExperimentLinked",
    "trials_accepted": "work.TrialsAccepted",
    "gain_verified": "work.GainVerified",
    "claim_recorded": "work.ClaimRecorded",
    "projection_edited": "work.ProjectionEdited",
    "torn_tail_set_aside": "work.TornTailSetAside",
}
"""Kind on disk to ``module.Class``; modules are imported when a kind of theirs is met."""


def record_class(kind: str) -> Any:
    """The class of a kind.

    Raises:
        NewerShape: the kind is unknown, most likely because a newer version wrote it.
    """
    try:
        module, _, name = KINDS[kind].partition(".")
    except KeyError:
        raise NewerShape(f"record kind {kind!r} is unknown") from None
    return getattr(import_module(f"{__name__}.{module}"), name)


def draft_of(record: Record) -> tuple[str, dict[str, Any]]:
    """A record as the journal takes it: its kind and plain data."""
    return record.kind, to_plain(record)


def fold(mission: Mission | None, entries: Iterable[tuple[str, str, dict[str, Any]]]) -> Mission | None:
    """The mission after ``entries``, each ``(kind, ts, data)``, in order.

    Raises:
        ShapeError: an entry is of an unknown kind or shape, or comes before ``mission_created``.
    """
    ts = ""
    for kind, ts, data in entries:
        record = from_plain(record_class(kind), data)
        if mission is None and kind != "mission_created":
            raise ShapeError(f"{kind} comes before mission_created")
        mission = record.apply(charged(mission, ts) if mission else None, ts)
        mission = replace(mission, updated_at=ts) if mission is not None and ts else mission
    return mission
