"""Records of an experiment that belongs to a mission: what it is, and what it brought the mission.

They move the stall count and nothing else. Whether a criterion is met is read from the experiment's own log, each time.
"""

from __future__ import annotations

from omx_autoresearch.core.values import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from omx_autoresearch.core.mission import Mission

KEPT_EXPERIMENTS = 32
"""Experiments that the state of a mission names, newest last; an older one meets no criterion any more."""


@dataclass(frozen=True, slots=True)
class ExperimentLinked:
    """An experiment was started for this mission."""

    kind: ClassVar[str] = "experiment_linked"
    experiment_id: str
    metric: str

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Its trials count from now on."""
        others = tuple(name for name in mission.experiments if name != self.experiment_id)
        return replace(mission, experiments=(*others, self.experiment_id)[-KEPT_EXPERIMENTS:], updated_at=ts)


@dataclass(frozen=True, slots=True)
class TrialsAccepted:
    """Trials of an experiment of this mission were accepted and verified anew.

    Attributes:
        experiment_id: whose.
        iterations: their numbers, ascending.
        commit: the last one's checkpoint.
    """

    kind: ClassVar[str] = "trials_accepted"
    experiment_id: str
    iterations: tuple[int, ...]
    commit: str = ""

    def apply(self, mission: Mission, ts: str) -> Mission:
        """The iteration's progress; a trial that was told before, or of a foreign experiment, is none."""
        if self.experiment_id not in mission.experiments:
            return replace(mission, updated_at=ts)
        known = mission.credited_trials.get(self.experiment_id, 0)
        new = [number for number in self.iterations if number > known]
        if not new:
            return replace(mission, updated_at=ts)
        kept = {
            name: number for name, number in mission.credited_trials.items() if name in mission.experiments
        }
        return replace(
            mission,
            credited_trials={**kept, self.experiment_id: max(new)},
            turn_trials=mission.turn_trials + len(new),
            updated_at=ts,
        )


@dataclass(frozen=True, slots=True)
class GainVerified:
    """Base and final of an experiment of this mission were measured freshly against each other.

    Attributes:
        experiment_id: whose.
        metric: that was measured.
        digest: of the claim.
        estimate: of the gain.
        interval: around it.
    """

    kind: ClassVar[str] = "gain_verified"
    experiment_id: str
    metric: str
    digest: str
    estimate: float
    interval: tuple[float, ...] = ()

    def apply(self, mission: Mission, ts: str) -> Mission:
        """Criteria that rest on an earlier claim of this metric are looked at anew."""
        if self.experiment_id not in mission.experiments:
            return replace(mission, updated_at=ts)
        others = {name: digest for name, digest in mission.claim_digests.items() if name != self.metric}
        kept = dict(list(others.items())[1 - KEPT_EXPERIMENTS :])
        return replace(mission, claim_digests={**kept, self.metric: self.digest}, updated_at=ts)
