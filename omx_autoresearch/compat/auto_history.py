"""A log of pi-autoresearch or of the older session tools as experiments, for status, plot and report.

Each header begins a session, and each session becomes the state of an experiment. An invalid line is reported by its
number and ignored, and the file is never written. Fields that such a log cannot fill stay empty: no pairs were
interleaved, so there is no interval, no claim, and no number to quote.

A crash or a failed check has no value here, whatever number is in its line. A kept run that was no better than the best
before it is shown as accepted, but adds no step.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from omx_autoresearch.compat.auto_log import SessionConfig, SessionRun, line_of, lines_of, read_log
from omx_autoresearch.experiments.judge.calibration import AcceptanceRule
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentLimits,
    ExperimentState,
    ExperimentUsage,
    TrialRow,
    TrialStatus,
)
from omx_autoresearch.experiments.judge.summary import KEPT_WITHOUT_GAIN, LOGGED_BASELINE
from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.journal.safe_files import read_bounded

LOG_NAMES = (os.path.join(".auto", "log.jsonl"), "autoresearch.jsonl")
"""The paths of such a log in a project: the present one, and the older one."""
FILE_LIMIT_BYTES = 256 * 1024 * 1024
_OWN_KEYS = {"type", *line_of(SessionRun(0, "keep"))} - {"source", "isolation", "checks"}
_ENDINGS: dict[str, tuple[TrialStatus, str]] = {
    "keep": ("accepted", "improved"),
    "discard": ("rejected", "discarded"),
    "crash": ("failed", "crash"),
    "checks_failed": ("rejected", "check_failed"),
}
_EARLIEST_MS, _LATEST_MS = 100_000_000_000, 253_402_300_799_000
"""1973 and 9999. Some logs have seconds, which are all below the first bound."""


@dataclass(frozen=True, slots=True)
class AutoLog:
    """The valid part of a log.

    Attributes:
        path: of the file.
        sessions: one state for each header that has a run, oldest first.
        faults: the ignored lines, each with its number and cause.
        notes: doubts about lines that count.
    """

    path: str
    sessions: tuple[ExperimentState, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """A caveat for plot and report."""
        count = len(self.faults)
        left_out = f"; {count_of(count, 'invalid line was', 'invalid lines were')} ignored" if count else ""
        return f"Read from {self.path}: this runtime measured, checked and isolated none of it{left_out}."


@dataclass(frozen=True, slots=True)
class _Session:
    config: SessionConfig
    runs: list[tuple[SessionRun, dict[str, Any]]] = field(default_factory=list)


def find_auto_log(project_path: str) -> str:
    """The log of a project; the path of a file is the log itself.

    Raises:
        UsageError: there is none.
    """
    if os.path.isfile(project_path):
        return project_path
    for name in LOG_NAMES:
        path = os.path.join(project_path, name)
        if os.path.isfile(path):
            return path
    raise UsageError(
        f"{project_path} has no {' and no '.join(LOG_NAMES)}",
        next_step="give the path of the log, or of the project that has it",
    )


def read_auto_log(path: str) -> AutoLog:
    """Read a log, by its path or that of its project.

    Raises:
        UsageError: there is no such file.
        StateUntrusted: it is too large, or not a regular file.
        StorageFailed: the system refused.
    """
    path = find_auto_log(path)
    sessions, faults, notes = [_Session(SessionConfig(metric_name="metric"))], list[str](), list[str]()
    for number, value in lines_of(read_bounded(path, FILE_LIMIT_BYTES)):
        read = read_log([(number, value)])
        faults += read.faults
        if read.config is not None:
            sessions.append(_Session(read.config))
        for run in read.runs:
            known = sessions[-1].runs
            if known and run.run <= known[-1][0].run:
                notes.append(
                    f"line {number}: run {run.run} follows run {known[-1][0].run}, so the numbering started again"
                )
            known.append((run, value))
    states = [_state(path, number, session) for number, session in enumerate(sessions) if session.runs]
    return AutoLog(path, tuple(states), tuple(faults), tuple(notes))


def _state(path: str, number: int, session: _Session) -> ExperimentState:
    config = session.config
    rows, steps, baseline = _rows(session)
    times = [row.ended_at for row in rows if row.ended_at]
    return ExperimentState(
        experiment_id=f"auto-{number}",
        project_path=_project_of(path),
        config=ExperimentConfig(
            name=config.name or config.metric_name,
            metric=config.spec,
            rule=AcceptanceRule(name="median", runs=1, warmups=0, direction=config.direction),
            limits=ExperimentLimits(trials=config.max_iterations),
            measure_timeout_seconds=config.timeout_seconds,
        ),
        incumbent_commit=steps[-1].candidate_commit if steps else "",
        phase="ready",
        baseline=baseline,
        rows=rows,
        checkpoints=tuple(row.candidate_commit for row in steps),
        usage=ExperimentUsage(trials=len(rows), wall_seconds=sum(row.duration_seconds for row in rows)),
        started_at=min(times, default=""),
        updated_at=max(times, default=""),
    )


def _project_of(path: str) -> str:
    """The project of a log: the folder that contains it, or that contains its ``.auto``."""
    folder_path, name = os.path.split(os.path.dirname(os.path.abspath(path)))
    return folder_path if name == ".auto" else os.path.join(folder_path, name)


def _rows(session: _Session) -> tuple[tuple[TrialRow, ...], list[TrialRow], float | None]:
    """The rows, the rows that were better than all kept before, and the first kept value, which is the base."""
    sign = -1.0 if session.config.direction == "higher" else 1.0
    rows, steps = list[TrialRow](), list[TrialRow]()
    baseline = best = checkpoint = None
    for number, (run, value) in zip(_numbers(session), session.runs, strict=True):
        row = replace(_row(run, value), iteration=number, checkpoint=checkpoint or "")
        if run.status == "keep" and run.metric is not None:
            if best is None:
                baseline = best = run.metric
                checkpoint = run.commit
                row = replace(
                    row, reason_code=LOGGED_BASELINE, reason="the first kept run, which is the base"
                )
            elif sign * run.metric < sign * best:
                best, checkpoint = run.metric, run.commit
                steps.append(row)
            else:
                row = replace(
                    row,
                    reason_code=KEPT_WITHOUT_GAIN,
                    reason=f"kept, though {run.metric:g} is no better than {best:g}, the best before it",
                )
        rows.append(row)
    return tuple(rows), steps, baseline


def _numbers(session: _Session) -> list[int]:
    """The log's numbers if they increase; otherwise positions, since some logs restart within a session."""
    numbers = [run.run for run, _ in session.runs]
    rises = all(earlier < later for earlier, later in pairwise(numbers))
    return numbers if rises else list(range(1, len(numbers) + 1))


def _row(run: SessionRun, value: dict[str, Any]) -> TrialRow:
    status, reason_code = _ENDINGS[run.status]
    metadata = _kept({name: item for name, item in value.items() if name not in _OWN_KEYS})
    metric = run.metric if run.status in ("keep", "discard") else None
    if metric is None and value.get("metric") is not None:
        metadata["reported_metric"] = value["metric"]
    return TrialRow(
        iteration=run.run,
        hypothesis_id=f"run-{run.run}",
        description=run.description,
        status=status,
        metric=metric,
        samples=() if metric is None else (metric,),
        others=run.metrics if metric is not None else {},
        duration_seconds=run.duration_seconds,
        candidate_commit=run.commit if run.status == "keep" else "",
        reason_code=reason_code,
        reason=run.reason,
        ended_at=_time(run.timestamp_ms),
        metadata=metadata,
    )


def _kept(metadata: dict[str, Any]) -> dict[str, Any]:
    """The line's unknown fields; none if they are nested too deeply to be exported again."""
    try:
        json_codec.encode(metadata)
    except ValueError:
        return {}
    return metadata


def _time(milliseconds: int) -> str:
    if 0 < milliseconds < _EARLIEST_MS:
        milliseconds *= 1000
    if not 0 < milliseconds <= _LATEST_MS:
        return ""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"
