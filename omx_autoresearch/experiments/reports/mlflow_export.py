"""An experiment in a local MLflow store (extra ``mlflow``): one parent run, and a child run for every ended trial.

The store is a folder with a SQLite file and the artifacts; ``mlflow ui --backend-store-uri`` reads it. Exporting again
adds what is new and writes nothing twice: runs are found by the experiment's id and the trial's number, and one that an
interrupted export left unfinished is made anew. Nothing leaves the machine: the store is opened by path, and MLflow's
usage reports are switched off while it is loaded here.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
from omx_autoresearch.experiments.judge.summary import kind_of, quoted_claim, shown_reason, steps_of
from omx_autoresearch.experiments.reports.pages import markdown_text, plain, trials_jsonl
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.text import printable
from omx_autoresearch.foundation.times import datetime
from omx_autoresearch.journal.safe_files import ensure_folder

DATABASE_NAME, ARTIFACTS_NAME = "mlflow.db", "artifacts"
_ID, _ITERATION, _WHOLE = "omx.experiment_id", "omx.iteration", "omx.is_whole"
_PARENT, _NOTE = "mlflow.parentRunId", "mlflow.note.content"
_VALUE_CHARACTERS = 5000
"""The limit for a parameter or tag, below that of every MLflow version; the artifact ``trials.jsonl`` has the rest."""
_NAME_CHARACTERS = 200
_BATCH_METRICS, _BATCH_WORDS, _PAGE = 900, 90, 500
_ENDS = {"completed": "FINISHED", "failure": "FAILED", "cancelled": "KILLED"}


@dataclass(frozen=True, slots=True)
class MlflowExport:
    """The result of an export.

    Attributes:
        tracking_uri: for ``mlflow ui --backend-store-uri``.
        experiment_name: in MLflow.
        run_id: of the parent run.
        added: trials that got a run now.
        known: trials that had one.
    """

    tracking_uri: str
    experiment_name: str
    run_id: str
    added: int
    known: int


Metrics = list[tuple[str, float, int]]
"""Name, value and step."""


def export_to_mlflow(
    state: ExperimentState, folder_path: str, artifacts: Mapping[str, bytes] | None = None
) -> MlflowExport:
    """Put an experiment into the store in a folder, which is made where it is missing.

    A trial under way is left for a later export.

    Args:
        state: of the experiment.
        folder_path: of the store.
        artifacts: files by name (patch, plot, report), kept with the parent run; the table of trials is added.

    Raises:
        UsageError: the extra is not installed, the path cannot stand in the address of a store, or an artifact's name
            is a path.
        StorageFailed: the folder cannot be made.
    """
    files = {"trials.jsonl": trials_jsonl(state), **(artifacts or {})}
    uri = _checked(folder_path, files)
    with loaded_mlflow(uri) as mlflow:
        ensure_folder(os.path.abspath(folder_path))
        name = f"omx-autoresearch: {plain(state.config.name or state.config.metric.name, _NAME_CHARACTERS)}"
        experiment = _experiment(mlflow, name, folder_path)
        parent, is_new = _parent(mlflow, experiment, state)
        children = _children(mlflow, experiment, parent)
        added = 0
        ended = [row for row in state.rows if row.status != "running"]
        for row in ended:
            if row.iteration not in children:
                _add_child(mlflow, experiment, parent, (state, row))
                added += 1
        _update_parent(mlflow, parent, state, is_new=is_new)
        _put_files(mlflow, parent, files)
        _close_parent(mlflow, parent, state)
    return MlflowExport(uri, name, parent, added, len(ended) - added)


def _checked(folder_path: str, files: Mapping[str, bytes]) -> str:
    path = os.path.abspath(folder_path)
    if odd := sorted({character for character in path if character in "?#%" or not character.isprintable()}):
        raise UsageError(
            f"{path} cannot hold an MLflow store: its address would end at {odd[0]!r}",
            next_step="choose a folder without ? # % and control characters",
        )
    for name in files:
        if not name or name in {".", ".."} or "/" in name or "\0" in name:
            raise UsageError(f"{name!r} is not a valid artifact name", next_step="give a plain file name")
    return f"sqlite:///{os.path.join(path, DATABASE_NAME)}"


def _experiment(mlflow: Mlflow, name: str, folder_path: str) -> str:
    known = mlflow.client.get_experiment_by_name(name)
    if known is not None:
        if known.lifecycle_stage == "deleted":
            mlflow.client.restore_experiment(known.experiment_id)
        return str(known.experiment_id)
    location = Path(os.path.abspath(folder_path), ARTIFACTS_NAME).as_uri()
    return str(mlflow.client.create_experiment(name, artifact_location=location))


def _parent(mlflow: Mlflow, experiment: str, state: ExperimentState) -> tuple[str, bool]:
    """The parent run, and whether it was made just now."""
    for run in _search(mlflow, experiment, f"tags.`{_ID}` = '{state.experiment_id}'"):
        if _PARENT not in run.data.tags:
            return str(run.info.run_id), False
    run = mlflow.client.create_run(
        experiment,
        start_time=_milliseconds(state.started_at),
        run_name=plain(state.experiment_id, _NAME_CHARACTERS),
        tags={_ID: state.experiment_id},
    )
    return str(run.info.run_id), True


def _children(mlflow: Mlflow, experiment: str, parent: str) -> set[int]:
    """Trials that have a whole run; unfinished ones of an interrupted export are deleted."""
    whole = set()
    for run in list(_search(mlflow, experiment, f"tags.`{_PARENT}` = '{parent}'")):
        if run.data.tags.get(_WHOLE) == "yes":
            whole.add(int(run.data.tags[_ITERATION]))
        else:
            mlflow.client.delete_run(run.info.run_id)
    return whole


def _search(mlflow: Mlflow, experiment: str, words: str) -> Iterator[Any]:
    token = None
    while True:
        page = mlflow.client.search_runs([experiment], words, max_results=_PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


# --- one trial


def _add_child(mlflow: Mlflow, experiment: str, parent: str, trial: tuple[ExperimentState, TrialRow]) -> None:
    state, row = trial
    ended = _milliseconds(row.ended_at)
    run = mlflow.client.create_run(
        experiment,
        start_time=_milliseconds(row.started_at) or ended,
        run_name=plain(f"{row.iteration:04d} {kind_of(row)} {row.hypothesis_id}", _NAME_CHARACTERS),
        tags={_PARENT: parent, _ID: state.experiment_id, _ITERATION: str(row.iteration)},
    )
    _log(mlflow, run.info.run_id, *_of_trial(row))
    end = "KILLED" if row.reason_code == "cancelled" else "FAILED" if row.status == "failed" else "FINISHED"
    mlflow.client.set_terminated(run.info.run_id, end, end_time=ended)
    mlflow.client.set_tag(run.info.run_id, _WHOLE, "yes")


def _of_trial(row: TrialRow) -> tuple[Metrics, dict[str, Any], dict[str, Any]]:
    """Metrics, parameters and tags of a trial."""
    singles = {
        "metric": row.metric,
        "improvement": row.improvement,
        "interval_low": row.interval[0] if row.interval else None,
        "interval_high": row.interval[-1] if row.interval else None,
        "pairs": float(row.pairs),
        "cost_usd": row.cost_usd,
        "duration_seconds": row.duration_seconds,
        **{name: row.others[key] for key, name in metric_names(row.others).items()},
    }
    metrics = [(name, value, row.iteration) for name, value in singles.items() if value is not None]
    for name, values in (("sample", row.samples), ("incumbent_sample", row.incumbent_samples)):
        metrics += [(name, value, number) for number, value in enumerate(values, start=1)]
    texts = {
        "hypothesis_id": row.hypothesis_id,
        "description": row.description,
        "direction": row.direction,
        "checkpoint": row.checkpoint,
        "candidate_commit": row.candidate_commit,
        "changed_paths": "\n".join(row.changed_paths),
    }
    tags = {"omx.status": row.status, "omx.kind": kind_of(row), "omx.reason": shown_reason(row)}
    tags |= {name: row.metadata[key] for key, name in metric_names(row.metadata, "metadata.").items()}
    return metrics, texts, tags


def metric_names(names: Mapping[str, Any], prefix: str = "others/") -> dict[str, str]:
    """Names as MLflow takes them: letters, digits, ``_ - .`` and blanks, each one once."""
    found: dict[str, str] = {}
    for name in names:
        clean = re.sub(r"[^\w.\- ]", "_", name)[:_NAME_CHARACTERS].strip(". ") or "_"
        taken, number = clean, 2
        while f"{prefix}{taken}" in found.values():
            taken, number = f"{clean}_{number}", number + 1
        found[name] = f"{prefix}{taken}"
    return found


# --- the parent


def _update_parent(mlflow: Mlflow, run_id: str, state: ExperimentState, *, is_new: bool) -> None:
    config = state.config
    quoted = quoted_claim(state)
    tags = {
        _NOTE: markdown_text(" ".join((quoted.sentence, *quoted.warnings))),
        "omx.claim": quoted.sentence,
        "omx.is_verified": "yes" if quoted.is_verified and quoted.is_current else "no",
        "omx.phase": state.phase,
        "omx.completed_reason": state.completed_reason,
        "omx.isolation": state.isolation,
        "omx.incumbent_commit": state.incumbent_commit,
        "omx.tampered": str(state.tampered),
    }
    params = {
        "metric": config.metric.name,
        "direction": config.metric.direction,
        "unit": config.metric.unit,
        "measure": config.measure,
        "check": config.check,
        "rule": config.rule.name,
        "alpha": f"{config.rule.alpha:g}",
        "max_pairs": str(config.rule.max_pairs),
        "base_commit": state.base_commit,
        "pin_digest": state.pin_digest,
        "seed": str(config.seed),
    }
    _log(mlflow, run_id, _missing(mlflow, run_id, _of_experiment(state)), params if is_new else {}, tags)


def _of_experiment(state: ExperimentState) -> Metrics:
    last = max((row.iteration for row in state.rows if row.status != "running"), default=0)
    claim = state.claim
    metrics = [("metric", row.metric, row.iteration) for row in state.rows]
    metrics += [("incumbent", state.baseline, 0)]
    metrics += [("incumbent", row.metric, row.iteration) for row in steps_of(state)]
    metrics += [
        (f"spent/{name}", getattr(state.usage, name), last)
        for name in ("trials", "runs", "wall_seconds", "cost_usd")
    ]
    if claim is not None:
        claimed = {"gain": claim.estimate, "gain_low": claim.interval[0], "gain_high": claim.interval[1]}
        claimed["pairs"] = claim.pairs
        metrics += [(f"verified/{name}", value, last) for name, value in claimed.items()]
    return [(name, float(value), step) for name, value, step in metrics if value is not None]


def _missing(mlflow: Mlflow, run_id: str, metrics: Metrics) -> Metrics:
    """The metrics that the run lacks at their step."""
    have = {
        (name, point.value, point.step)
        for name in {name for name, _, _ in metrics}
        for point in mlflow.client.get_metric_history(run_id, name)
    }
    return [metric for metric in metrics if metric not in have]


def _put_files(mlflow: Mlflow, run_id: str, files: Mapping[str, bytes]) -> None:
    with tempfile.TemporaryDirectory(prefix="omx-mlflow-") as folder:
        for name, data in files.items():
            path = os.path.join(folder, name)
            with open(path, "wb") as target:
                target.write(data)
            mlflow.client.log_artifact(run_id, path)


def _close_parent(mlflow: Mlflow, run_id: str, state: ExperimentState) -> None:
    if state.phase != "completed":
        return
    end = _ENDS.get(state.completed_reason, _ENDS["completed"])
    mlflow.client.set_terminated(run_id, end, end_time=_milliseconds(state.updated_at))


def _log(
    mlflow: Mlflow, run_id: str, values: Metrics, words: Mapping[str, Any], marks: Mapping[str, Any]
) -> None:
    """Write metrics, parameters and tags in as few calls as MLflow's limits on one call allow."""
    entities = mlflow.entities
    metrics = [entities.Metric(name, value, 0, step) for name, value, step in values]
    params = [entities.Param(name, _text(value)) for name, value in words.items() if value]
    tags = [entities.RunTag(name, _text(value)) for name, value in marks.items()]
    while metrics or params or tags:
        mlflow.client.log_batch(run_id, metrics[:_BATCH_METRICS], params[:_BATCH_WORDS], tags[:_BATCH_WORDS])
        metrics, params, tags = metrics[_BATCH_METRICS:], params[_BATCH_WORDS:], tags[_BATCH_WORDS:]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = printable(text, keep="\n")
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[: _VALUE_CHARACTERS - 1]}…"


def _milliseconds(time: str) -> int | None:
    return round(datetime.fromisoformat(time).timestamp() * 1000) if time else None


# --- the package

# MLflow, loaded for one export: quiet, without usage reports, bound to one local store.


_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_DISABLE_AUTO_LOGGING": "true",
}
_NEEDED = ("sqlalchemy", "alembic", "mlflow")
"""The skinny package opens a SQLite store only where the first two are there."""


@dataclass(frozen=True, slots=True)
class Mlflow:
    """A client of one store, and the module with the classes that it takes."""

    client: Any
    entities: Any


@contextmanager
def loaded_mlflow(tracking_uri: str) -> Iterator[Mlflow]:
    """MLflow on a store, which is made where it is missing.

    Raises:
        UsageError: the extra is not installed, or MLflow cannot open the store.
    """
    with _settings(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other people's deprecations
        try:
            for name in _NEEDED:
                importlib.import_module(name)
            tracking = importlib.import_module("mlflow.tracking")
            entities = importlib.import_module("mlflow.entities")
            refusal = importlib.import_module("mlflow.exceptions").MlflowException
            database_fault = importlib.import_module("sqlalchemy.exc").SQLAlchemyError
        except ImportError as error:
            raise UsageError(
                f"an export to MLflow needs the packages of the extra `mlflow`; {error.name or error} cannot be loaded",
                next_step="pip install 'omx-autoresearch[mlflow]'",
            ) from None
        logging.getLogger("alembic").setLevel(logging.WARNING)
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        try:
            yield Mlflow(
                tracking.MlflowClient(tracking_uri=tracking_uri, registry_uri=tracking_uri), entities
            )
        except (refusal, database_fault) as error:
            raise UsageError(
                f"MLflow cannot write to {tracking_uri}: {str(error).partition(chr(10))[0]}",
                next_step="choose another folder, or update the store: mlflow db upgrade URI",
            ) from error


@contextmanager
def _settings() -> Iterator[None]:
    """MLflow's own switches for as long as it works for us; whatever stood there before comes back."""
    before = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    os.environ.update(_SETTINGS)
    try:
        yield
    finally:
        for name in _SETTINGS:
            os.environ.pop(name, None)
        os.environ.update(before)
