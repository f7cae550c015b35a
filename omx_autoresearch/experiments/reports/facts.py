"""What a report says, as plain values: the same for Markdown and HTML, in the order in which it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omx_autoresearch.experiments.judge.calibration import Calibration, known_effect, too_few_pairs
from omx_autoresearch.experiments.judge.summary import (
    QuotedClaim,
    count_kinds,
    effect_interval,
    effect_scale,
    effect_text,
    figure,
    kind_of,
    quoted_claim,
    shown_reason,
    steps_of,
)
from omx_autoresearch.experiments.prompts import guard_words, left_words
from omx_autoresearch.foundation.records import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
    from omx_autoresearch.experiments.worktrees.patches import FileChange

PATHS_SHOWN = 200
_ISOLATION = {
    "none": "none: commands ran with the user's own rights; the work trees keep changes apart and confine no process",
    "bubblewrap": "bubblewrap: no network, and only the work tree writable",
}
_REGIMES = {
    "deterministic": "deterministic: the same code gave the same value every time",
    "noisy": "noisy: judged on interleaved pairs",
    "underpowered": "underpowered: only an enormous gain could be seen",
}
_UNAVAILABLE = {
    "noise": "too few pairs to tell the noise",
    "early_acceptance": "too few pairs for an early acceptance",
    "order_effect": "too few pairs to tell whether the order within a pair matters",
}


@dataclass(frozen=True, slots=True)
class ReportMaterial:
    """What a report is made from, beside the state.

    Attributes:
        frozen_paths: the pinned files, relative to the repository.
        changes: for a checkpoint, the files that it changed against the one before.
        isolations: what really isolated the runs, as the events say; the newest run's where nothing is given.
        svg: the plot; empty leaves it out.
        plot_note: why there is no plot.
        origin: where the state comes from, where it is no experiment of ours.
        faults: what could not be read there, a line each.
    """

    frozen_paths: tuple[str, ...] = ()
    changes: Mapping[str, Sequence[FileChange]] = field(default_factory=dict)
    isolations: tuple[str, ...] = ()
    svg: bytes = b""
    plot_note: str = ""
    origin: str = ""
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of a list: what, and the value as a text; ``is_code`` for a foreign or literal one."""

    name: str
    text: str
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """A line of the table of trials, as texts."""

    iteration: int
    kind: str
    hypothesis: str
    metric: str
    judged: str
    pairs: str
    cost: str
    duration: str
    checkpoint: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShownStep:
    """An accepted step: its commit, and how many lines of which files."""

    iteration: int
    hypothesis: str
    commit: str
    files: tuple[tuple[str, str], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """The report, ready to be laid out."""

    title: str
    experiment_id: str
    is_ours: bool
    is_taken: bool
    claim: QuotedClaim
    phase: str
    counts: tuple[tuple[str, int], ...]
    asked: tuple[Fact, ...]
    commands: tuple[tuple[str, str], ...]
    frozen: tuple[str, ...]
    frozen_left_out: int
    pin_digest: str
    measured: tuple[Fact, ...]
    steps: tuple[ShownStep, ...]
    trials: tuple[ShownTrial, ...]
    tampered: tuple[tuple[int, str, tuple[str, ...]], ...]
    budget: tuple[Fact, ...]
    left: str
    isolations: tuple[str, ...]


def report_facts(state: ExperimentState, material: ReportMaterial) -> ReportFacts:
    """Everything that a report says, from the state."""
    counts = count_kinds(state.rows)
    exempt = {glob for glob in state.config.protect if glob.startswith("!")}
    frozen = tuple(path for path in material.frozen_paths if path not in exempt)
    return ReportFacts(
        title=state.config.name or state.config.metric.name,
        experiment_id=state.experiment_id,
        is_ours=not material.origin,
        is_taken=bool(state.applied_commit),
        claim=quoted_claim(state),
        phase=_phase(state),
        counts=tuple((kind, count) for kind, count in counts.items() if count),
        asked=_asked(state),
        commands=_commands(state),
        frozen=frozen[:PATHS_SHOWN],
        frozen_left_out=max(0, len(frozen) - PATHS_SHOWN),
        pin_digest=state.pin_digest,
        measured=_measured(state),
        steps=tuple(_step(row, material) for row in steps_of(state)),
        trials=tuple(_trial(state, row) for row in state.rows),
        tampered=tuple(_tampered(row) for row in state.rows if kind_of(row) == "tampered"),
        budget=_budget(state),
        left=", ".join(left_words(state)) or "no limit is set",
        isolations=_isolations(state, material),
    )


def _phase(state: ExperimentState) -> str:
    return f"{state.phase} ({state.completed_reason})" if state.completed_reason else state.phase


def _asked(state: ExperimentState) -> tuple[Fact, ...]:
    config, rule = state.config, state.config.rule
    unit = f", in {config.metric.unit}" if config.metric.unit else ""
    smallest = (
        effect_text(rule.min_effect, effect_scale(state), config.metric.unit) if rule.min_effect else "any"
    )
    facts = [
        Fact("Metric", f"{config.metric.name}{unit}, {config.metric.direction} is better"),
        Fact("Rule", _rule(state)),
        Fact("Smallest gain that counts", smallest),
        Fact("Repository", state.project_path, is_code=True),
        Fact("Base", state.base_commit, is_code=True),
        *[Fact("Guard", guard_words(guard)) for guard in config.guards],
        *[_protected(glob) for glob in config.protect],
        Fact("Held-out check", "yes, not shown" if config.held_out else "none"),
        Fact("Isolation asked for", config.sandbox),
        Fact("Started", state.started_at),
    ]
    return tuple(fact for fact in facts if fact.text)


def _protected(glob: str) -> Fact:
    """A glob of the owner; one that begins with ``!`` takes files out of what is frozen."""
    if glob.startswith("!"):
        return Fact("Not frozen", glob[1:], is_code=True)
    return Fact("Protected", glob, is_code=True)


def _rule(state: ExperimentState) -> str:
    rule = state.config.rule
    if rule.name == "median":
        runs = "one run" if rule.runs == 1 else f"{rule.runs} runs"
        return f"median of {runs} against the incumbent's"
    return f"hybrid, alpha {100 * rule.alpha:g} %, at most {rule.max_pairs} pairs a trial"


def _commands(state: ExperimentState) -> tuple[tuple[str, str], ...]:
    config = state.config
    commands = {
        "Measure": config.measure,
        "Check": config.check,
        "Set up": config.setup,
        "Reset caches": config.reset_caches,
    }
    return tuple((name, command) for name, command in commands.items() if command.strip())


def _measured(state: ExperimentState) -> tuple[Fact, ...]:
    unit, calibration = state.config.metric.unit, state.calibration
    facts = [Fact("Base", figure(state.baseline, unit) if state.baseline is not None else "not measured yet")]
    if calibration is not None:
        facts += _calibration(calibration, unit)
    return tuple(facts)


def _calibration(calibration: Calibration, unit: str) -> list[Fact]:
    scale = calibration.scale or "ratio"
    smallest, few = known_effect(calibration), too_few_pairs(calibration)
    return [
        Fact("Regime", _REGIMES[calibration.regime]),
        Fact("Pairs of base against base", str(calibration.pairs)),
        Fact("Noise of one run", f"{effect_text(calibration.noise, scale, unit)}{f'; {few}' if few else ''}"),
        Fact("Drift while calibrating", effect_text(calibration.drift, scale, unit)),
        Fact(
            "Order within a pair",
            f"the first run is worse by {effect_text(calibration.order_effect, scale, unit)}"
            if calibration.order_effect
            else "no effect was proven",
        ),
        Fact(
            "Smallest gain that can be seen",
            "unknown" if smallest is None else f"about {effect_text(smallest, scale, unit)}",
        ),
        *[Fact("Not known", _UNAVAILABLE.get(name, name)) for name in calibration.unavailable],
    ]


def hypothesis_text(row: TrialRow) -> str:
    """Id and description of what was tried."""
    return f"{row.hypothesis_id}: {row.description}" if row.description.strip() else row.hypothesis_id


def _trial(state: ExperimentState, row: TrialRow) -> ShownTrial:
    unit = state.config.metric.unit
    return ShownTrial(
        iteration=row.iteration,
        kind=kind_of(row),
        hypothesis=hypothesis_text(row),
        metric=figure(row.metric, unit) if row.metric is not None else "",
        judged=effect_interval(row.interval, effect_scale(state), unit),
        pairs=str(row.pairs) if row.pairs else "",
        cost=f"${row.cost_usd:.2f}" if row.cost_usd else "",
        duration=duration_text(row.duration_seconds) if row.duration_seconds else "",
        checkpoint=row.checkpoint[:12],
        reason=shown_reason(row),
    )


def _step(row: TrialRow, material: ReportMaterial) -> ShownStep:
    changes = material.changes.get(row.candidate_commit)
    if changes is None:
        files = [(path, "") for path in row.changed_paths]
    else:
        files = [(_moved(change), _lines(change)) for change in changes]
    return ShownStep(
        row.iteration,
        hypothesis_text(row),
        row.candidate_commit[:12],
        tuple(files[:PATHS_SHOWN]),
        max(0, len(files) - PATHS_SHOWN),
    )


def _moved(change: FileChange) -> str:
    return f"{change.old_path} -> {change.path}" if change.old_path else change.path


def _lines(change: FileChange) -> str:
    if change.added_lines is None or change.deleted_lines is None:
        return "binary"
    return f"+{change.added_lines} -{change.deleted_lines}"


def _tampered(row: TrialRow) -> tuple[int, str, tuple[str, ...]]:
    return row.iteration, shown_reason(row), row.changed_paths[:PATHS_SHOWN]


def _budget(state: ExperimentState) -> tuple[Fact, ...]:
    usage, limits = state.usage, state.config.limits
    lines = (
        ("Trials", str(usage.trials), limits.trials, str(limits.trials)),
        ("Measured runs", str(usage.runs), limits.runs, str(limits.runs)),
        (
            "Wall clock",
            duration_text(usage.wall_seconds),
            limits.wall_seconds,
            duration_text(limits.wall_seconds),
        ),
        ("Cost, as reported", f"${usage.cost_usd:.2f}", limits.cost_usd, f"${limits.cost_usd:.2f}"),
        ("Disk", _size(usage.disk_bytes), limits.disk_bytes, _size(limits.disk_bytes)),
    )
    return tuple(
        Fact(name, f"{used} of {limit}" if has_limit else used) for name, used, has_limit, limit in lines
    )


def duration_text(seconds: float) -> str:
    """A length of time for people: ``1 h 01 min``, ``2 min 05 s``, ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"


def _isolations(state: ExperimentState, material: ReportMaterial) -> tuple[str, ...]:
    if material.origin:
        return ("unknown: nothing was run by this runtime",)
    names = material.isolations or (state.isolation,)
    return tuple(_ISOLATION.get(name, name) for name in dict.fromkeys(names))


def plain_facts(facts: ReportFacts) -> dict[str, Any]:
    """The facts by name, as a template takes them."""
    return {name: getattr(facts, name) for name in ReportFacts.__slots__}
