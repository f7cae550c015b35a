"""Records of validations and reviews, of what may be run, and of pinned files put back."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass, nested, replace
from omx_autoresearch.missions.rules.lifecycle import FINAL_PHASES
from omx_autoresearch.missions.rules.mission import Attestation, Mission, RunningValidation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


@dataclass(frozen=True, slots=True)
class ValidationStarted:
    """The runtime began to run the validator or reviewer."""

    kind: ClassVar[str] = "validation_started"
    run: RunningValidation = nested(RunningValidation)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """One run is under way."""
        return replace(mission, running_validation=self.run, updated_at=ts)


@dataclass(frozen=True, slots=True)
class ValidationFinished:
    """A run reported; ``attestation`` is what the runtime itself saw."""

    kind: ClassVar[str] = "validation_finished"
    attestation: Attestation = nested(Attestation)

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The newest attestation; scores and marks of output are judged at the next stop.

        A mission that ended keeps the attestation that ended it. A run that began before a person's newest prompt
        says nothing about the world after it, so it is due again.
        """
        running = mission.running_validation
        is_current = running is not None and running.run_id == self.attestation.run_id
        if mission.phase in FINAL_PHASES:
            return replace(mission, running_validation=None if is_current else running, updated_at=ts)
        is_older = self.attestation.started_at < mission.prompted_at
        return replace(
            mission,
            attestation=self.attestation,
            running_validation=None if is_current else running,
            is_recheck_due=mission.is_recheck_due and is_older,
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class ValidationLost:
    """The process that ran a validation is gone without a report (killed, power loss)."""

    kind: ClassVar[str] = "validation_lost"
    run_id: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """This run is no longer under way; another one may be."""
        running = mission.running_validation
        is_lost = running is not None and running.run_id == self.run_id
        return replace(mission, running_validation=None if is_lost else running, updated_at=ts)


@dataclass(frozen=True, slots=True)
class CommandsApproved:
    """The owner allowed the contract's commands to run outside an agent's sandbox."""

    kind: ClassVar[str] = "commands_approved"
    key: str
    is_unsandboxed: bool = False

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The approval itself stands in ``approved/``; the record tells when."""
        return replace(mission, updated_at=ts)


@dataclass(frozen=True, slots=True)
class PinsRestored:
    """Pinned files were copied back from ``frozen/``."""

    kind: ClassVar[str] = "pins_restored"
    paths: tuple[str, ...] = ()
    reason: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """One refusal that names ``restore`` is available again."""
        return replace(mission, usage=replace(mission.usage, tamper_refusals=0), updated_at=ts)
