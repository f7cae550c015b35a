"""The results of an experiment as files: plot, report, export."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.experiments.judge.events import RunMeasured
from omx_autoresearch.experiments.judge.summary import quoted_claim
from omx_autoresearch.experiments.views import frozen_paths
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.surfaces.cli.console import (
    Document,
    json_option,
    print_json,
    say,
    tell,
    verb,
)
from omx_autoresearch.surfaces.cli.experiment import (
    Meant,
    auto_log_option,
    experiment_argument,
    material_of,
)

if TYPE_CHECKING:
    from omx_autoresearch.experiments.judge.state import ExperimentState
    from omx_autoresearch.experiments.reports.pages import ReportMaterial


@dataclass(frozen=True, slots=True)
class ExperimentFileDocument:
    """``experiment plot``, ``report`` and ``export``.

    Attributes:
        experiment_id: whose.
        path: what was written; empty where it went to stdout.
        format: of it.
        size_bytes: of it.
        result: the one sentence that may be quoted.
        notes: what was left out, and why.
    """

    experiment_id: str
    path: str
    format: str
    size_bytes: int
    result: str
    notes: tuple[str, ...] = ()


FILE = Document("experiment-file", ExperimentFileDocument)


@verb("experiment plot", FILE)
@experiment_argument
@click.option(
    "--output",
    default="",
    metavar="FILE",
    help="Ends in .html, .svg or .png.  [default: ID.html in the experiment's folder]",
)
@auto_log_option
@json_option
def experiment_plot(named: str, output: str, auto_log: str, as_json: bool) -> None:
    """Plot trials over time, with accepted steps, intervals, and the verified claim."""
    from omx_autoresearch.experiments.reports.plots import FORMATS, plot_specification, render_plot

    state, material, found = material_of(named, auto_log)
    path = output or _beside_log(found, f"{state.experiment_id}.html")
    ending = os.path.splitext(path)[1].lstrip(".").lower()
    kind = next((name for name in FORMATS if name == ending), None)
    if kind is None:
        raise UsageError(
            f"the name of a plot ends in {', '.join('.' + name for name in FORMATS)}, received {path!r}",
            next_step="--output plot.html",
        )
    data = render_plot(plot_specification(state, origin=material.origin), kind)
    _write_file(path, data)
    _told_file(state, path, kind, data, as_json=as_json)


@verb("experiment report", FILE)
@experiment_argument
@click.option(
    "--output", default="", metavar="FILE", help="Ends in .md or .html.  [default: Markdown to stdout]"
)
@auto_log_option
@json_option
def experiment_report(named: str, output: str, auto_log: str, as_json: bool) -> None:
    """Write a report: the question, the verified number, every trial, and every accepted step."""
    from omx_autoresearch.experiments.reports.pages import html_report, markdown_report, with_plot

    state, material, found = material_of(named, auto_log)
    if found is not None:
        material = _whole(found, state, material)
    kind = os.path.splitext(output)[1].lstrip(".").lower() if output else "md"
    if kind not in ("md", "markdown", "html"):
        raise UsageError(
            f"the name of a report ends in .md or .html, received {output!r}", next_step="--output report.md"
        )
    text = (
        html_report(state, with_plot(state, material)) if kind == "html" else markdown_report(state, material)
    )
    if output:
        _write_file(output, text.encode())
    elif not as_json:
        sys.stdout.write(text)
        return
    _told_file(state, output, kind, text.encode(), as_json=as_json, notes=material.faults)


@verb("experiment export", FILE)
@experiment_argument
@click.option(
    "--format",
    "kind",
    type=click.Choice(("csv", "jsonl", "events", "mlflow")),
    default="csv",
    show_default=True,
    help="Trials as CSV or JSON lines, the whole log, or a local MLflow store.",
)
@click.option(
    "--output",
    default="",
    metavar="PATH",
    help="File, or folder of the store.  [default: stdout; of a store, one in the experiment's folder]",
)
@auto_log_option
@json_option
def experiment_export(named: str, kind: str, output: str, auto_log: str, as_json: bool) -> None:
    """Export the trials for other tools."""
    state, material, found = material_of(named, auto_log)
    if kind == "mlflow":
        if found is not None:
            material = _whole(found, state, material)
        _export_to_mlflow(
            (state, material, _patch(found, state)),
            output or _beside_log(found, f"mlflow-{state.experiment_id}"),
            as_json=as_json,
        )
        return
    data, notes = _exported(state, kind, found)
    if output:
        _write_file(output, data)
    elif not as_json:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        for note in notes:
            tell(f"note: {note}", "yellow")
        return
    _told_file(state, output, kind, data, as_json=as_json, notes=notes)


def _exported(state: ExperimentState, kind: str, found: Meant | None) -> tuple[bytes, tuple[str, ...]]:
    from omx_autoresearch.experiments.reports.pages import exported_events, trials_csv, trials_jsonl

    if kind == "csv":
        return trials_csv(state), ()
    if kind == "jsonl":
        return trials_jsonl(state), ()
    if found is None:
        raise UsageError("an .auto/ log is exported as csv or jsonl", next_step="--format jsonl")
    events = exported_events(found.folder.journal_path)
    torn = f"an unfinished last line of {events.torn_bytes} bytes was left out" if events.torn_bytes else ""
    return events.data, (torn,) if torn else ()


def _export_to_mlflow(
    source: tuple[ExperimentState, ReportMaterial, bytes], folder_path: str, *, as_json: bool
) -> None:
    from omx_autoresearch.experiments.reports.mlflow_export import export_to_mlflow
    from omx_autoresearch.experiments.reports.pages import report_files

    state = source[0]
    done = export_to_mlflow(state, folder_path, report_files(*source))
    notes = (
        f"{count_of(done.added, 'trial')} added, {done.known} known",
        f"mlflow ui --backend-store-uri {done.tracking_uri}",
    )
    _told_file(state, os.path.abspath(folder_path), "mlflow", b"", as_json=as_json, notes=notes)


def _whole(found: Meant, state: ExperimentState, material: ReportMaterial) -> ReportMaterial:
    """The material of an experiment: frozen files, the files of each step, what isolated the runs."""
    from omx_autoresearch.experiments.reports.pages import step_changes
    from omx_autoresearch.experiments.worktrees.pair import WorktreePair

    changes = step_changes(state, WorktreePair.open(found.folder.work_path))
    isolations = dict.fromkeys(
        event.isolation
        for _, event in found.store.events(found.experiment_id)
        if isinstance(event, RunMeasured)
    )
    return replace(
        material,
        frozen_paths=frozen_paths(found.caller.runtime, state),
        changes=changes,
        isolations=tuple(isolations),
    )


def _patch(found: Meant | None, state: ExperimentState) -> bytes:
    """From base to final; empty where nothing was accepted, and for an ``.auto/`` log."""
    from omx_autoresearch.experiments.worktrees.pair import WorktreePair

    if found is None or not state.checkpoints:
        return b""
    return WorktreePair.open(found.folder.work_path).patch(state.base_commit, state.incumbent_commit)


def _beside_log(found: Meant | None, name: str) -> str:
    """Where a file without a given name lands: never in the checkout, which `accept` needs as it was at the start."""
    return os.path.join(found.folder.root_path, name) if found is not None else name


def _write_file(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as target:
            target.write(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", next_step="--output FILE") from None


def _told_file(  # noqa: PLR0913  # one line each of the document
    state: ExperimentState, path: str, kind: str, data: bytes, *, as_json: bool, notes: tuple[str, ...] = ()
) -> None:
    if as_json:
        result = quoted_claim(state).sentence
        print_json(ExperimentFileDocument(state.experiment_id, path, kind, len(data), result, notes))
        return
    say(path)
    for note in notes:
        tell(f"note: {note}")
