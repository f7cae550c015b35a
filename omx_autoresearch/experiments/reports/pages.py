"""The report of an experiment, for the person who decides whether to accept: Markdown and HTML, from the same facts.

One number is quoted as a result, the verified claim; without one the report says so. Everything that a model wrote is
text in both forms. The HTML is one file without script or outside reference, the plot a picture in it.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.headless import harmless_line
from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
from omx_autoresearch.experiments.judge.summary import effect_scale, steps_of
from omx_autoresearch.experiments.reports.facts import ReportMaterial, plain_facts, report_facts
from omx_autoresearch.experiments.reports.plots import COLOURS, plot_specification, render_plot
from omx_autoresearch.foundation import json_codec, templates
from omx_autoresearch.foundation.errors import StateUntrusted, UsageError
from omx_autoresearch.foundation.records import dataclass, fields, replace, to_plain
from omx_autoresearch.journal.safe_files import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omx_autoresearch.experiments.worktrees.pair import Workspaces
    from omx_autoresearch.experiments.worktrees.patches import FileChange


# --- The table of trials for other programs: JSON lines, CSV, and the events as they stand in the log.
#
# JSON lines are the lossless form: one object a trial, the same keys in the same order, strict UTF-8. CSV is for
# spreadsheets and data frames: RFC 4180, UTF-8 without a mark, every text that a spreadsheet could
# take for a formula behind an apostrophe. Both hold every field of every trial, the running one too.

MINIMUM_FIELDS = (
    "iteration", "hypothesis_id", "description", "status", "metric", "samples", "improvement", "cost_usd",
    "duration_seconds", "checkpoint", "candidate_commit", "reason",
)  # fmt: skip
"""What every host shows of a trial; the first columns, in this order."""

SPREAD_COLUMNS = 100
"""Names of secondary metrics, and of the host's metadata, that get a column of their own; the rest stays together."""

EVENTS_LIMIT_BYTES = 1024 * 1024 * 1024
_SPREAD = ("others", "metadata")
_FORMULA_OPENINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  # meant: spreadsheets take the wide forms too


@dataclass(frozen=True, slots=True)
class TrialTable:
    """Trials as rows of flat cells.

    Attributes:
        columns: names, in order; the same for every row.
        rows: cells by name: numbers, texts, None for none; lists and objects as JSON text.
    """

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ExportedEvents:
    """The log of an experiment.

    Attributes:
        data: its whole lines, byte for byte.
        torn_bytes: of an unfinished last line, which is left out; 0 where the log ends well.
    """

    data: bytes
    torn_bytes: int = 0


def trial_records(state: ExperimentState) -> tuple[dict[str, Any], ...]:
    """Every trial as one object of plain JSON values, with what its numbers mean beside them."""
    return tuple(
        {"experiment_id": state.experiment_id, **_ordered(to_plain(row)), **_units(state)}
        for row in state.rows
    )


def trial_table(state: ExperimentState) -> TrialTable:
    """Every trial as flat cells: secondary metrics and metadata in columns of their own."""
    records = trial_records(state)
    names = {field: _spread_names(record[field] for record in records) for field in _SPREAD}
    first = records[0] if records else {"experiment_id": "", **_ordered(to_plain(_EMPTY)), **_units(state)}
    columns = [name for name in first if name not in _SPREAD]
    for field in _SPREAD:
        columns += [f"{field}.{name}" for name in names[field]]
        columns.append(field)
    return TrialTable(tuple(columns), tuple(_flat(record, names) for record in records))


def trials_jsonl(state: ExperimentState) -> bytes:
    """The trials as JSON lines; no byte for no trial."""
    return b"".join(json_codec.encode(record) + b"\n" for record in trial_records(state))


def trials_csv(state: ExperimentState) -> bytes:
    """The trials as CSV with a header, safe to open in a spreadsheet.

    A text that begins with ``= + - @``, their wide forms, a tab or a line break gets an apostrophe before it, which
    spreadsheets take for "this is text"; numbers never do. Line breaks within a text stay, quoted.
    """
    table = trial_table(state)
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")  # both are then quoted within a text
    writer.writerow([_cell(name) for name in table.columns])
    writer.writerows([_cell(row[name]) for name in table.columns] for row in table.rows)
    return json_codec.without_surrogates(out.getvalue()).encode("utf-8")


def exported_events(path: str) -> ExportedEvents:
    """The events of an experiment, as they stand in its log.

    Args:
        path: of ``events.jsonl``.

    Raises:
        StateUntrusted: there is no log, or it cannot be read.
    """
    try:
        data = read_bounded(path, EVENTS_LIMIT_BYTES)
    except FileNotFoundError:
        raise StateUntrusted(f"{path} is missing", next_step="omx-autoresearch experiment list") from None
    end = data.rfind(b"\n") + 1
    return ExportedEvents(data[:end], len(data) - end)


_EMPTY = TrialRow(0, "")


def _ordered(record: dict[str, Any]) -> dict[str, Any]:
    later = [item.name for item in fields(TrialRow) if item.name not in MINIMUM_FIELDS]
    return {name: record[name] for name in (*MINIMUM_FIELDS, *later)}


def _units(state: ExperimentState) -> dict[str, str]:
    metric = state.config.metric
    return {
        "metric_name": metric.name,
        "metric_unit": metric.unit,
        "metric_direction": metric.direction,
        "improvement_scale": effect_scale(state),
    }


def _spread_names(values: Iterable[dict[str, Any]]) -> Sequence[str]:
    """The names that most rows have, at most `SPREAD_COLUMNS`, in the order of the alphabet."""
    counts: dict[str, int] = {}
    for value in values:
        for name in value:
            counts[name] = counts.get(name, 0) + 1
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:SPREAD_COLUMNS])


def _flat(record: dict[str, Any], names: dict[str, Sequence[str]]) -> dict[str, Any]:
    cells = {name: _plain_cell(value) for name, value in record.items() if name not in _SPREAD}
    for field in _SPREAD:
        rest = dict(record[field])
        for name in names[field]:
            cells[f"{field}.{name}"] = _plain_cell(rest.pop(name, None))
        cells[field] = _plain_cell(rest) if rest else None
    return cells


def _plain_cell(value: Any) -> Any:
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if value else None
    return value


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA_OPENINGS):
        return f"'{value}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def markdown_report(state: ExperimentState, material: ReportMaterial | None = None) -> str:
    """The report as Markdown; the plot is a file of its own there."""
    material = material or ReportMaterial()
    return templates.render(
        "experiment_report.md.j2",
        **plain_facts(report_facts(state, material)),
        origin=material.origin,
        faults=material.faults,
        text=markdown_text,
        code=markdown_code,
        cell=markdown_cell,
        block=markdown_block,
    )


def html_report(state: ExperimentState, material: ReportMaterial | None = None) -> str:
    """The report as one HTML page, the plot inside where the material has one."""
    material = material or ReportMaterial()
    return templates.render(
        "experiment_report.html.j2",
        **plain_facts(report_facts(state, material)),
        origin=material.origin,
        faults=material.faults,
        plot=base64.b64encode(material.svg).decode("ascii"),
        plot_note=material.plot_note,
        colours=COLOURS,
        plain=plain,
        plain_block=plain_block,
    )


def with_plot(state: ExperimentState, material: ReportMaterial) -> ReportMaterial:
    """The material with the plot in it; where the extra is not installed, with a note that says so."""
    try:
        return replace(material, svg=render_plot(plot_specification(state, origin=material.origin), "svg"))
    except UsageError as error:
        return replace(material, plot_note=f"{error.message}; {error.next_step}")


def report_files(state: ExperimentState, material: ReportMaterial, patch: bytes = b"") -> dict[str, bytes]:
    """Everything that can be kept of an experiment beside a run elsewhere: reports, plots, table, patch, by file name.

    Plots are left out where the extra ``plots`` is not installed; the report says so.

    Args:
        state: of the experiment.
        material: of its report.
        patch: from base to final; empty leaves it out.
    """
    material = with_plot(state, material)
    files = {
        "report.md": markdown_report(state, material).encode("utf-8"),
        "report.html": html_report(state, material).encode("utf-8"),
        "trials.csv": trials_csv(state),
    }
    if material.svg:
        specification = plot_specification(state, origin=material.origin)
        files["plot.svg"] = material.svg
        files |= {f"plot.{kind}": render_plot(specification, kind) for kind in ("html", "png")}
    if patch:
        files["final.patch"] = patch
    return files


def step_changes(state: ExperimentState, workspaces: Workspaces) -> dict[str, tuple[FileChange, ...]]:
    """For `ReportMaterial.changes`: the files of every accepted step, by its checkpoint.

    Raises:
        WorkspaceFault: a checkpoint is missing.
    """
    return {
        row.candidate_commit: workspaces.changes(row.checkpoint, row.candidate_commit)
        for row in steps_of(state)
    }


# --- texts that nothing can turn into markup

# Texts of a report that nothing in them can turn into markup: for Markdown, and plain for HTML, which escapes
# itself.
#
# What a hypothesis, a reason or a file name says was written by a model. In Markdown it stands in code spans,
# where nothing is a link, a mention, an image or an element; control and direction characters are taken out
# in both.


CELL_CHARACTERS = 240
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&@$^!]|:(?=//)|(?<=www)\.)")
_TICKS = re.compile(r"`+")
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})", re.MULTILINE)


def plain(text: str, limit: int = CELL_CHARACTERS) -> str:
    """One line, bounded, of printable characters only."""
    line = harmless_line(text)
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def plain_block(text: str) -> str:
    """Several lines of printable characters."""
    lines = (
        "".join(char if char.isprintable() or char == "\t" else " " for char in line)
        for line in text.splitlines()
    )
    return "\n".join(lines).strip("\n")


def markdown_text(text: str) -> str:
    """A sentence of ours with names in it, as Markdown that reads the same."""
    return _MARKS.sub(r"\\\1", plain(text, 10_000))


def markdown_code(text: str, limit: int = CELL_CHARACTERS) -> str:
    """A foreign text as one code span; ``-`` for an empty one."""
    return _span(plain(text, limit))


def markdown_cell(text: str, limit: int = CELL_CHARACTERS) -> str:
    """A foreign text as one code span in one cell of a table; ``-`` for an empty one."""
    # A backslash before a bar would take away the bar's own escape where tables are split into cells.
    return _span(plain(text, limit).replace("\\|", "\\ |").replace("|", "\\|"))


def _span(line: str) -> str:
    if not line:
        return "-"
    fence = "`" * (max((len(found) for found in _TICKS.findall(line)), default=0) + 1)
    pad = " " if line.startswith(("`", " ")) or line.endswith(("`", " ", "\\")) else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def markdown_block(text: str) -> str:
    """A command as a fenced block that nothing in it can end."""
    block = plain_block(text)
    longest = max((len(found) for found in _FENCE.findall(block)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{block}\n{fence}"
