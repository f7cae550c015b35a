"""``experiment start``: freeze the evaluators, check the base and measure it against itself, print the plan."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from omx_autoresearch.experiments.judge.calibration import Calibration, too_few_pairs
from omx_autoresearch.experiments.judge.plans import Option, Plan, plan_of
from omx_autoresearch.experiments.judge.summary import effect_text
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.experiments.views import ExperimentView, experiments_of, frozen_paths
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, to_plain
from omx_autoresearch.foundation.text import count_of, duration_text
from omx_autoresearch.missions.accepted import experiment_lines, take_experiment
from omx_autoresearch.missions.lifecycle_commands import require_owner
from omx_autoresearch.surfaces.cli.console import (
    INTERRUPTED,
    Caller,
    Document,
    json_option,
    print_json,
    print_rows,
    say,
    tell,
    this_caller,
    verb,
    with_options,
)
from omx_autoresearch.surfaces.cli.experiment import Meant, phase_words
from omx_autoresearch.surfaces.cli.experiment_trial import attended
from omx_autoresearch.surfaces.cli.lifecycle import take_option, taking

if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.experiments.controller import AutoresearchController
    from omx_autoresearch.experiments.judge.state import ExperimentConfig, ExperimentState
    from omx_autoresearch.surfaces.cli.experiment import LineProgress, LiveProgress


# --- The options of ``experiment start``; one that is left out leaves the word to the file, or to the default.

start_options = with_options(
    click.option(
        "--metric",
        metavar="NAME",
        help="Name of the metric: --measure prints one line such as `METRIC total_ms=11.8`, or see --source.",
    ),
    click.option(
        "--measure", metavar="COMMAND", help="Shell command that measures; it and its files are frozen."
    ),
    click.option(
        "--check", metavar="COMMAND", help="Shell command that checks whether a candidate still works."
    ),
    click.option(
        "--direction",
        type=click.Choice(("lower", "higher")),
        help="Whether a lower or a higher value is better.  [default: lower]",
    ),
    click.option(
        "--source",
        metavar="SOURCE",
        help="line, wall, cpu, memory, exit, or json:PATH: `json:total_ms` reads the last line "
        "of --measure where that is JSON.  [default: line]",
    ),
    click.option("--unit", metavar="UNIT", help="Unit of the metric, for display."),
    click.option("--name", metavar="TEXT", help="Name of the experiment.  [default: the metric's]"),
    click.option(
        "--guard",
        multiple=True,
        metavar="RULE",
        help="Another limit: `name<=bound`, `name:+5%` (may rise by 5 %), `name:-5%`, `name:+5` (by 5 of its unit). "
        "May be repeated.",
    ),
    click.option(
        "--budget-trials", type=int, metavar="N", help="Limit of trials; 0 for no limit.  [default: 40]"
    ),
    click.option(
        "--budget-hours", type=float, metavar="H", help="Limit of hours; 0 for no limit.  [default: 0]"
    ),
    click.option(
        "--budget-cost",
        type=float,
        metavar="USD",
        help="Limit of the cost that the agents report.  [default: no limit]",
    ),
    click.option(
        "--budget-runs", type=int, metavar="N", help="Limit of measured runs; 0 for no limit.  [default: 0]"
    ),
    click.option(
        "--budget-disk",
        metavar="SIZE",
        help="Limit of the experiment's folder, such as 2GiB; 0 for no limit.  [default: 0]",
    ),
    click.option("--target", type=float, metavar="VALUE", help="End once the metric verifiably reaches it."),
    click.option("--setup", metavar="COMMAND", help="Run after a worktree's files changed; not measured."),
    click.option("--reset-caches", metavar="COMMAND", help="Run before each measured run; not measured."),
    click.option(
        "--held-out",
        metavar="PATH",
        help="A check that is hidden from agents: an executable, or a folder with one.",
    ),
    click.option(
        "--work",
        multiple=True,
        metavar="GLOB",
        help="What a candidate is to change, such as 'src/**': never frozen; what else the frozen files read is. "
        "May be repeated.",
    ),
    click.option(
        "--protect", multiple=True, metavar="GLOB", help="Also freeze these files. May be repeated."
    ),
    click.option(
        "--keep", multiple=True, metavar="PATH", help="An ignored path that --setup makes; it is kept."
    ),
    click.option(
        "--link",
        multiple=True,
        metavar="PATH",
        help="An ignored path of your checkout to link into the worktrees.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME=VALUE",
        help="An environment variable for every command. May be repeated.",
    ),
    click.option(
        "--rule",
        type=click.Choice(("hybrid", "median")),
        help="How a candidate is judged.  [default: hybrid]",
    ),
    click.option(
        "--alpha",
        type=float,
        metavar="P",
        help="Probability of accepting a change without effect, before re-verification.  [default: 0.01]",
    ),
    click.option(
        "--max-pairs", type=int, metavar="N", help="Pairs after which hybrid decides.  [default: 30]"
    ),
    click.option("--min-effect", metavar="GAIN", help="A gain must exceed this: 0.02 or 2%.  [default: 0]"),
    click.option(
        "--scale", type=click.Choice(("auto", "ratio", "difference")), help="Of a gain.  [default: auto]"
    ),
    click.option("--runs", type=int, metavar="N", help="Runs per arm for --rule median.  [default: 5]"),
    click.option(
        "--warmups", type=int, metavar="N", help="Runs discarded after a change of files.  [default: 1]"
    ),
    click.option(
        "--calibration-pairs", type=int, metavar="N", help="Pairs of the base against itself.  [default: 15]"
    ),
    click.option("--claim-pairs", type=int, metavar="N", help="Pairs of base against final.  [default: 30]"),
    click.option(
        "--reverification",
        type=click.Choice(("auto", "on", "off")),
        help="Judge an accepted candidate again on fresh pairs.  [default: auto]",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(("none", "auto", "bubblewrap")),
        help="Isolation of the commands; only the owner may choose it.  [default: none]",
    ),
    click.option(
        "--timeout", type=float, metavar="SECONDS", help="Time limit of one measured run.  [default: 600]"
    ),
    click.option(
        "--check-timeout",
        type=float,
        metavar="SECONDS",
        help="Time limit of one check or set-up.  [default: --timeout]",
    ),
    click.option(
        "--agent-timeout",
        type=float,
        metavar="SECONDS",
        help="Time limit of one agent session.  [default: 3600]",
    ),
    click.option("--seed", type=int, metavar="N", help="Seed of the order within pairs.  [default: 0]"),
)
"""In the order of reading; the names are those of the ``experiment:`` block, with ``-`` for ``_``."""


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, by the names of the block.

    Raises:
        UsageError: a variable is no ``NAME=VALUE``.
    """
    options = {name: value for name, value in given.items() if value is not None and value != ()}
    if "env" in options:
        options["env"] = dict(map(_variable, options["env"]))
    return options


def _variable(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise UsageError(f"--env is NAME=VALUE, received {text[:80]!r}", next_step="--env LEVEL=3")
    return name, value


# --- The plan of an experiment in words: what a trial costs, what fits, which gain can be seen, what is cheaper.
#
# It is said twice: as an estimate after the first measured runs, before calibration takes long, and after calibration.

ESTIMATE_AFTER_RUNS = 2
LONG_SECONDS = 60.0
"""A calibration that takes no longer needs no estimate before it."""
_NAMES = {
    "fewer_pairs": "--max-pairs {pairs}",
    "relaxed_alpha": "--alpha {alpha:g} --max-pairs {pairs}",
    "median": "--rule median",
}
_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """What a plan says.

    Attributes:
        lines: for people: runs and hours a trial, what fits the budget, which effect can be seen.
        cheaper: cheaper alternatives, one a line.
        values: the plan's own figures.
    """

    lines: tuple[str, ...]
    cheaper: tuple[str, ...]
    values: dict[str, object]


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
        first = f"a run takes {self.run_seconds:.1f} s, so calibration will take about {duration_text(left_seconds)}"
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
    plan = plan_of(config, calibration, run_seconds)
    few = too_few_pairs(calibration) if calibration is not None else ""
    return PlanDocument(
        (*_lines(config, plan, run_seconds), *([few] if few else ())),
        tuple(_cheaper(config, plan, option) for option in plan.alternatives),
        to_plain(plan),
    )


def _lines(config: ExperimentConfig, plan: Plan, run_seconds: float) -> list[str]:
    chosen = plan.chosen
    took = f", {_hours(chosen.hours_without_effect)} to measure" if run_seconds else ""
    clear = f"one with a clear effect: about {chosen.runs_with_effect:.0f}"
    lines = [
        f"a trial without effect: about {count_of(round(chosen.runs_without_effect), 'run')}{took}; {clear}"
    ]
    if run_seconds:
        lines.append(
            f"the fresh measurement at the end: {_hours(plan.claim_hours)}; agents' time comes on top"
        )
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
        return "any gain is detected: every run of the base gave the same value"
    return f"a gain of {_visible(config, plan, chosen)} is detected about four times in five"


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
        return f"a trial without effect is accepted with a chance of {chance}; accepted trials are not verified again"
    return (
        f"a trial without effect is accepted with a chance of {chance}, and each accepted one is judged again "
        f"at {100 * plan.verify_alpha:.2g} %"
    )


def _cheaper(config: ExperimentConfig, plan: Plan, option: Option) -> str:
    name = _NAMES[option.name].format(pairs=option.rule.max_pairs, alpha=option.rule.alpha)
    trials = f", {count_of(option.trials, 'trial fits', 'trials fit')}" if option.trials is not None else ""
    return (
        f"cheaper: {name}: about {count_of(round(option.runs_without_effect), 'run')} a trial{trials}; sees "
        f"{_visible(config, plan, option)}; false accepts {100 * option.false_accepts:.2g} %"
    )


def _hours(hours: float) -> str:
    return duration_text(hours * _SECONDS_PER_HOUR)


def print_plan(document: PlanDocument) -> None:
    """The plan for people."""
    for line in document.lines:
        say(f"  {line}")
    for line in document.cheaper:
        say(f"  {line}", "dim")


@dataclass(frozen=True, slots=True)
class ExperimentStartDocument:
    """``experiment start``.

    Attributes:
        experiment: as it stands; null after a dry run.
        plan: what a trial will cost and what can be seen.
        frozen: files that no candidate may touch.
        notes: what the owner should know.
        dry_run: nothing was begun.
        next: the command that follows.
    """

    experiment: ExperimentView | None
    plan: PlanDocument | None
    frozen: tuple[str, ...]
    notes: tuple[str, ...]
    dry_run: bool
    next: str


FROZEN_SHOWN = 8


@verb("experiment start", Document("experiment-start", ExperimentStartDocument))
@start_options
@click.option(
    "--config",
    "page_path",
    default="",
    metavar="FILE",
    help="A file with an `experiment:` block in its frontmatter.  [default: sandbox.md of --task, if it has one]",
)
@click.option("--task", default="", metavar="TASK", help="The mission that the experiment belongs to.")
@take_option
@click.option("--no-baseline", is_flag=True, help="Measure the base later, before the first trial.")
@click.option("--dry-run", is_flag=True, help="Show the plan and begin nothing.")
@json_option
def experiment_start(  # noqa: PLR0913 - an option each
    page_path: str,
    task: str,
    *,
    take_edits: bool,
    no_baseline: bool,
    dry_run: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Begin an experiment on a clean checkout, which stays untouched until you accept the final patch.

    This freezes the files that the commands name, makes two worktrees in a private folder, checks the base, and
    measures it against itself to learn how noisy the metric is. If that takes long, the plan with the cost of a trial
    comes first.
    """
    from omx_autoresearch.experiments.configuration import configure, read_block
    from omx_autoresearch.experiments.controller import AutoresearchController

    caller = this_caller()
    root_path = caller.new_workspace_path()
    options = given_options(given)
    _require_owner_for(caller, options)
    task_id = caller.task(task) if task else caller.held_task()
    path = page_path or _page_of(caller, task_id)
    block = read_block(path) if path else {}
    config = configure(options, block=block)
    if dry_run:
        _show(root_path, config, as_json=as_json)
        return 0
    if block and not page_path and not caller.is_agent():  # what an agent chooses meets no criterion
        take = taking(task_id, "experiment start --task", takes_edits=take_edits, as_json=as_json)
        take_experiment(caller.runtime, caller.mission(task_id), block, take)
    if block and not as_json:
        tell(f"from {path}:\n  " + "\n  ".join(experiment_lines(block)))
    controller = AutoresearchController(root_path, config, runtime=caller.runtime, task_id=task_id)
    return _begun(caller, controller, has_baseline=not no_baseline, as_json=as_json)


def _require_owner_for(caller: Caller, options: dict[str, Any]) -> None:
    """Only the owner chooses the isolation of the commands and the hidden check."""
    for name in ("sandbox", "held_out"):
        if name in options:
            require_owner(caller.runtime, f"experiment start --{name.replace('_', '-')}")


def _page_of(caller: Caller, task_id: str) -> str:
    """The mission's sandbox.md; empty where there is none."""
    if not task_id:
        return ""
    mission = caller.mission(task_id)
    path = os.path.join(mission.project_path, mission.specs_path, "sandbox.md")
    return path if os.path.isfile(path) else ""


def _show(root_path: str, config: ExperimentConfig, *, as_json: bool) -> None:
    """Print the plan of a start."""
    plan = plan_document(config, None, 0.0)
    document = ExperimentStartDocument(
        None, plan, config.protect, (f"in {root_path}",), True, "the same without --dry-run"
    )
    if as_json:
        print_json(document)
        return
    plain = to_plain(config)
    print_rows(
        [(name.replace("_", " "), _words(value), "") for name, value in plain.items() if value or value == 0]
    )
    print_plan(plan)
    say(f"  next: {document.next}", "dim")


def _words(value: Any) -> str:
    """A value of the configuration for people, without unset parts."""
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(item)}" for name, item in value.items() if item)
    if isinstance(value, list):
        return "; ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _begun(caller: Caller, controller: AutoresearchController, *, has_baseline: bool, as_json: bool) -> int:
    """Measure the base unless it was deferred, and print the plan."""
    found = Meant(caller, ExperimentStore(caller.runtime.home), controller.experiment_id)
    frozen = frozen_paths(caller.runtime, controller.state)
    if not as_json:
        _tell_frozen(frozen)
    with attended(controller, as_json=as_json) as progress:
        plans = PlanTeller(controller.state.config, progress)
        controller.subscribe(plans)
        if has_baseline:
            controller.establish_baseline()
    state = found.load()  # with the word that this process let go of it
    document = _document(found, state, frozen, plans.run_seconds)
    if as_json:
        print_json(document)
    else:
        _print(document, state)
    return INTERRUPTED if controller.was_interrupted else 0


def _tell_frozen(frozen: tuple[str, ...]) -> None:
    globs = [path for path in frozen if set(path) & set("*?[")]
    files = [path for path in frozen if path not in globs]
    shown = ", ".join(files[:FROZEN_SHOWN])
    more = f" and {len(files) - FROZEN_SHOWN} more" if len(files) > FROZEN_SHOWN else ""
    named = f": {shown}{more}" if files else "; name the scripts in the commands, or --protect them"
    beside = f"; whatever matches {', '.join(globs)}" if globs else ""
    tell(f"frozen: {count_of(len(files), 'file')}{named}{beside}")


def _document(
    found: Meant, state: ExperimentState, frozen: tuple[str, ...], run_seconds: float
) -> ExperimentStartDocument:
    from omx_autoresearch.freezing import pins

    document = found.view()
    notes = list(pins.load_manifest(found.folder.frozen_path, state.pin_digest).notes)
    if state.is_agents:
        notes.append("an agent chose the evaluators, so the results meet no criterion of the mission")
    others = [
        other.experiment_id
        for other in experiments_of(found.store, (state.project_path,))
        if other.phase != "completed" and other.experiment_id != found.experiment_id
    ]
    if others:
        said = (
            "is also active, so each verb needs an id"
            if len(others) == 1
            else "are also active, so each verb needs an id"
        )
        notes.append(f"{', '.join(others[:5])} {said}; end one by: omx-autoresearch experiment cancel ID")
    if state.config.sandbox == "none":
        notes.append("the commands run without a sandbox, with your rights")
    elif state.usage.runs:
        notes.append(f"the commands ran isolated by: {state.isolation}")
    if not state.config.check:
        notes.append("there is no check, so a candidate that breaks the program may be accepted")
    plan = plan_document(state.config, state.calibration, run_seconds) if run_seconds else None
    return ExperimentStartDocument(document, plan, frozen, tuple(notes), False, document.next)


def _print(document: ExperimentStartDocument, state: ExperimentState) -> None:
    if document.experiment is None:
        raise UsageError("nothing was begun", next_step="omx-autoresearch experiment start")
    say(
        f"Experiment {document.experiment.experiment_id} is {phase_words(state, is_at_work=False)}; "
        "your checkout was not touched."
    )
    if document.plan is not None:
        print_plan(document.plan)
    for note in document.notes:
        tell(f"note: {note}", "yellow")
    if document.experiment.phase != "completed":
        say(
            f"  or: an agent changes {document.experiment.workspace_path} and calls `experiment trial`", "dim"
        )
    say(f"  next: {document.next}", "dim")
