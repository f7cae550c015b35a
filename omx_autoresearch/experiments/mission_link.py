"""Experiments of a mission: linked to it, their accepted trials told to its journal, their claims held against rules.

A claim counts only if the experiment's own log supports it: the chain of the log is intact, the owner started the
experiment for this mission in this project, the claim is about the current checkpoint, and the recorded runs give the
same numbers again. A gain that is stated anywhere else counts for nothing, and so does the claim of an experiment whose
commands an agent chose.
"""

from __future__ import annotations

from hashlib import sha256

from omx_autoresearch.experiments.judge.summary import effect_interval
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.foundation.errors import AutoresearchError, StepIllegal
from omx_autoresearch.foundation.json_codec import encode
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.records.lifecycle import MissionBlocked
from omx_autoresearch.missions.records.work import ExperimentLinked, GainVerified, TrialsAccepted
from omx_autoresearch.missions.rules.mission import FINAL_PHASES, Blocker, Mission, is_legal
from omx_autoresearch.missions.store import MissionStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.criteria import Examination, Examiner
    from omx_autoresearch.missions.rules.rule_kinds import Trial

CLAIM_STAGE = "claim"
"""The stage of the runs that a claim rests on."""
_DETAIL_CHARACTERS = 500


def require_linkable(runtime: Runtime, task_id: str) -> None:
    """Refuse a mission that can use no experiment, before one is begun for it.

    Raises:
        StepIllegal: the mission is a draft or has ended.
    """
    _refuse_unlinkable(MissionStore(runtime.home).load(task_id))


def link_experiment(runtime: Runtime, task_id: str, experiment_id: str, metric: str) -> Mission:
    """Let an experiment count for a mission.

    Raises:
        StepIllegal: the mission is a draft or has ended.
    """
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        _refuse_unlinkable(transaction.mission)
        return transaction.record(ExperimentLinked(experiment_id, metric))


def _refuse_unlinkable(mission: Mission) -> None:
    if mission.phase in FINAL_PHASES or mission.contract is None:
        is_draft = mission.phase == "draft"
        problem = "has not been started" if is_draft else f"has ended ({mission.phase})"
        raise StepIllegal(
            f"mission {mission.task_id} {problem}, so no experiment can be started for it",
            next_step=f"omx-autoresearch {'start' if is_draft else 'status'} {mission.task_id}",
        )


def tell_mission(runtime: Runtime, task_id: str) -> Mission:
    """Record what the mission's experiments brought since it was last told; each once.

    An experiment whose log cannot be read is passed over: it can bring nothing.
    """
    store = MissionStore(runtime.home)
    mission = store.load(task_id)
    if mission.phase in FINAL_PHASES or not _news(runtime, mission):
        return mission
    with store.transaction(task_id, runtime.now()) as transaction:
        # another process may have told it meanwhile
        if news := _news(runtime, transaction.mission):
            return transaction.record(*news)
        return transaction.mission


def teller(runtime: Runtime, task_id: str) -> Callable[[dict[str, Any]], None]:
    """A subscriber of an experiment's events that tells its mission what was accepted, verified, or went wrong."""

    def tell(event: dict[str, Any]) -> None:
        if event["type"] in ("accepted", "verified"):
            tell_mission(runtime, task_id)
        elif event["type"] == "completed" and event["reason"] == "failure":
            _block_mission(runtime, task_id, str(event["detail"]))
        write_changed(runtime)  # the experiment may go on for hours

    return tell


def _block_mission(runtime: Runtime, task_id: str, detail: str) -> None:
    """A failed experiment blocks its running mission: nothing that an agent does measures what cannot be measured."""
    blocker = Blocker(
        "experiment-failed",
        f"its experiment failed: {' '.join(detail.split())[:_DETAIL_CHARACTERS]}",
        "commands that check and measure the unchanged project, then a new experiment",
        f"omx-autoresearch unblock {task_id}",
        "gate",
    )
    with MissionStore(runtime.home).transaction(task_id, runtime.now()) as transaction:
        if is_legal(transaction.mission.phase, "block"):
            transaction.record(MissionBlocked.taken(transaction.mission, blocker))


def _news(runtime: Runtime, mission: Mission) -> list[TrialsAccepted | GainVerified]:
    """The records that a mission lacks, experiment by experiment, oldest first."""
    news: list[TrialsAccepted | GainVerified] = []
    newest: dict[str, GainVerified] = {}
    for experiment_id in mission.experiments:
        try:
            state = ExperimentStore(runtime.home).load(experiment_id)
        except AutoresearchError:
            continue  # a log that cannot be trusted brings nothing
        if state.is_agents or not _is_of(state, mission):
            continue
        known = mission.credited_trials.get(experiment_id, 0)
        rows = [row for row in state.rows if row.status == "accepted" and row.iteration > known]
        if rows:
            numbers = tuple(row.iteration for row in rows)
            news.append(TrialsAccepted(experiment_id, numbers, rows[-1].candidate_commit))
        if state.claim is not None:
            claim, metric = state.claim, state.config.metric.name
            record = GainVerified(experiment_id, metric, claim_digest(state), claim.estimate, claim.interval)
            newest.pop(record.metric, None)
            newest[record.metric] = record
    news += [
        record for record in newest.values() if mission.claim_digests.get(record.metric) != record.digest
    ]
    return news


def _is_of(state: ExperimentState, mission: Mission) -> bool:
    """True for an experiment that was started for this very mission, in its project or the work tree that it judges."""
    is_here = state.project_path in (mission.project_path, mission.workspace_path)
    return state.task_id == mission.task_id and is_here


def claim_digest(state: ExperimentState) -> str:
    """The identity of a claim: what was said, of which commits, in which experiment."""
    said = [state.experiment_id, state.base_commit, state.claim_commit, to_plain(state.claim)]
    return sha256(encode(said)).hexdigest()


# --- a rule's question


def examine(runtime: Runtime, mission: Mission, rule: Trial, examiner: Examiner) -> Examination:
    """Examine whether the newest claim about the rule's metric is evidence for the rule."""
    faults = []
    store = ExperimentStore(runtime.home)
    begin = (
        f"omx-autoresearch experiment start --task {mission.task_id} --metric {rule.metric} --measure COMMAND "
        "--check COMMAND"
    )
    for experiment_id in filter(store.exists, reversed(mission.experiments)):  # others were removed
        try:
            state = store.load(experiment_id)
        except AutoresearchError as error:
            faults.append(f"the log of {experiment_id} cannot be trusted: {error.message}")
            continue
        if state.config.metric.name != rule.metric or not _is_of(state, mission):
            continue
        if state.is_agents:
            faults.append(
                f"the agent started {experiment_id} and chose its commands, so it does not count; the owner can run: "
                f"{begin}"
            )
            continue
        if state.claim is None:
            faults.append(f"{experiment_id} has no verified claim yet: {_way_to_claim(state)}")
            continue
        fault = _unproven(runtime, state) or _too_little(state, rule, begin)
        digest = claim_digest(state)
        if fault:
            return examiner.missed(f"{experiment_id}: {fault}", content_digest=digest)
        return examiner.met(digest, rule.metric, content_digest=digest, output_digest=digest)
    return examiner.missed(
        "; ".join(faults) or f"no experiment of this mission measured {rule.metric}: {begin}"
    )


def _way_to_claim(state: ExperimentState) -> str:
    """The command that brings an experiment nearer to its claim."""
    if state.incumbent_commit != state.base_commit:
        return f"omx-autoresearch experiment verify {state.experiment_id}"
    if state.phase == "completed":
        return f"it ended without a gain; omx-autoresearch experiment report {state.experiment_id}"
    return _another_trial(state)


def _another_trial(state: ExperimentState) -> str:
    return f"omx-autoresearch experiment trial --experiment {state.experiment_id}"


def _unproven(runtime: Runtime, state: ExperimentState) -> str:
    """The difference between a claim and the recorded runs; empty for none."""
    from omx_autoresearch.experiments.judge.decision import claim as computed

    if state.claim_commit != state.incumbent_commit:
        verify = f"omx-autoresearch experiment verify {state.experiment_id}"
        return f"a step was accepted after its claim was verified; verify it again: {verify}"
    if state.claim_held_out == "failed":
        return "its final state fails the held-out check"
    pairs = claimed_pairs(runtime, state.experiment_id)
    if not pairs:
        return "its log has no runs behind its claim"
    try:
        anew = computed(pairs, state.config.rule, state.calibration)
    except AutoresearchError as error:
        return f"its claim cannot be computed from the recorded runs: {error.message}"
    return "" if to_plain(anew) == to_plain(state.claim) else "its claim does not match the recorded runs"


def claimed_pairs(runtime: Runtime, experiment_id: str) -> list[tuple[float, float, bool]]:
    """The pairs that the newest claim rests on, in their order."""
    from omx_autoresearch.experiments.judge.events import ClaimVerified, RunMeasured

    values: dict[int, dict[str, tuple[float, bool]]] = {}
    done: dict[int, dict[str, tuple[float, bool]]] = {}
    for _, event in ExperimentStore(runtime.home).events(experiment_id):
        if isinstance(event, ClaimVerified):
            values, done = {}, values
        elif isinstance(event, RunMeasured) and event.stage == CLAIM_STAGE and event.value is not None:
            if event.pair == 1 and (len(values) > 1 or event.arm in values.get(1, {})):
                values = {}  # an earlier attempt was cut short
            values.setdefault(event.pair, {})[event.arm] = (event.value, event.is_candidate_first)
    return [
        (arms["incumbent"][0], arms["candidate"][0], arms["candidate"][1])
        for _, arms in sorted(done.items())
        if len(arms) == 2
    ]


def _too_little(state: ExperimentState, rule: Trial, begin: str) -> str:
    """The shortfall of a claim's whole interval against the rule's gain, and the way on; empty for none.

    ``begin`` is the command that starts a new experiment.
    """
    claim = state.claim
    assert claim is not None
    factor, sign = (100.0, " %") if rule.is_percent else (1.0, "")
    if rule.is_percent != (claim.scale == "ratio"):
        how = "in percent of the base" if claim.scale == "ratio" else f"in the unit of {rule.metric}"
        scale = "ratio" if rule.is_percent else "difference"
        wanted = f"but the rule requires {rule.gain:g}{sign}; to go on: {begin} --scale {scale}"
        return f"its gain is measured {how}, {wanted}"
    low = factor * claim.interval[0]
    if low >= rule.gain if rule.gain else claim.has_gain and low > 0:
        return ""
    found = effect_interval(claim.interval, claim.scale, state.config.metric.unit)
    further = begin if state.phase == "completed" else _another_trial(state)
    return f"its verified gain is {found}; the rule requires {rule.gain:g}{sign}; to go on: {further}"
