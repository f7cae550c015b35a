"""From words to an experiment's configuration: options of a call, or the ``experiment:`` block of a sandbox.md.

Both have the same names and the same meaning; an option that is given stands before the block. Every fault is told at
once, with its field (and its line in a file), what was received and what counts.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from omx_autoresearch.experiments.judge.calibration import AcceptanceRule, check_rule
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
from omx_autoresearch.foundation.metric_texts import name_faults
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.foundation.types import MetricDirection, MetricSource
from omx_autoresearch.journal.safe_files import read_bounded
from omx_autoresearch.missions import intake

BLOCK = "experiment"
"""The key of sandbox.md's frontmatter."""
SOURCES: tuple[MetricSource, ...] = ("line", "wall", "cpu", "memory", "exit")
UNITS = {"wall": "s", "cpu": "s", "memory": "B"}
"""Of what is seen from outside."""
_SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_BOUND = re.compile(rf"(?P<name>[^<>=]+?)\s*(?P<sign><=|>=)\s*(?P<value>{_NUMBER})")
_REGRESSION = re.compile(rf"(?P<name>.+):\s*(?P<value>[-+]{_NUMBER[5:]})\s*(?P<percent>%?)")
_SHARE = re.compile(rf"({_NUMBER})\s*(%?)")
_SECONDS_PER_HOUR = 3600.0
_WEEK_SECONDS = 7 * 86400.0
_RANGES: dict[str, tuple[float, float]] = {
    "budget_trials": (0, 1_000_000),
    "budget_hours": (0, 24 * 366),
    "budget_cost": (0, 1e9),
    "budget_runs": (0, 10**9),
    "timeout": (0.001, _WEEK_SECONDS),
    "check_timeout": (0, _WEEK_SECONDS),
    "agent_timeout": (0, _WEEK_SECONDS),
    "calibration_pairs": (2, 200),
    "claim_pairs": (1, 200),
}
"""The smallest and the largest value that is taken."""


@dataclass(frozen=True, slots=True)
class ExperimentPage:
    """What people write of an experiment; the names are those of the options of ``experiment start``.

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


def configure(
    options: Mapping[str, Any], *, page_path: str = "", where: str = "experiment start"
) -> ExperimentConfig:
    """The configuration that options, and the block of a file, add up to.

    Args:
        options: by the names of `ExperimentPage`; only those that were given.
        page_path: a file whose frontmatter may have the block; empty for none.
        where: names the caller for people.

    Raises:
        UsageError: an option is off, or something is missing that neither gives.
        MissionInvalid: the block is off.
    """
    block = read_block(page_path) if page_path else {}
    values = {**block, **{name: to_plain(value) for name, value in options.items()}}
    page = validated(ExperimentPage, values, where=where, error=UsageError)
    least = least_runs(page.rule, page.runs, page.warmups, page.reverification)
    if faults := [*_faults(page), *budget_faults(values, page.budget_runs, least)]:
        faults = as_options(faults, block.keys() - options.keys())
        raise UsageError(refusal(where, faults), next_step="omx-autoresearch experiment start --help")
    return _config(page)


def read_block(path: str) -> dict[str, Any]:
    """The ``experiment:`` block of a file with frontmatter; empty where it has none.

    Raises:
        MissionInvalid: the file is missing, or what it says cannot stand.
    """
    try:
        data = read_bounded(path, intake.LIMIT_BYTES)
    except FileNotFoundError:
        raise MissionInvalid(f"{path} is missing", next_step="omx-autoresearch experiment start") from None
    page = intake.parse(data, where=path)
    block = page.values.get(BLOCK)
    if block is None:
        return {}
    lines = {place[1:]: line for place, line in page.lines.items() if place[:1] == (BLOCK,)}
    checked = validated(ExperimentPage, block, where=f"{path}, {BLOCK}", lines=lines)
    if faults := _faults(checked, is_whole=False):
        raise MissionInvalid(refusal(f"{path}, {BLOCK}", faults), next_step=f"mend {path}, then start again")
    return dict(block)


# --- parts


def guard_of(text: str) -> Guard:
    """Read ``name<=bound``, ``name>=bound``, ``name:+5%``, ``name:-5%``, ``name:+5``.

    Raises:
        ValueError: it is none of these; says what counts.
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
        raise ValueError(f"a number, or a share such as 2%, is needed, received {value[:80]!r}")
    return float(found[1]) / 100 if found[2] else float(found[1])


def metric_of(page: ExperimentPage) -> MetricSpec:
    """What is measured.

    Raises:
        ValueError: the source is none.
    """
    kind, _, path = page.source.partition(":")
    if kind == "json":
        return MetricSpec(page.metric, page.direction, "json", page.unit, path)
    for source in SOURCES:
        if page.source == source:
            return MetricSpec(page.metric, page.direction, source, page.unit or UNITS.get(source, ""))
    raise ValueError(f"a source is one of {', '.join(SOURCES)} or json:PATH, received {page.source[:80]!r}")


# --- the whole


def _faults(page: ExperimentPage, *, is_whole: bool = True) -> list[Fault]:
    found = [Fault(name, "", "it is needed") for name in _missing(page) if is_whole]
    for name, read, values in (
        ("guard", guard_of, page.guard),
        ("budget_disk", size_of, (page.budget_disk,)),
        ("min_effect", share_of, (page.min_effect,)),
    ):
        faults = (_fault_of(read, value) for value in values)
        found += [Fault(name, "", fault) for fault in faults if fault]
    found += _metric_faults(page)
    found += _sense_faults(page)
    found += [
        Fault(name, f"{getattr(page, name):g}", f"must be from {low:g} to {high:g}")
        for name, (low, high) in _RANGES.items()
        if not low <= getattr(page, name) <= high
    ]
    found += [
        Fault(f"env.{name}", "", "a variable is named A-Z, 0-9 and _, and holds no NUL")
        for name, value in page.env.items()
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value
    ]
    found += [
        Fault(name, "", "it holds a NUL character")
        for name in ("measure", "check", "setup", "reset_caches", "held_out")
        if "\0" in getattr(page, name)
    ]
    return found


def _sense_faults(page: ExperimentPage) -> list[Fault]:
    """What can be read and cannot be meant."""
    found = []
    share = str(page.min_effect)
    if (
        "%" in share
        and page.direction == "lower"
        and not _fault_of(share_of, share)
        and share_of(share) >= 1.0
    ):
        found.append(Fault("min_effect", share, "nothing falls by more than 100 %"))
    if page.unit and (unit := UNITS.get(page.source, page.unit)) != page.unit:
        found.append(Fault("unit", page.unit, f"the source {page.source} is in {unit}; leave the unit out"))
    if any(not _fault_of(guard_of, text) and guard_of(text).name == page.metric for text in page.guard):
        said = f"{page.metric} is the metric itself, which is judged anyway; a guard is about another one"
        found.append(Fault("guard", "", said))
    return found


def _missing(page: ExperimentPage) -> list[str]:
    return [name for name in ("metric", "measure") if not getattr(page, name).strip()]


def _metric_faults(page: ExperimentPage) -> list[Fault]:
    if not page.metric:
        return []
    try:
        return [Fault("metric", "", text) for text in spec_faults(metric_of(page))]
    except ValueError as error:
        return [Fault("source", "", str(error))]


def _fault_of(read: Any, value: Any) -> str:
    try:
        read(value)
    except ValueError as error:
        return str(error)
    return ""


def _config(page: ExperimentPage) -> ExperimentConfig:
    """The configuration of a page without faults.

    Raises:
        UsageError: the acceptance rule cannot be followed.
    """
    return ExperimentConfig(
        name=page.name or page.metric,
        metric=metric_of(page),
        measure=page.measure,
        check=page.check,
        setup=page.setup,
        reset_caches=page.reset_caches,
        held_out=os.path.abspath(os.path.expanduser(page.held_out)) if page.held_out else "",
        protect=page.protect,
        guards=tuple(guard_of(text) for text in page.guard),
        env=dict(page.env),
        keep=tuple(map(_plain_path, page.keep)),
        link=tuple(map(_plain_path, page.link)),
        rule=_rule(page),
        limits=_limits(page),
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


def _plain_path(path: str) -> str:
    """Without the slash at the end that a shell completes, and the `./` in front."""
    return path.removeprefix("./").rstrip("/") or path


def _rule(page: ExperimentPage) -> AcceptanceRule:
    return AcceptanceRule(
        name=page.rule,
        alpha=page.alpha,
        max_pairs=page.max_pairs,
        min_effect=share_of(page.min_effect),
        direction=page.direction,
        scale=page.scale,
        runs=page.runs,
        warmups=page.warmups,
    )


def _limits(page: ExperimentPage) -> ExperimentLimits:
    return ExperimentLimits(
        trials=page.budget_trials,
        wall_seconds=page.budget_hours * _SECONDS_PER_HOUR,
        cost_usd=page.budget_cost,
        disk_bytes=size_of(page.budget_disk),
        runs=page.budget_runs,
    )


# --- budgets that cannot be meant

# Budgets that can be read and cannot be meant, and how a fault names what a person typed. Pure.


LEAST_CALIBRATION_PAIRS = 2
LEAST_TRIAL_PAIRS = 2
"""Of a candidate whose values repeat exactly, as the base's do."""


def least_runs(rule: str, runs: int, warmups: int, reverification: str) -> int:
    """Measured runs of the shortest calibration and of one accepted trial behind it.

    Args:
        rule: ``hybrid`` or ``median``.
        runs: that ``median`` judges, of each arm.
        warmups: discarded runs after a change of files.
        reverification: ``auto``, ``on`` or ``off``; a second judgement measures both arms once more.
    """
    pairs = runs if rule == "median" else LEAST_TRIAL_PAIRS
    calibration = 2 * warmups + 2 * LEAST_CALIBRATION_PAIRS
    is_judged_again = reverification == "on" or (reverification == "auto" and rule != "median")
    return calibration + (2 * warmups + 2 * pairs) * (2 if is_judged_again else 1)


def budget_faults(values: Mapping[str, object], budget_runs: int, least: int) -> list[Fault]:
    """What is wrong with budgets of a whole configuration.

    Args:
        values: what somebody wrote, by name; a default stands in none of it.
        budget_runs: measured runs; 0 for no limit.
        least: that one trial takes, as `least_runs`.
    """
    found = []
    cost = values.get("budget_cost")
    if isinstance(cost, (int, float)) and cost == 0:
        found.append(Fault("budget_cost", "0", "must be above 0; leave it out for no limit"))
    if 0 < budget_runs < least:
        needed = (
            f"must be {least} or more, or 0 for no limit: calibration and one accepted trial take as many"
        )
        found.append(Fault("budget_runs", str(budget_runs), needed))
    return found


def as_options(faults: list[Fault], in_file: Container[str]) -> list[Fault]:
    """The faults, each by the option that a person types, but for what a file says.

    Args:
        faults: by the names of the configuration.
        in_file: the names that come from a file.
    """
    return [
        fault if fault.field in in_file else dataclasses.replace(fault, field=_option(fault.field))
        for fault in faults
    ]


def _option(name: str) -> str:
    """``budget_trials`` is ``--budget-trials``, ``env.NAME`` is ``--env NAME``."""
    head, _, rest = name.partition(".")
    return f"--{head.replace('_', '-')} {rest}".rstrip()


def limit_faults(limits: ExperimentLimits) -> tuple[str, ...]:
    """What is wrong with limits, a sentence each; empty where nothing is. 0 is no limit."""
    faults = []
    for known in fields(limits):
        value = getattr(limits, known.name)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            faults.append(
                f"limits.{known.name}: a finite number that is not negative is needed (0 for none), "
                f"received {repr(value)[:80]}"
            )
    return tuple(faults)


# --- Whether an experiment can be run as it is configured; every fault is told at once.

NAME_LIMIT = 200
COMMAND_LIMIT = 20_000
PAIR_LIMIT = 1000


def checked_config(config: ExperimentConfig) -> ExperimentConfig:
    """The configuration as it is run: the rule judges in the direction of the metric.

    Raises:
        MissionInvalid: it cannot be run; the message names every fault.
    """
    faults = config_faults(config)
    if faults:
        raise MissionInvalid(
            f"the experiment cannot be run as it is configured: {'; '.join(faults)}",
            next_step="mend the configuration and start again",
        )
    return replace(config, rule=replace(config.rule, direction=config.metric.direction))


def config_faults(config: ExperimentConfig) -> tuple[str, ...]:
    """What is wrong, a sentence each; empty where nothing is."""
    return (
        *_text_faults(config),
        *spec_faults(config.metric),
        *(fault for guard in config.guards for fault in guard_faults(guard)),
        *_rule_faults(config),
        *limit_faults(config.limits),
        *_number_faults(config),
    )


def _text_faults(config: ExperimentConfig) -> list[str]:
    faults = []
    if not config.name.strip() or len(config.name) > NAME_LIMIT:
        faults.append(f"name: a text of 1 to {NAME_LIMIT} characters is needed")
    faults += [
        f"{name}: a shell command is needed"
        for name in ("measure", "check")
        if not getattr(config, name).strip()
    ]
    for name in ("name", "measure", "check", "setup", "reset_caches", "held_out"):
        text = getattr(config, name)
        if "\0" in text:
            faults.append(f"{name}: it holds a NUL character")
        if len(text) > COMMAND_LIMIT:
            faults.append(f"{name}: {len(text)} characters; at most {COMMAND_LIMIT} are taken")
    for name, value in config.env.items():
        if not name or "=" in name or "\0" in name + value:
            faults.append(f"env: {name[:80]!r} is no name of a variable, or its value holds a NUL character")
    for name in ("keep", "link"):
        faults += [f"{name}: {fault}" for path in getattr(config, name) if (fault := _path_fault(path))]
    return faults


def _path_fault(path: str) -> str:
    parts = path.rstrip("/").split("/")
    if not path or path.startswith("/") or "\0" in path or ".." in parts or ".git" in parts or parts == ["."]:
        return f"{path[:80]!r} is no path within the repository"
    return ""


def _rule_faults(config: ExperimentConfig) -> list[str]:
    try:
        check_rule(config.rule)
    except UsageError as error:
        return [error.message]
    return []


def _number_faults(config: ExperimentConfig) -> list[str]:
    faults = []
    for name in ("calibration_pairs", "claim_pairs"):
        value = getattr(config, name)
        if type(value) is not int or not 2 <= value <= PAIR_LIMIT:
            faults.append(f"{name}: a whole number from 2 to {PAIR_LIMIT} is needed, received {value!r}")
    seconds = config.measure_timeout_seconds
    if not _is_finite(seconds) or seconds <= 0:
        faults.append(f"measure_timeout_seconds: a finite number above 0 is needed, received {seconds!r}")
    faults += [
        f"{name}: a finite number from 0 on is needed, received {getattr(config, name)!r}"
        for name in ("check_timeout_seconds", "hypothesis_timeout_seconds")
        if not _is_finite(getattr(config, name)) or getattr(config, name) < 0
    ]
    if config.target is not None and not _is_finite(config.target):
        faults.append(f"target: a finite number is needed, received {config.target!r}")
    return faults


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
