"""From words to an experiment's configuration: options of a call, or the ``experiment:`` block of a sandbox.md.

Both have the same names and the same meaning; an option that is given stands before the block. Every fault is told at
once, with its field (and its line in a file), what was received and what counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, rule_faults
from omx_autoresearch.experiments.judge.decision import guard_faults
from omx_autoresearch.experiments.judge.metrics import Guard, MetricSpec, spec_faults
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentLimits,
    Isolation,
    Reverification,
)
from omx_autoresearch.foundation.errors import MissionInvalid, UsageError
from omx_autoresearch.foundation.input_validation import Fault, refusal, validated
from omx_autoresearch.foundation.metric_texts import LARGEST, name_faults
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.foundation.types import MetricDirection, MetricSource
from omx_autoresearch.freezing.manifest import glob_faults
from omx_autoresearch.journal.safe_files import read_bounded
from omx_autoresearch.missions import intake

BLOCK = "experiment"
"""The key of sandbox.md's frontmatter."""
SOURCES: tuple[MetricSource, ...] = ("line", "wall", "cpu", "memory", "exit")
UNITS = {"wall": "s", "cpu": "s", "memory": "B"}
"""The units of metrics that the runtime itself measures."""
_SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_BOUND = re.compile(rf"(?P<name>[^<>=]+?)\s*(?P<sign><=|>=)\s*(?P<value>{_NUMBER})")
_REGRESSION = re.compile(rf"(?P<name>.+):\s*(?P<value>[-+]{_NUMBER[5:]})\s*(?P<percent>%?)")
_SHARE = re.compile(rf"({_NUMBER})\s*(%?)")
_SECONDS_PER_HOUR = 3600.0
_WEEK_SECONDS = 7 * 86400.0
_RANGES: dict[str, tuple[float, float]] = {
    "measure_timeout_seconds": (0.001, _WEEK_SECONDS),
    "check_timeout_seconds": (0.0, _WEEK_SECONDS),
    "hypothesis_timeout_seconds": (0.0, _WEEK_SECONDS),
    "calibration_pairs": (2, 1000),
    "claim_pairs": (2, 1000),
}
"""The smallest and the largest value that is taken; whole numbers where they are written as such."""
_LIMIT_RANGES: dict[str, tuple[float, float]] = {
    "trials": (0, 1_000_000),
    "wall_seconds": (0.0, 366 * 86400.0),
    "cost_usd": (0.0, 1e9),
    "disk_bytes": (0, 2**63),
    "runs": (0, 10**9),
}
_PAGE_NAMES = {
    "limits.trials": "budget_trials",
    "limits.wall_seconds": "budget_hours",
    "limits.cost_usd": "budget_cost",
    "limits.disk_bytes": "budget_disk",
    "limits.runs": "budget_runs",
    "measure_timeout_seconds": "timeout",
    "check_timeout_seconds": "check_timeout",
    "hypothesis_timeout_seconds": "agent_timeout",
    "guards": "guard",
}
"""Fields of the configuration that a page calls by another name."""
NAME_LIMIT = 200
COMMAND_LIMIT = 20_000
LEAST_CALIBRATION_PAIRS = 2
LEAST_TRIAL_PAIRS = 2
"""Of a candidate whose values repeat exactly, as the base's do."""

_START = "experiment start"

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class ExperimentPage:
    """An experiment as people write it; the names are those of the options of ``experiment start``.

    Attributes:
        metric: its name; of the line ``METRIC name=value`` where it comes from one.
        name: of the experiment; the metric's where none is given.
        direction: which way is better.
        unit: of the metric, for people.
        source: ``line wall cpu memory exit`` or ``json:PATH``.
        measure: the command that measures.
        check: the command that says whether a candidate is still correct.
        setup: run in a worktree whose tree changed, before anything is measured there.
        reset_caches: run before each measured run.
        held_out: a check that no agent is shown.
        work: globs of what a candidate is to change; what else the frozen files read is frozen. In a sandbox.md it
            stands beside the block, where the mission has it.
        protect: globs of further files that no candidate may touch.
        guard: ``name<=bound``, ``name>=bound``, ``name:+5%`` (may rise by 5 %), ``name:-5%`` (may fall by 5 %).
        env: variables of every command.
        keep: ignored paths that ``setup`` makes and a restoration leaves alone.
        link: ignored paths of the checkout that each worktree sees.
        rule: ``hybrid`` or ``median``.
        alpha: the chance of accepting a candidate without effect.
        max_pairs: after which ``hybrid`` decides.
        min_effect: a number, or ``2%``.
        scale: ``auto``, ``ratio`` or ``difference``.
        runs: that ``median`` judges.
        warmups: discarded runs.
        calibration_pairs: A/A pairs at the baseline.
        claim_pairs: of base against final.
        budget_trials: hypotheses.
        budget_hours: of work.
        budget_cost: US dollars that the agents report.
        budget_runs: measured runs.
        budget_disk: bytes, or ``2GiB``.
        target: value of the metric at which the experiment ends.
        timeout: seconds of one measured run.
        check_timeout: seconds of one check or set-up; 0 for that of a measured run.
        agent_timeout: seconds of one agent session.
        reverification: ``auto``, ``on`` or ``off``: judge an accepted candidate once more on fresh pairs.
        sandbox: ``none``, ``auto`` or ``bubblewrap``.
        seed: of the order within pairs.
    """

    metric: str = ""
    name: str = ""
    direction: MetricDirection = "lower"
    unit: str = ""
    source: str = "line"
    measure: str = ""
    check: str = ""
    setup: str = ""
    reset_caches: str = ""
    held_out: str = ""
    work: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    guard: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    rule: Literal["hybrid", "median"] = "hybrid"
    alpha: float = 0.01
    max_pairs: int = 30
    min_effect: float | str = 0.0
    scale: Literal["auto", "ratio", "difference"] = "auto"
    runs: int = 5
    warmups: int = 1
    calibration_pairs: int = 15
    claim_pairs: int = 30
    budget_trials: int = 40
    budget_hours: float = 0.0
    budget_cost: float = 0.0
    budget_runs: int = 0
    budget_disk: int | str = 0
    target: float | None = None
    timeout: float = 600.0
    check_timeout: float = 0.0
    agent_timeout: float = 3600.0
    reverification: Reverification = "auto"
    sandbox: Isolation = "none"
    seed: int = 0


def configure(options: Mapping[str, Any], *, block: Mapping[str, Any] | None = None) -> ExperimentConfig:
    """The configuration that options, and the block of a file, add up to.

    Args:
        options: by the names of `ExperimentPage`; only those that were given.
        block: of a file, as :func:`read_block` gives it.

    Raises:
        UsageError: an option is off, or something is missing that neither gives.
    """
    block = block or {}
    values = {**block, **{name: to_plain(value) for name, value in options.items()}}
    page = validated(ExperimentPage, values, where=_START, error=UsageError)
    config, faults = _read(page)
    if values.get("budget_cost") == 0:
        faults.append(Fault("budget_cost", "0", "must be above 0; leave it out for no limit"))
    if 0 < page.budget_runs < (least := _least_runs(page)):
        needed = (
            f"must be {least} or more, or 0 for no limit: calibration and one accepted trial take {least}"
        )
        faults.append(Fault("budget_runs", str(page.budget_runs), needed))
    if faults:
        in_file = block.keys() - options.keys()
        named = [fault if fault.field in in_file else _as_option(fault) for fault in faults]
        raise UsageError(refusal(_START, named), next_step="omx-autoresearch experiment start --help")
    return config


def read_block(path: str) -> dict[str, Any]:
    """The ``experiment:`` block of a file with frontmatter, with the ``work`` of its mission.

    Raises:
        MissionInvalid: the file is missing, or what it says cannot stand.
    """
    try:
        data = read_bounded(path, intake.LIMIT_BYTES)
    except FileNotFoundError:
        raise MissionInvalid(f"{path} is missing", next_step="omx-autoresearch experiment start") from None
    page = intake.parse(data, where=path)
    block = page.values.get(BLOCK)
    work = {"work": page.values["work"]} if page.values.get("work") else {}
    if block is None:
        return work
    lines = {place[1:]: line for place, line in page.lines.items() if place[:1] == (BLOCK,)}
    _, faults = _read(validated(ExperimentPage, block, where=f"{path}, {BLOCK}", lines=lines))
    # What the block leaves out may come from an option.
    if faults := [fault for fault in faults if fault.field.partition(".")[0] in block]:
        raise MissionInvalid(refusal(f"{path}, {BLOCK}", faults), next_step=f"fix {path}, then start again")
    return {**work, **block}


def _as_option(fault: Fault) -> Fault:
    """By the option that a person types: ``--budget-trials`` for ``budget_trials``, ``--env NAME`` for ``env.NAME``."""
    head, _, rest = fault.field.partition(".")
    return replace(fault, field=f"--{head.replace('_', '-')} {rest}".rstrip())


def _least_runs(page: ExperimentPage) -> int:
    """Measured runs of the shortest calibration and of one accepted trial behind it."""
    pairs = page.runs if page.rule == "median" else LEAST_TRIAL_PAIRS
    calibration = 2 * page.warmups + 2 * LEAST_CALIBRATION_PAIRS
    is_judged_again = page.reverification == "on" or (page.reverification == "auto" and page.rule != "median")
    return calibration + (2 * page.warmups + 2 * pairs) * (2 if is_judged_again else 1)


# --- parts


def guard_of(text: str) -> Guard:
    """Read ``name<=bound``, ``name>=bound``, ``name:+5%``, ``name:-5%``, ``name:+5``.

    Raises:
        ValueError: it is not one of these forms; the message lists them.
    """
    if found := _BOUND.fullmatch(text.strip()):
        direction: MetricDirection = "lower" if found["sign"] == "<=" else "higher"
        return Guard(_named(found["name"]), bound=float(found["value"]), direction=direction)
    if found := _REGRESSION.fullmatch(text.strip()):
        value = float(found["value"])
        direction = "lower" if found["value"].startswith("+") else "higher"
        if found["percent"]:
            return Guard(_named(found["name"]), max_regression_percent=abs(value), direction=direction)
        return Guard(_named(found["name"]), max_regression=abs(value), direction=direction)
    raise ValueError(
        f"a guard is `name<=bound`, `name>=bound`, `name:+5%` or `name:-5%`, received {text[:80]!r}"
    )


def _named(name: str) -> str:
    name = name.strip()
    if faults := name_faults(name):
        raise ValueError(faults[0])
    return name


def size_of(value: int | str) -> int:
    """Bytes, from a whole number or a text such as ``500MB`` or ``2GiB`` (both binary).

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, int):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"a size is bytes, or a number with K, M, G or T, received {value[:80]!r}")
    return int(float(found[1]) * _SIZES[found[2].lower()])


def share_of(value: float | str) -> float:
    """A number, from one or from a text such as ``2%`` (0.02).

    Raises:
        ValueError: it is neither.
    """
    if not isinstance(value, str):
        return float(value)
    found = _SHARE.fullmatch(value.strip())
    if found is None:
        raise ValueError(f"a number, or a share such as 2%, is required, received {value[:80]!r}")
    return float(found[1]) / 100 if found[2] else float(found[1])


def metric_of(page: ExperimentPage) -> MetricSpec:
    """What is measured.

    Raises:
        ValueError: there is no such source.
    """
    kind, _, path = page.source.partition(":")
    if kind == "json":
        return MetricSpec(page.metric, page.direction, "json", page.unit, path)
    for source in SOURCES:
        if page.source == source:
            return MetricSpec(page.metric, page.direction, source, page.unit or UNITS.get(source, ""))
    raise ValueError(
        f"a source must be one of {', '.join(SOURCES)} or json:PATH, received {page.source[:80]!r}"
    )


# --- the whole


def _read(page: ExperimentPage) -> tuple[ExperimentConfig, list[Fault]]:
    """The configuration that a page means, and everything that is wrong with it, by the names of the page."""
    faults: list[Fault] = []

    def read(name: str, reader: Callable[[], Value], otherwise: Value) -> Value:
        try:
            return reader()
        except (ValueError, UsageError) as error:
            faults.append(Fault(name, "", str(error)))
            return otherwise

    metric = read("source", lambda: metric_of(page), MetricSpec(page.metric, page.direction))
    guards: list[Guard] = []
    for text in page.guard:
        read("guard", lambda text=text: guards.append(guard_of(text)), None)  # type: ignore[misc]
    least = read("min_effect", lambda: share_of(page.min_effect), 0.0)
    config = ExperimentConfig(
        name=page.name or page.metric,
        metric=metric,
        measure=page.measure,
        check=page.check,
        setup=page.setup,
        reset_caches=page.reset_caches,
        held_out=os.path.abspath(os.path.expanduser(page.held_out)) if page.held_out else "",
        work=page.work,
        protect=page.protect,
        guards=tuple(guards),
        env=dict(page.env),
        keep=tuple(map(_plain_path, page.keep)),
        link=tuple(map(_plain_path, page.link)),
        rule=read("rule", lambda: _rule(page, least), AcceptanceRule(direction=page.direction)),
        limits=ExperimentLimits(
            trials=page.budget_trials,
            wall_seconds=page.budget_hours * _SECONDS_PER_HOUR,
            cost_usd=page.budget_cost,
            disk_bytes=read("budget_disk", lambda: size_of(page.budget_disk), 0),
            runs=page.budget_runs,
        ),
        target=page.target,
        calibration_pairs=page.calibration_pairs,
        claim_pairs=page.claim_pairs,
        measure_timeout_seconds=page.timeout,
        check_timeout_seconds=page.check_timeout,
        hypothesis_timeout_seconds=page.agent_timeout,
        reverification=page.reverification,
        sandbox=page.sandbox,
        seed=page.seed,
    )
    faults += [
        replace(fault, field=_PAGE_NAMES.get(fault.field, fault.field)) for fault in config_faults(config)
    ]
    # What can be read and cannot be meant:
    if "%" in str(page.min_effect) and page.direction == "lower" and least >= 1.0:
        faults.append(Fault("min_effect", str(page.min_effect), "a value cannot fall by more than 100 %"))
    if page.unit and (unit := UNITS.get(page.source, page.unit)) != page.unit:
        faults.append(Fault("unit", page.unit, f"the source {page.source} is in {unit}; leave the unit out"))
    if any(guard.name == page.metric for guard in guards):
        said = f"{page.metric} is the metric itself, which is always judged; a guard limits another one"
        faults.append(Fault("guard", "", said))
    return config, faults


def _rule(page: ExperimentPage, min_effect: float) -> AcceptanceRule:
    return AcceptanceRule(
        name=page.rule,
        alpha=page.alpha,
        max_pairs=page.max_pairs,
        min_effect=min_effect,
        direction=page.direction,
        scale=page.scale,
        runs=page.runs,
        warmups=page.warmups,
    )


def _plain_path(path: str) -> str:
    """Without the slash at the end that a shell completes, and the `./` in front."""
    return path.removeprefix("./").rstrip("/") or path


# --- whether an experiment can run as configured; every fault is reported at once


def checked_config(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration as it is run: the rule judges in the direction of the metric.

    Raises:
        MissionInvalid: it cannot be run; the message names every fault.
    """
    if faults := config_faults(config):
        raise MissionInvalid(
            f"the configuration of the experiment is not valid: {'; '.join(map(str, faults))}",
            next_step="fix the configuration, then start again",
        )
    return replace(config, rule=replace(config.rule, direction=config.metric.direction))


def config_faults(config: ExperimentConfig) -> list[Fault]:
    """Every fault of a configuration, by its own names."""
    return [
        *_text_faults(config),
        *(Fault("metric", "", fault) for fault in spec_faults(config.metric)),
        *(Fault("guards", "", fault) for guard in config.guards for fault in guard_faults(guard)),
        *(Fault("rule", "", fault) for fault in rule_faults(config.rule)),
        *_range_faults(config, _RANGES),
        *limit_faults(config.limits),
        *_range_faults(config, {} if config.target is None else {"target": (-LARGEST, LARGEST)}),
    ]


def limit_faults(limits: ExperimentLimits) -> list[Fault]:
    """Every fault of limits; 0 is no limit."""
    return [replace(fault, field=f"limits.{fault.field}") for fault in _range_faults(limits, _LIMIT_RANGES)]


def _range_faults(place: object, ranges: Mapping[str, tuple[float, float]]) -> Iterator[Fault]:
    for name, (low, high) in ranges.items():
        value: Any = getattr(place, name)
        is_whole = isinstance(low, int)
        is_number = type(value) is int or (type(value) is float and not is_whole)
        if not is_number or not low <= value <= high:  # false for NaN, too
            what = "a whole number" if is_whole else "a number"
            yield Fault(name, repr(value)[:80], f"must be {what} from {low:g} to {high:g}")


def _text_faults(config: ExperimentConfig) -> Iterator[Fault]:
    if not config.name.strip() or len(config.name) > NAME_LIMIT:
        yield Fault("name", "", f"must be text of 1 to {NAME_LIMIT} characters")
    empty = [name for name in ("measure", "check") if not getattr(config, name).strip()]
    yield from (Fault(name, "", "no shell command is given") for name in empty)
    for name in ("name", "measure", "check", "setup", "reset_caches", "held_out"):
        text = getattr(config, name)
        if "\0" in text:
            yield Fault(name, "", "it holds a NUL character")
        if len(text) > COMMAND_LIMIT:
            yield Fault(name, "", f"{len(text)} characters; at most {COMMAND_LIMIT} are allowed")
    for name, value in config.env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            yield Fault(
                f"env.{name[:80]}", "", "a variable's name has only A-Z, 0-9 and _, and its value has no NUL"
            )
    for name in ("work", "protect"):
        yield from (
            Fault(name, "", fault.partition(": ")[2])
            for glob in getattr(config, name)
            for fault in glob_faults(glob)
        )
    for name in ("keep", "link"):
        outside = [path for path in getattr(config, name) if not _is_inside(path)]
        yield from (Fault(name, "", f"{path[:80]!r} is not a path inside the repository") for path in outside)


def _is_inside(path: str) -> bool:
    parts = path.rstrip("/").split("/")
    return parts[0] != "" and parts != ["."] and "\0" not in path and not {"..", ".git"} & set(parts)
