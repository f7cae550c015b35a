"""The table of trials for other programs: JSON lines, CSV, and the events as they stand in the log.

JSON lines are the lossless form: one object a trial, the same keys in the same order, strict UTF-8. CSV is for
spreadsheets and data frames: RFC 4180, UTF-8 without a mark, every text that a spreadsheet could
take for a formula behind an apostrophe. Both hold every field of every trial, the running one too.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.experiment_summary import effect_scale
from omx_autoresearch.core.experiments import TrialRow
from omx_autoresearch.core.shape import to_plain
from omx_autoresearch.core.values import dataclass, fields
from omx_autoresearch.errors import StateUntrusted
from omx_autoresearch.storage import strictjson
from omx_autoresearch.storage.atomic import read_bounded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omx_autoresearch.core.experiments import ExperimentState

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
    return b"".join(strictjson.encode(record) + b"\n" for record in trial_records(state))


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
    return strictjson.without_surrogates(out.getvalue()).encode("utf-8")


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
