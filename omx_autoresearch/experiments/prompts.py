"""What an agent is told before its one trial: a text rendered from the experiment's own history.

What never changes stands first and what was tried grows at its end, so that a client's prompt cache holds from trial to
trial. Texts of earlier agents are quoted on one line each, as material. A held-out check is never named.
"""

from __future__ import annotations

from omx_autoresearch.agents.headless import harmless_line
from omx_autoresearch.experiments.judge.calibration import known_effect
from omx_autoresearch.experiments.judge.summary import effect_scale
from omx_autoresearch.foundation import templates
from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.experiments.judge.metrics import Guard
    from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, ExperimentState, TrialRow

ROWS_SHOWN = 200
"""Trials that a prompt tells, the newest; earlier ones are counted."""
FROZEN_SHOWN = 200
_TEXT_CHARACTERS = 300
_SOURCES = {
    "wall": "its wall-clock time",
    "cpu": "its user and system time",
    "memory": "its peak memory",
    "exit": "its exit status",
    "json": "a value of the JSON that it prints",
}
_HIDDEN = ("held_out_failed",)
"""Reasons of which the agent is told no more than the word: they come from checks that it must not know."""

_NOT_JUDGED = ("no_change", "nested_repository", "tampered", "check_failed", *_HIDDEN)
"""Reasons of a rejection that say nothing of the idea behind the change."""


@dataclass(frozen=True, slots=True)
class _ShownRow:
    iteration: int
    text: str
    result: str
    effect: str


def render_prompt(
    state: ExperimentState,
    *,
    iteration: int,
    frozen_paths: tuple[str, ...] = (),
    hypothesis: ExperimentHypothesis | None = None,
) -> str:
    """The prompt of one trial.

    Args:
        state: of the experiment, before the trial.
        iteration: the number of the trial.
        frozen_paths: files that are pinned, relative to the repository, and the owner's globs.
        hypothesis: what the agent shall try, where the owner gave it; None lets it find its own.
    """
    config = state.config
    rows = [row for row in state.rows if row.status != "running" and row.iteration != iteration]
    return templates.render(
        "experiment_prompt.md.j2",
        metric=config.metric,
        source=_SOURCES.get(config.metric.source, config.metric.source),
        measure=config.measure,
        check=config.check,
        setup=config.setup,
        guards=[guard_words(guard) for guard in config.guards],
        frozen=[harmless_line(path) for path in frozen_paths[:FROZEN_SHOWN]],
        frozen_left_out=max(0, len(frozen_paths) - FROZEN_SHOWN),
        rows=[_shown(state, row) for row in rows[-ROWS_SHOWN:]],
        rows_left_out=max(0, len(rows) - ROWS_SHOWN),
        kept=[row.iteration for row in rows if row.status == "accepted"],
        worn=_worn(rows),
        visible_effect=_visible_effect(state),
        iteration=iteration,
        left=", ".join(left_words(state, iteration)) or "no limit is set",
        hypothesis=_quoted(hypothesis),
    )


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


def row_text(row: TrialRow) -> str:
    """What was tried in a trial: the stated hypothesis, else what it was called."""
    return harmless_line(row.description or row.hypothesis_id)


def effect_words(state: ExperimentState, row: TrialRow) -> str:
    """The judge's estimate of one trial with its interval, in percent on ratios; empty where nothing was measured."""
    if row.improvement is None:
        return ""
    scale = 100.0 if is_ratio(state) else 1.0
    unit = " %" if is_ratio(state) else (f" {state.config.metric.unit}" if state.config.metric.unit else "")
    text = f"{scale * row.improvement:+.3g}{unit}"
    if len(row.interval) == 2:
        low, high = row.interval
        text += f" ({scale * low:+.3g} to {scale * high:+.3g})"
    return text


def is_ratio(state: ExperimentState) -> bool:
    """Improvements of this experiment are fractions of the incumbent's value."""
    return effect_scale(state) == "ratio"


def left_words(state: ExperimentState, iteration: int = 0) -> list[str]:
    """What is left of each limit, a phrase a limit; with ``iteration`` after that trial."""
    limits, usage = state.config.limits, state.usage
    trials = max(usage.trials, iteration)
    left = []
    if limits.trials:
        count = max(0, limits.trials - trials)
        left.append(f"{count} {'trial' if count == 1 else 'trials'}")
    if limits.wall_seconds:
        left.append(f"{max(0.0, limits.wall_seconds - usage.wall_seconds) / 3600:.1f} h")
    if limits.cost_usd:
        left.append(f"${max(0.0, limits.cost_usd - usage.cost_usd):.2f}")
    if limits.runs:
        left.append(f"{max(0, limits.runs - usage.runs)} measured runs")
    if limits.disk_bytes:
        left.append(f"{max(0, limits.disk_bytes - usage.disk_bytes) / 2**20:.0f} MiB")
    return left


def _shown(state: ExperimentState, row: TrialRow) -> _ShownRow:
    result: str = row.status
    if row.reason_code and row.status != "accepted":
        result += f": {row.reason_code.replace('_', ' ')}"
    is_hidden = row.reason_code in _HIDDEN
    return _ShownRow(
        row.iteration, _cell(row_text(row)), result, "" if is_hidden else effect_words(state, row)
    )


def _worn(rows: list[TrialRow]) -> list[str]:
    """Directions that a measurement spoke against, once each, oldest first; where none was said, the hypotheses."""
    kept = {row.direction.casefold() for row in rows if row.status == "accepted" and row.direction}
    found: dict[str, str] = {}
    for row in rows:
        if row.status != "rejected" or row.reason_code in _NOT_JUDGED:
            continue
        text = harmless_line(row.direction) or row_text(row)[:_TEXT_CHARACTERS]
        if text.casefold() not in kept:
            found.setdefault(text.casefold(), text)
    return list(found.values())[-ROWS_SHOWN:]


def _visible_effect(state: ExperimentState) -> str:
    """What the judge can see at all, so that nobody tries for less."""
    effect = known_effect(state.calibration)
    if not effect:
        return ""
    shown = f"{100 * effect:.2g} %" if is_ratio(state) else f"{effect:.3g} {state.config.metric.unit}".strip()
    return f"The measurement is noisy: a change of less than about {shown} cannot be told from none."


def _cell(text: str) -> str:
    """A text that cannot end its table cell."""
    return text[:_TEXT_CHARACTERS].replace("|", "/")


def _quoted(hypothesis: ExperimentHypothesis | None) -> str:
    if hypothesis is None or not hypothesis.description.strip():
        return ""
    return "\n".join(f"> {line}" for line in hypothesis.description.strip().splitlines())
