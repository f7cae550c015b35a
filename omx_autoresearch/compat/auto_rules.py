"""The older session tools: what stands in ``.auto/log.jsonl``, which run is the best so far, how a run is judged.

The log is shared with other tools that know the layout (pi-autoresearch): a header line ``{"type": "config", "name",
"metricName", "metricUnit", "bestDirection"}`` begins a segment with a best of its own, each run is a line ``{"run",
"status", "metric", "metrics", "commit", "description", "timestamp", "segment"}``, and lines of any other ``type`` are
somebody else's. A reader of ours guesses nothing: an unknown status or a missing value makes a line invalid, and an
invalid line is never the best. Pure.
"""

from __future__ import annotations

import math
from typing import Literal

from omx_autoresearch.experiments.judge.metrics import MetricSpec, spec_faults
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass, field, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, TypeGuard

    from omx_autoresearch.foundation.types import MetricDirection

SessionStatus = Literal["keep", "discard", "crash", "checks_failed"]
"""``keep``: better than the best so far (or the first); ``discard``: not better; ``crash``: there is no value to judge;
``checks_failed``: there is one, of a workspace that is not correct."""

STATUSES: tuple[SessionStatus, ...] = ("keep", "discard", "crash", "checks_failed")
MEASURED, REPORTED = "measured", "reported"
NAME_LIMIT = 200
DESCRIPTION_LIMIT = 4000
METRICS_LIMIT = 200
MEASURE_TIMEOUT_SECONDS = 600.0
CHECKS_TIMEOUT_SECONDS = 300.0
TIMEOUT_LIMIT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The header of a segment.

    Attributes:
        name: what is optimized, for people.
        metric_name: as the benchmark writes it in ``METRIC name=value``.
        metric_unit: shown beside the value.
        direction: which way is better.
        timeout_seconds: of one run of the benchmark.
        checks_timeout_seconds: of one run of the checks.
        max_iterations: runs of the segment; 0 for no limit.
    """

    name: str
    metric_name: str
    metric_unit: str = ""
    direction: MetricDirection = "lower"
    timeout_seconds: float = MEASURE_TIMEOUT_SECONDS
    checks_timeout_seconds: float = CHECKS_TIMEOUT_SECONDS
    max_iterations: int = 0


@dataclass(frozen=True, slots=True)
class SessionRun:
    """One run of the log.

    Attributes:
        run: its number, counting through all segments.
        status: see `SessionStatus`.
        metric: the primary value; None where there is none, which is never the same as 0.
        metrics: secondary values.
        description: what was tried.
        commit: that was checked out; empty outside git and where nobody said.
        timestamp_ms: when it ended, milliseconds since 1970 UTC as the format has it; 0 where unknown.
        segment: number of its header, from 0.
        duration_seconds: of the benchmark.
        reason: why it is no ``keep``; empty for one.
        run_id: by which its starter knows it again; empty for runs of other tools.
        source: ``measured`` by us, or ``reported`` by whoever called.
        isolation: what really isolated the benchmark.
        checks: ``passed`` or ``failed``; empty where none were run.
    """

    run: int
    status: SessionStatus
    metric: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    description: str = ""
    commit: str = ""
    timestamp_ms: int = 0
    segment: int = 0
    duration_seconds: float = 0.0
    reason: str = ""
    run_id: str = ""
    source: str = MEASURED
    isolation: str = ""
    checks: str = ""


@dataclass(frozen=True, slots=True)
class SessionLog:
    """A log, read.

    Attributes:
        config: the newest header; None before the first.
        segment: its number, from 0.
        runs: the valid runs of all segments, in order.
        faults: lines that are not believed: number and cause.
    """

    config: SessionConfig | None = None
    segment: int = 0
    runs: tuple[SessionRun, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def segment_runs(self) -> tuple[SessionRun, ...]:
        """The runs under the newest header."""
        return tuple(run for run in self.runs if run.segment == self.segment)

    @property
    def baseline(self) -> float | None:
        """The first kept value of the segment."""
        return next((run.metric for run in self.segment_runs if run.status == "keep"), None)

    @property
    def best(self) -> float | None:
        """The best kept value of the segment, in its direction; None before the first."""
        kept = [run.metric for run in self.segment_runs if run.status == "keep" and run.metric is not None]
        if not kept:
            return None
        return max(kept) if self.config and self.config.direction == "higher" else min(kept)

    @property
    def next_run(self) -> int:
        """The number of the next run; none is given twice."""
        return max((run.run for run in self.runs), default=0) + 1

    @property
    def is_full(self) -> bool:
        """The segment has as many runs as its header allows."""
        limit = self.config.max_iterations if self.config else 0
        return 0 < limit <= len(self.segment_runs)

    def find(self, run_id: str) -> SessionRun | None:
        """The run that was started under this id."""
        return next((run for run in reversed(self.runs) if run_id and run.run_id == run_id), None)


def read_log(lines: Iterable[tuple[int, Any]]) -> SessionLog:
    """Fold a log.

    Args:
        lines: number and decoded value of each line; a `ValueError` in a value's place says why it has none.
    """
    config: SessionConfig | None = None
    segment, runs, faults = 0, list[SessionRun](), list[str]()
    for number, value in lines:
        try:
            found = _read_line(value, segment)
        except ValueError as fault:
            faults.append(f"line {number}: {fault}")
            continue
        if isinstance(found, SessionConfig):
            config, segment = found, segment + bool(runs)
        elif found is not None:
            runs.append(found)
    return SessionLog(config, segment, tuple(runs), tuple(faults))


def improves(log: SessionLog, metric: float) -> bool:
    """True for a value strictly better than the best so far, or the first of its segment."""
    best = log.best
    if best is None:
        return True
    return metric > best if log.config and log.config.direction == "higher" else metric < best


def judged(log: SessionLog, run: SessionRun) -> SessionRun:
    """The run with the status that its value earns; one that crashed or failed its checks is returned as it is."""
    if run.status not in ("keep", "discard") or run.metric is None:
        return run
    if improves(log, run.metric):
        return replace(run, status="keep", reason="")
    return replace(run, status="discard", reason=f"{run.metric:g} is not better than {log.best:g}")


def config_line(config: SessionConfig) -> dict[str, Any]:
    """The header as a line."""
    return {
        "type": "config",
        "name": config.name,
        "metricName": config.metric_name,
        "metricUnit": config.metric_unit,
        "bestDirection": config.direction,
        "timeoutSeconds": config.timeout_seconds,
        "checksTimeoutSeconds": config.checks_timeout_seconds,
        "maxIterations": config.max_iterations,
    }


def run_line(run: SessionRun) -> dict[str, Any]:
    """A run as a line."""
    return {
        "run": run.run,
        "commit": run.commit,
        "metric": run.metric,
        "metrics": run.metrics,
        "status": run.status,
        "description": run.description,
        "timestamp": run.timestamp_ms,
        "segment": run.segment,
        "durationSeconds": round(run.duration_seconds, 3),
        "reason": run.reason,
        "id": run.run_id,
        "source": run.source,
        "isolation": run.isolation,
        "checks": run.checks,
    }


def spec_of(config: SessionConfig) -> MetricSpec:
    """What is read of the benchmark's output."""
    return MetricSpec(config.metric_name, config.direction, unit=config.metric_unit)


def checked_config(config: SessionConfig) -> SessionConfig:
    """The header, when it can be kept.

    Raises:
        UsageError: says which value cannot, and why.
    """
    for name, text in (
        ("name", config.name),
        ("metric_name", config.metric_name),
        ("metric_unit", config.metric_unit),
    ):
        if len(text) > NAME_LIMIT or any(character in text for character in "\0\n\r"):
            raise _refused(f"{name} is one line of at most {NAME_LIMIT} characters")
        if not text.strip() and name != "metric_unit":
            raise _refused(f"{name} is empty")
    if faults := spec_faults(spec_of(config)):
        raise _refused(faults[0])
    for name, seconds in (
        ("timeout_seconds", config.timeout_seconds),
        ("checks_timeout_seconds", config.checks_timeout_seconds),
    ):
        if not 0 < seconds <= TIMEOUT_LIMIT_SECONDS:
            raise _refused(f"{name} is {seconds:g}; more than 0 and at most a week is needed")
    if config.max_iterations < 0:
        raise _refused("max_iterations is negative; 0 means no limit")
    return config


def checked_description(text: str) -> str:
    """What was tried, in a form that is kept.

    Raises:
        UsageError: empty, too long, or with a NUL.
    """
    if not text.strip():
        raise UsageError("nothing says what was tried", next_step="give a description")
    if len(text) > DESCRIPTION_LIMIT or "\0" in text:
        raise UsageError(
            f"the description has {len(text)} characters; at most {DESCRIPTION_LIMIT} without NUL are kept",
            next_step="shorten it",
        )
    return text


def checked_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """Reported secondary values, when they can be kept.

    Raises:
        UsageError: too many, an unusable name, or a value that is no finite number.
    """
    if len(metrics) > METRICS_LIMIT:
        raise UsageError(
            f"{len(metrics)} secondary metrics; at most {METRICS_LIMIT} are kept", next_step="send fewer"
        )
    for name, value in metrics.items():
        if not name.strip() or len(name) > NAME_LIMIT or not _is_number(value):
            raise UsageError(
                f"{name[:NAME_LIMIT]!r} is no metric with a finite number",
                next_step="send names and finite numbers",
            )
    return metrics


def _refused(why: str) -> UsageError:
    return UsageError(why, next_step="call init_experiment again with another value")


# --- reading one line


def _read_line(value: Any, segment: int) -> SessionConfig | SessionRun | None:
    """What a line is; None for somebody else's.

    Raises:
        ValueError: it cannot be believed.
    """
    if isinstance(value, ValueError):
        raise value
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - a line's fault, as the others
    kind = value.get("type")
    if kind == "config":
        return _read_config(value)
    if "run" not in value or kind not in (None, "run", "result", "experiment"):
        return None
    return _read_run(value, segment)


def _read_config(value: dict[str, Any]) -> SessionConfig:
    direction = value.get("bestDirection", "lower")
    if direction not in ("lower", "higher"):
        raise ValueError(f"bestDirection is {_shown(direction)}; lower or higher is meant")
    name = _text(value, "metricName")
    if not name:
        raise ValueError("metricName is missing")
    return SessionConfig(
        name=_text(value, "name"),
        metric_name=name,
        metric_unit=_text(value, "metricUnit"),
        direction=direction,
        timeout_seconds=_positive(value, "timeoutSeconds", MEASURE_TIMEOUT_SECONDS),
        checks_timeout_seconds=_positive(value, "checksTimeoutSeconds", CHECKS_TIMEOUT_SECONDS),
        max_iterations=int(_positive(value, "maxIterations", 0) or _positive(value, "maxExperiments", 0)),
    )


def _read_run(value: dict[str, Any], segment: int) -> SessionRun:
    number, status, metric = value["run"], value.get("status"), value.get("metric")
    if not _is_number(number) or number != int(number) or number < 0:
        raise ValueError(f"run is {_shown(number)}; a number from 0 is meant")
    if status not in STATUSES:
        raise ValueError(f"status is {_shown(status)}; one of {', '.join(STATUSES)} is meant")
    if metric is not None and not _is_number(metric):
        raise ValueError(f"metric is {_shown(metric)}; a finite number is meant")
    if status in ("keep", "discard") and metric is None:
        raise ValueError(f"{status} without a metric")
    metrics = value.get("metrics")
    is_measured = value.get("source", MEASURED) == MEASURED
    return SessionRun(
        run=int(number),
        status=status,
        metric=None if status == "crash" or metric is None else float(metric),
        metrics={name: float(item) for name, item in metrics.items() if _is_number(item)}
        if isinstance(metrics, dict)
        else {},
        description=_text(value, "description"),
        commit=_text(value, "commit"),
        timestamp_ms=int(value["timestamp"]) if _is_number(value.get("timestamp")) else 0,
        segment=segment,
        duration_seconds=_positive(value, "durationSeconds", 0.0),
        reason=_text(value, "reason"),
        run_id=_text(value, "id"),
        source=MEASURED if is_measured else REPORTED,
        isolation=_text(value, "isolation"),
        checks=_text(value, "checks"),
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _positive(value: dict[str, Any], key: str, otherwise: float) -> float:
    found = value.get(key)
    return float(found) if _is_number(found) and 0 < found <= TIMEOUT_LIMIT_SECONDS else otherwise


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:40]
