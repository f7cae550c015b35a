"""Whether an experiment can be run as it is configured; every fault is told at once."""

from __future__ import annotations

from omx_autoresearch.core.acceptance_rules import check_rule
from omx_autoresearch.core.experiment_budget import limit_faults
from omx_autoresearch.core.guards import guard_faults
from omx_autoresearch.core.metrics import spec_faults
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import MissionInvalid, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentConfig

NAME_LIMIT = 200
COMMAND_LIMIT = 20_000
PAIR_LIMIT = 1000

_ENDLESS = float("inf")


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
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -_ENDLESS < value < _ENDLESS
