"""The plan of an experiment in words: what a trial costs, what fits, which gain can be seen, what is cheaper.

It is said twice: as an estimate after the first measured runs, before calibration takes long, and after calibration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omx_autoresearch.core.calibration import too_few_pairs
from omx_autoresearch.core.experiment_plans import Outlay, plan_of
from omx_autoresearch.core.experiment_summary import effect_text
from omx_autoresearch.core.shape import to_plain
from omx_autoresearch.surfaces.cli.display import count_of, harmless, say
from omx_autoresearch.surfaces.cli.experiment_documents import PlanDocument

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.core.calibration import Calibration
    from omx_autoresearch.core.experiment_plans import Option, Plan
    from omx_autoresearch.core.experiments import ExperimentConfig
    from omx_autoresearch.surfaces.cli.experiment_display import LineProgress, LiveProgress

ESTIMATE_AFTER_RUNS = 2
LONG_SECONDS = 60.0
"""A calibration that takes no longer needs no estimate before it."""
_NAMES = {
    "fewer_pairs": "--max-pairs {pairs}",
    "relaxed_alpha": "--alpha {alpha:g} --max-pairs {pairs}",
    "median": "--rule median",
}
_SECONDS_PER_HOUR = 3600.0


class PlanTeller:
    """Watches the runs of a calibration, and says the plan as soon as it is known how long a run takes.

    Args:
        config: of the experiment.
        progress: that shows it.

    Attributes:
        run_seconds: the mean of the measured runs so far; 0.0 before the first one.
    """

    def __init__(self, config: ExperimentConfig, progress: LineProgress | LiveProgress) -> None:
        self._config = config
        self._progress = progress
        self._seconds: list[float] = []
        self.run_seconds = 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        """Take one event in."""
        if event["type"] != "measured" or event["stage"] not in ("warmup", "calibration") or event["fault"]:
            return
        self._seconds.append(event["wall_seconds"])
        self.run_seconds = sum(self._seconds) / len(self._seconds)
        if len(self._seconds) != ESTIMATE_AFTER_RUNS:
            return
        left = 2 * self._config.calibration_pairs * self.run_seconds
        if left > LONG_SECONDS:
            for line in self._estimate(left):
                self._progress.note(line)

    def _estimate(self, left_seconds: float) -> list[str]:
        document = plan_document(self._config, None, self.run_seconds)
        first = (
            f"a run takes {self.run_seconds:.1f} s, so calibration will take about {_time_of(left_seconds)}"
        )
        return [first, *document.lines, *document.cheaper]


def plan_document(
    config: ExperimentConfig, calibration: Calibration | None, run_seconds: float
) -> PlanDocument:
    """The plan of an experiment.

    Args:
        config: of it.
        calibration: None before it was measured.
        run_seconds: one measured run; 0.0 where nothing ran yet.
    """
    limits = config.limits
    plan = plan_of(
        config.rule,
        calibration,
        Outlay(
            run_seconds=run_seconds,
            budget_seconds=limits.wall_seconds,
            budget_trials=limits.trials,
            budget_runs=limits.runs,
            calibration_pairs=config.calibration_pairs,
            claim_pairs=config.claim_pairs,
        ),
    )
    return PlanDocument(
        (
            *_lines(config, plan, run_seconds),
            *((few,) if calibration is not None and (few := too_few_pairs(calibration)) else ()),
        ),
        tuple(_cheaper(config, plan, option) for option in plan.alternatives),
        to_plain(plan),
    )


def _lines(config: ExperimentConfig, plan: Plan, run_seconds: float) -> list[str]:
    chosen = plan.chosen
    took = f", {_hours(chosen.hours_without_effect)} to measure" if run_seconds else ""
    clear = f"one with a clear effect: about {chosen.runs_with_effect:.0f}"
    lines = [f"a trial without effect: about {chosen.runs_without_effect:.0f} runs{took}; {clear}"]
    if run_seconds:
        lines.append(f"the fresh check at the end: {_hours(plan.claim_hours)}; agents' time comes on top")
    if chosen.trials is not None:
        limited = (
            "beside calibration and the check at the end" if run_seconds or config.limits.runs else "at most"
        )
        held = count_of(chosen.trials, "trial") if chosen.trials else "no trial"
        cure = "" if chosen.trials else "; raise --budget-runs or --budget-hours, or lower --claim-pairs"
        lines.append(f"the budget holds {held}, {limited}{cure}")
    lines.append(_seen(config, plan, chosen))
    lines.append(_false_accepts(config, plan, chosen))
    return lines


def _seen(config: ExperimentConfig, plan: Plan, chosen: Option) -> str:
    if chosen.visible_effect == 0:
        return "any gain is seen: every run of the base gave the same value"
    return f"a gain of {_visible(config, plan, chosen)} is seen about four times in five"


def _visible(config: ExperimentConfig, plan: Plan, option: Option) -> str:
    if option.visible_effect is None:
        return f"{option.visible_sigmas:.1f} standard deviations of a run"
    return effect_text(option.visible_effect, plan.scale or "ratio", config.metric.unit)


def _false_accepts(config: ExperimentConfig, plan: Plan, chosen: Option) -> str:
    chance = f"{100 * chosen.false_accepts:.2g} %"
    is_verified = config.reverification == "on" or (
        config.reverification == "auto" and config.rule.name != "median"
    )
    if not is_verified:
        return f"a trial without effect is accepted with a chance of {chance}; nothing is verified again"
    return (
        f"a trial without effect is accepted with a chance of {chance}, and each accepted one is judged again "
        f"at {100 * plan.verify_alpha:.2g} %"
    )


def _cheaper(config: ExperimentConfig, plan: Plan, option: Option) -> str:
    name = _NAMES[option.name].format(pairs=option.rule.max_pairs, alpha=option.rule.alpha)
    trials = f", {option.trials} trials fit" if option.trials is not None else ""
    return (
        f"cheaper: {name}: about {option.runs_without_effect:.0f} runs a trial{trials}; sees "
        f"{_visible(config, plan, option)}; false accepts {100 * option.false_accepts:.2g} %"
    )


def _hours(hours: float) -> str:
    return _time_of(hours * _SECONDS_PER_HOUR)


def _time_of(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under a second"
    if seconds < 2 * _SECONDS_PER_HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / _SECONDS_PER_HOUR:.1f} h"


def print_plan(document: PlanDocument) -> None:
    """The plan for people."""
    for line in document.lines:
        say(f"  {harmless(line)}")
    for line in document.cheaper:
        say(f"  {harmless(line)}", "dim")
