"""An experiment in words: the one number that may be quoted, how trials ended, which steps hold. Pure.

Plot, report, MLflow export, commit messages and status say the same, since they all ask here. The only result is the
claim, a fresh check of base against final; everything else is evidence for one decision.
"""

from __future__ import annotations

from math import floor, log10
from typing import Literal

from omx_autoresearch.experiments.judge.metrics import Guard
from omx_autoresearch.experiments.judge.statistics import median
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow

TrialKind = Literal["accepted", "rejected", "failed", "tampered", "running"]
KINDS: tuple[TrialKind, ...] = ("accepted", "rejected", "failed", "tampered", "running")

KEPT_WITHOUT_GAIN = "kept_without_gain"
"""An accepted row of a foreign log that was no better than the best before it: it moves no step."""

LOGGED_BASELINE = "baseline"
"""The row of a foreign log that is the base itself."""

HELD_OUT_FAILED = "held_out_failed"

_SIGNIFICANT = 6
_LARGEST_PLAIN = 10**15
_ENDS = 2
"""Ends of a known interval."""


@dataclass(frozen=True, slots=True)
class QuotedClaim:
    """The one sentence about the result, and what limits it.

    Attributes:
        sentence: for title, report and commit messages; says so where nothing is verified.
        warnings: what the reader must know before the final is accepted, a sentence each.
        is_verified: base and final were measured against each other.
        has_gain: verified, and the whole interval is better than the base.
        is_current: the claim is about the newest accepted step.
    """

    sentence: str
    warnings: tuple[str, ...] = ()
    is_verified: bool = False
    has_gain: bool = False
    is_current: bool = False


def kind_of(row: TrialRow) -> TrialKind:
    """How a trial ended, with tampering apart from other rejections."""
    return "tampered" if row.reason_code == "tampered" else row.status


def shown_reason(row: TrialRow) -> str:
    """The reason for the end of a trial, for people.

    Of a held-out check no more than that it failed, since agents may read it; and where a judge had its say only its
    word, since its estimate would be a second number that looks like a result.
    """
    if row.reason_code == HELD_OUT_FAILED:
        return "the held-out check failed"
    code = row.reason_code.replace("_", " ")
    if row.interval:
        return code or row.status
    return f"{code}: {row.reason}" if row.reason and code else row.reason or code


def steps_of(state: ExperimentState) -> tuple[TrialRow, ...]:
    """The accepted trials that moved the incumbent, in order."""
    return tuple(
        row
        for row in state.rows
        if row.status == "accepted" and row.reason_code not in (KEPT_WITHOUT_GAIN, LOGGED_BASELINE)
    )


def count_kinds(rows: Sequence[TrialRow]) -> dict[TrialKind, int]:
    """The number of trials that ended in each way; every kind is a key."""
    counts: dict[TrialKind, int] = dict.fromkeys(KINDS, 0)
    for row in rows:
        counts[kind_of(row)] += 1
    return counts


def effect_scale(state: ExperimentState) -> str:
    """``ratio`` where improvements are fractions, ``difference`` where they are in the metric's unit."""
    rule = state.config.rule
    if rule.name == "median":
        return "difference"
    if rule.scale != "auto":
        return rule.scale
    return (state.calibration.scale if state.calibration else "") or "ratio"


def metric_band(state: ExperimentState, row: TrialRow) -> tuple[float, float] | None:
    """The interval of a trial in the metric's own unit, low end first; None where there is none.

    An improvement is relative to the incumbent that was measured beside the candidate, so the band stands around it.
    """
    if len(row.interval) != _ENDS or not row.incumbent_samples:
        return None
    incumbent = median(row.incumbent_samples)
    sign = -1.0 if state.config.metric.direction == "lower" else 1.0
    size = abs(incumbent) if effect_scale(state) == "ratio" else 1.0
    ends = sorted(incumbent + sign * size * end for end in row.interval)
    return ends[0], ends[1]


def figure(value: float | None, unit: str = "", *, digits: int = _SIGNIFICANT) -> str:
    """A measured value for people: to six significant digits, whole numbers in full, ``none`` for none."""
    if value is None:
        return "none"
    is_plain = abs(value) < _LARGEST_PLAIN and value == int(value)
    text = str(int(value)) if is_plain else f"{value:.{digits}g}"
    return f"{text} {unit}" if unit else text


def effect_text(value: float, scale: str, unit: str = "") -> str:
    """An improvement for people, without a sign where it is positive: ``3.2 %`` or ``12 ms``."""
    if scale == "ratio":
        return f"{percent(value)} %"
    return figure(value, unit)


def percent(value: float, sign: str = "") -> str:
    """A fraction as a number of percent: to three digits, and beside 100 to two digits of what it differs by.

    A gain of 99.95 % is thus never told as 100 %.

    Args:
        value: of the whole.
        sign: of a positive number: ``+``, or nothing.
    """
    number = 100 * value
    distance = abs(100 - abs(number))
    if 0 < distance < 1:
        return f"{round(number, 1 - floor(log10(distance))):{sign}.15g}"
    return f"{number:{sign}.3g}"


def effect_interval(interval: Sequence[float], scale: str, unit: str = "") -> str:
    """An interval of improvements for people: ``1.2 % to 3.4 %``; empty where there is none."""
    if len(interval) != _ENDS:
        return ""
    low, high = (effect_text(end, scale, unit) for end in interval)
    return f"{low} to {high}"


def quoted_claim(state: ExperimentState) -> QuotedClaim:
    """The one sentence that may be quoted as the result, with its limits."""
    claim = state.claim
    if claim is None:
        return _not_verified(state)
    is_current = state.claim_commit in ("", state.incumbent_commit)
    warnings = []
    if not claim.has_gain:
        warnings.append(
            "The verified interval includes no gain: no measurement supports accepting the final state."
        )
    if not is_current:
        warnings.append(
            f"The check measured checkpoint {state.claim_commit[:12]}; steps accepted after it are not part of it. "
            f"Verify again before quoting it for the final state."
        )
    return QuotedClaim(
        sentence=_claim_sentence(state),
        warnings=tuple(warnings),
        is_verified=True,
        has_gain=claim.has_gain,
        is_current=is_current,
    )


def ending_words(reason: str) -> str:
    """The reason for the end of an experiment, for people; an unknown reason stays as it is."""
    words = {"explicit": "stopped", "final_patch": "accepted into the checkout", "failure": "failed"}
    if reason.startswith("budget_"):
        return f"budget of {reason.removeprefix('budget_').replace('wall', 'hours')} spent"
    return words.get(reason, reason.replace("_", " "))


def _not_verified(state: ExperimentState) -> QuotedClaim:
    if state.rows and not steps_of(state) and state.completed_reason:
        return QuotedClaim("No step was accepted, so there is no result to verify.")
    return QuotedClaim(
        "Not verified yet: base and final were not measured against each other, so there is no number to quote."
    )


def _claim_sentence(state: ExperimentState) -> str:
    claim, metric = state.claim, state.config.metric
    assert claim is not None
    better, worse = ("lower", "higher") if metric.direction == "lower" else ("higher", "lower")
    pairs = count_of(claim.pairs, "fresh interleaved pair")
    if claim.estimate == 0.0:
        return f"Verified: {metric.name} is the same as at the base ({_basis(state, pairs)})."
    size = effect_text(abs(claim.estimate), claim.scale, metric.unit)
    word = better if claim.estimate > 0 else worse
    opening = "Verified" if claim.has_gain else "Verified, but no gain is certain"
    return f"{opening}: {metric.name} is {size} {word} than at the base ({_basis(state, pairs)})."


def _basis(state: ExperimentState, pairs: str) -> str:
    claim = state.claim
    assert claim is not None
    if claim.is_exact:
        return f"both repeated their value exactly in {pairs}"
    interval = effect_interval(claim.interval, claim.scale, state.config.metric.unit)
    return f"95 % interval of the gain {interval}, {pairs}" if interval else pairs


def guard_words(guard: Guard) -> str:
    """One guard for people: ``peak_mb at most 512``, ``peak_mb may rise by 5 %``."""
    limits = []
    if guard.bound is not None:
        limits.append(f"at {'most' if guard.direction == 'lower' else 'least'} {guard.bound:g}")
    moves = "may rise by" if guard.direction == "lower" else "may fall by"
    if guard.max_regression is not None:
        limits.append(f"{moves} {guard.max_regression:g}")
    if guard.max_regression_percent is not None:
        limits.append(f"{moves} {guard.max_regression_percent:g} %")
    return f"{guard.name} {', '.join(limits)}"


def hypothesis_text(row: TrialRow) -> str:
    """The id and the description of a trial's hypothesis."""
    return f"{row.hypothesis_id}: {row.description}" if row.description.strip() else row.hypothesis_id


def row_text(row: TrialRow) -> str:
    """The hypothesis of a trial: its description, else its id."""
    return one_line(row.description or row.hypothesis_id)


def effect_words(state: ExperimentState, row: TrialRow) -> str:
    """The judge's estimate of one trial with its interval, in percent on ratios; empty where nothing was measured."""
    if row.improvement is None:
        return ""
    unit = " %" if is_ratio(state) else f" {state.config.metric.unit}".rstrip()
    shown = [
        percent(value, "+") if is_ratio(state) else f"{value:+.3g}"
        for value in (row.improvement, *row.interval)
    ]
    text = f"{shown[0]}{unit}"
    if len(row.interval) == 2:
        text += f" ({shown[1]} to {shown[2]})"
    return text


def is_ratio(state: ExperimentState) -> bool:
    """Improvements of this experiment are fractions of the incumbent's value."""
    return effect_scale(state) == "ratio"


def left_words(state: ExperimentState, iteration: int = 0) -> list[str]:
    """The rest of each limit, as a phrase; with ``iteration`` after that trial."""
    limits, usage = state.config.limits, state.usage
    trials = max(usage.trials, iteration)
    left = []
    if limits.trials:
        left.append(count_of(max(0, limits.trials - trials), "trial"))
    if limits.wall_seconds:
        left.append(f"{max(0.0, limits.wall_seconds - usage.wall_seconds) / 3600:.1f} h")
    if limits.cost_usd:
        left.append(f"${max(0.0, limits.cost_usd - usage.cost_usd):.2f}")
    if limits.runs:
        left.append(f"{max(0, limits.runs - usage.runs)} measured runs")
    if limits.disk_bytes:
        left.append(f"{max(0, limits.disk_bytes - usage.disk_bytes) / 2**20:.0f} MiB")
    return left


def patch_warning(state: ExperimentState) -> str:
    """The objection to accepting the final state; empty for none."""
    if state.incumbent_commit == state.base_commit:
        return "nothing was accepted: the patch is empty"
    if state.claim is None or state.claim_commit != state.incumbent_commit:
        return "the final state was not yet measured against the base"
    if state.claim_held_out == "failed":
        return "the held-out check fails on the final state"
    if not state.claim.has_gain:
        return "the fresh check of base against final shows no gain: its interval includes zero"
    return ""
