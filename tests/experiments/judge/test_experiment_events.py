"""The events of an experiment and the state that they fold to."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from omx_autoresearch.experiments.judge.calibration import calibrate
from omx_autoresearch.experiments.judge.events import (
    KINDS,
    AgentStarted,
    BaselineEstablished,
    ControllerAttached,
    ControllerDetached,
    ExperimentCompleted,
    ExperimentEvent,
    ExperimentStarted,
    LimitsExtended,
    RunMeasured,
    TrialAccepted,
    TrialAdmitted,
    TrialFailed,
    TrialRejected,
    step_taken,
    wire_event,
)
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentLimits,
    ExperimentPhase,
    ExperimentState,
    ExperimentStep,
    ExperimentUsage,
    TrialRow,
    checked_hypothesis,
    next_experiment_phase,
    phase_after,
)
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.foundation.records import from_plain, replace, to_plain

TS = "2026-01-02T03:04:05.000000Z"
CONFIG = ExperimentConfig("faster", MetricSpec("ms"), measure="./m.sh", check="./c.sh")
STARTED = ExperimentStarted("20260102-030405-faster", "/p", CONFIG, base_commit="b" * 40)
BASELINE = BaselineEstablished(
    10.0, calibrate([(10.0, 10.0), (10.0, 10.0)], CONFIG.rule), (10.0,), "b" * 40, ExperimentUsage(runs=4)
)
ROW = TrialRow(1, "h-1", started_at=TS)
ADMITTED = TrialAdmitted(ROW, ExperimentUsage(trials=1, runs=4))


def folded(*events: ExperimentEvent) -> ExperimentState:
    state: ExperimentState | None = None
    for event in events:
        state = from_plain(type(event), to_plain(event)).apply(state, TS)
    assert state is not None
    return state


@pytest.mark.requirement("EXP-02")
def test_the_wire_kinds_are_those_that_hosts_know() -> None:
    assert KINDS.keys() >= {"baseline", "iteration", "accepted", "rejected", "failed", "completed"}


def test_an_accepted_trial_becomes_the_incumbent() -> None:
    done = replace(ROW, status="accepted", candidate_commit="c" * 40, metric=9.0, reason_code="improved")
    state = folded(STARTED, BASELINE, ADMITTED, TrialAccepted(done, ExperimentUsage(trials=1, runs=9)))
    assert (state.incumbent_commit, state.checkpoints) == ("c" * 40, ("c" * 40,))
    assert (state.phase, state.rows, state.usage.runs) == ("ready", (done,), 9)


@pytest.mark.parametrize(("kind", "status"), [(TrialRejected, "rejected"), (TrialFailed, "failed")])
def test_any_other_end_leaves_the_incumbent(kind: type, status: str) -> None:
    done = replace(ROW, status=status)  # type: ignore[arg-type]
    state = folded(
        STARTED, BASELINE, ADMITTED, AgentStarted(7, "boot:1"), kind(done, ExperimentUsage(trials=1))
    )
    assert (state.incumbent_commit, state.checkpoints) == ("b" * 40, ())
    assert (state.rows, state.running_row, state.agent_pid) == ((done,), None, 0)


@pytest.mark.requirement("EXP-07")
@pytest.mark.case("STA-08")
def test_a_terminal_event_of_a_trial_that_is_over_counts_nothing_twice() -> None:
    done = replace(ROW, status="accepted", candidate_commit="c" * 40)
    once = TrialAccepted(done, ExperimentUsage(trials=1, runs=9))
    again = TrialAccepted(done, ExperimentUsage(trials=2, runs=18))
    assert folded(STARTED, BASELINE, ADMITTED, once, again) == folded(STARTED, BASELINE, ADMITTED, once)


def test_the_first_reason_of_completion_stands() -> None:
    state = folded(STARTED, ExperimentCompleted("budget_wall"), ExperimentCompleted("explicit"))
    assert (state.phase, state.completed_reason) == ("completed", "budget_wall")


def test_more_budget_reopens_what_a_budget_had_ended_and_nothing_else() -> None:
    wider = LimitsExtended(replace(CONFIG, limits=ExperimentLimits(trials=80)))
    reopened = folded(STARTED, BASELINE, ExperimentCompleted("budget_trials"), wider)
    assert (reopened.phase, reopened.completed_reason, reopened.config.limits.trials) == ("ready", "", 80)
    early = folded(STARTED, ExperimentCompleted("budget_runs"), wider)
    assert (early.phase, early.completed_reason) == ("started", "")
    closed = folded(STARTED, BASELINE, ExperimentCompleted("explicit"), wider)
    assert (closed.phase, closed.completed_reason) == ("completed", "explicit")


@pytest.mark.requirement("LIFE-13")
def test_every_step_of_an_experiment_leads_where_it_should_or_is_refused_with_what_to_type() -> None:
    wanted = {
        ("started", "measure"): "ready",
        ("started", "complete"): "completed",
        ("ready", "admit"): "running",
        ("ready", "complete"): "completed",
        ("running", "conclude"): "ready",
        ("running", "complete"): "completed",
        ("completed", "reopen"): "ready",
        ("completed", "restart"): "started",
    }
    for phase, step in product(get_args(ExperimentPhase), get_args(ExperimentStep)):
        state = replace(folded(STARTED), phase=phase)
        assert phase_after(state, step, "") == wanted.get((phase, step), "")
        if (phase, step) in wanted:
            assert next_experiment_phase(state, step) == wanted[phase, step]
            continue
        with pytest.raises(StepIllegal) as refused:
            next_experiment_phase(state, step)
        assert refused.value.next_step.startswith("omx-autoresearch experiment ")


@pytest.mark.requirement("LIFE-13")
def test_events_carry_the_phase_and_a_log_from_before_they_did_folds_to_the_same() -> None:
    done = replace(ROW, status="accepted", candidate_commit="c" * 40)
    wider = replace(CONFIG, limits=ExperimentLimits(trials=80))
    events: list[ExperimentEvent] = [STARTED]
    steps: tuple[tuple[Any, ...], ...] = (
        (BaselineEstablished, 10.0, BASELINE.calibration),
        (TrialAdmitted, ROW),
        (TrialAccepted, done),
        (ExperimentCompleted, "budget_trials"),
    )
    for kind, *facts in steps:
        events.append(step_taken(folded(*events), kind, *facts))
    events.append(LimitsExtended.of(folded(*events), wider, "resumed"))
    events.append(LimitsExtended.of(folded(*events), wider, "resumed"))
    phases = [to_plain(event).get("phase") for event in events]
    assert phases == [None, "ready", "running", "ready", "completed", "ready", ""]
    before = [replace(event, phase="") if hasattr(event, "phase") else event for event in events]  # type: ignore[type-var]
    for count in range(1, len(events) + 1):
        assert folded(*events[:count]) == folded(*before[:count])


@pytest.mark.requirement("LIFE-13")
def test_an_event_whose_step_the_phase_does_not_have_changes_nothing() -> None:
    early = folded(STARTED, ADMITTED)
    assert (early.phase, early.rows) == ("started", ())
    wrong = folded(STARTED, replace(BASELINE, phase="completed"))
    assert (wrong.phase, wrong.baseline) == ("started", None)
    twice = folded(STARTED, BASELINE, replace(BASELINE, metric=9.0))
    assert twice.baseline == BASELINE.metric


def test_who_is_at_work_is_known_until_they_let_go() -> None:
    at_work = folded(STARTED, ControllerAttached(12, "boot:9"))
    assert (at_work.controller_pid, at_work.controller_started) == (12, "boot:9")
    assert folded(STARTED, ControllerAttached(12, "boot:9"), ControllerDetached()).controller_pid == 0


def test_every_event_survives_its_plain_form() -> None:
    measured = RunMeasured("r-1", 1, "trial", "candidate", value=9.5, others={"rss": 1.0})
    for event in (STARTED, BASELINE, ADMITTED, measured, ExperimentCompleted("explicit")):
        assert from_plain(type(event), to_plain(event)) == event


@pytest.mark.requirement("EXP-02")
def test_the_wire_form_is_flat_and_has_every_field_of_the_table() -> None:
    told = wire_event(ADMITTED, seq=3, ts=TS)
    assert list(told)[:3] == ["type", "seq", "ts"]
    assert told["type"] == "iteration"
    needed = {
        "iteration", "hypothesis_id", "description", "status", "metric", "samples", "improvement", "cost_usd",
        "duration_seconds", "checkpoint", "candidate_commit", "reason",
    }  # fmt: skip
    assert needed <= set(told)


@pytest.mark.case("GIT-22")
@pytest.mark.parametrize(
    ("hypothesis", "word"),
    [
        (ExperimentHypothesis(" "), "needs an id"),
        (ExperimentHypothesis("a\0b"), "NUL"),
        (ExperimentHypothesis("a", "x" * 1_000_000), "1000000 characters"),
        (ExperimentHypothesis("a", metadata={str(number): 1 for number in range(101)}), "101 entries"),
    ],
)
def test_a_hypothesis_that_cannot_be_recorded_is_refused(hypothesis: ExperimentHypothesis, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        checked_hypothesis(hypothesis)
