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
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from omx_autoresearch.experiments.judge import summary
from omx_autoresearch.experiments.judge.calibration import Calibration, known_effect, too_few_pairs
from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
from omx_autoresearch.experiments.reports.plots import COLOURS, plot_specification, render_plot
from omx_autoresearch.experiments.worktrees.object_store import FileChange
from omx_autoresearch.experiments.worktrees.pair import WorktreePair
from omx_autoresearch.foundation import json_codec, templates
from omx_autoresearch.foundation.errors import StateUntrusted, UsageError
from omx_autoresearch.foundation.records import to_plain
from omx_autoresearch.foundation.text import count_of, duration_text, one_line, printable
from omx_autoresearch.journal.safe_files import read_bounded

PATHS_SHOWN = 200
_ISOLATION = {
    "none": "none: commands ran with the user's own rights; the worktrees keep changes apart but confine no process",
    "bubblewrap": "bubblewrap: no network, and only the worktree is writable",
}
_REGIMES = {
    "deterministic": "deterministic: the same code gave the same value every time",
    "noisy": "noisy: judged on interleaved pairs",
    "underpowered": "underpowered: only a very large gain could be seen",
}
_UNAVAILABLE = {
    "noise": "too few pairs to estimate the noise",
    "early_acceptance": "too few pairs for an early acceptance",
    "order_effect": "too few pairs to tell whether the order within a pair matters",
}


@dataclass(frozen=True, slots=True)
class ReportMaterial:
    """The material of a report, beside the state.

    Attributes:
        frozen_paths: the pinned files, relative to the repository.
        changes: for a checkpoint, the files that it changed against the one before.
        isolations: what really isolated the runs, as the events say; the newest run's where nothing is given.
        svg: the plot; empty leaves it out.
        plot_note: why there is no plot.
        origin: where the state comes from, if it is not our own experiment.
        faults: what could not be read there, a line each.
    """

    frozen_paths: tuple[str, ...] = ()
    changes: Mapping[str, Sequence[FileChange]] = field(default_factory=dict)
    isolations: tuple[str, ...] = ()
    svg: bytes = b""
    plot_note: str = ""
    origin: str = ""
    faults: tuple[str, ...] = ()


class Fact(NamedTuple):
    """A line of a list: what, and the value as a text; ``is_code`` for a foreign or literal one."""

    name: str
    text: str
    is_code: bool = False


def report_facts(state: ExperimentState, material: ReportMaterial) -> dict[str, Any]:
    """Everything that a report says, from the state: plain values by the names that both templates use."""
    counts = summary.count_kinds(state.rows)
    exempt = {glob for glob in state.config.protect if glob.startswith("!")}
    frozen = [path for path in material.frozen_paths if path not in exempt]
    return {
        "title": state.config.name or state.config.metric.name,
        "experiment_id": state.experiment_id,
        "is_ours": not material.origin,
        "is_taken": bool(state.applied_commit),
        "claim": summary.quoted_claim(state),
        "phase": f"{state.phase} ({state.completed_reason})" if state.completed_reason else state.phase,
        "counts": [(kind, count) for kind, count in counts.items() if count],
        "asked": _asked(state),
        "commands": _commands(state),
        "frozen": frozen[:PATHS_SHOWN],
        "frozen_left_out": max(0, len(frozen) - PATHS_SHOWN),
        "pin_digest": state.pin_digest,
        "measured": _measured(state),
        "steps": [_step(row, material) for row in summary.steps_of(state)],
        "trials": [_trial(state, row) for row in state.rows],
        "tampered": [
            (row.iteration, summary.shown_reason(row), row.changed_paths[:PATHS_SHOWN])
            for row in state.rows
            if summary.kind_of(row) == "tampered"
        ],
        "budget": _budget(state),
        "left": ", ".join(summary.left_words(state)) or "no limit is set",
        "isolations": _isolations(state, material),
        "origin": material.origin,
        "faults": material.faults,
    }


def _asked(state: ExperimentState) -> tuple[Fact, ...]:
    config, rule = state.config, state.config.rule
    unit = f", in {config.metric.unit}" if config.metric.unit else ""
    smallest = summary.effect_text(rule.min_effect, summary.effect_scale(state), config.metric.unit)
    facts = [
        Fact("Metric", f"{config.metric.name}{unit}, {config.metric.direction} is better"),
        Fact("Rule", _rule(state)),
        Fact("Smallest gain that counts", smallest if rule.min_effect else "any"),
        Fact("Repository", state.project_path, is_code=True),
        Fact("Base", state.base_commit, is_code=True),
        *[Fact("Guard", summary.guard_words(guard)) for guard in config.guards],
        Fact("Work", ", ".join(config.work), is_code=True),
        *[_protected(glob) for glob in config.protect],
        Fact("Held-out check", "yes, not shown" if config.held_out else "none"),
        Fact("Isolation asked for", config.sandbox),
        Fact("Started", state.started_at),
    ]
    return tuple(fact for fact in facts if fact.text)


def _protected(glob: str) -> Fact:
    """A glob of the owner; one that begins with ``!`` takes files out of what is frozen."""
    is_exempt = glob.startswith("!")
    return Fact("Not frozen" if is_exempt else "Protected", glob.removeprefix("!"), is_code=True)


def _rule(state: ExperimentState) -> str:
    rule = state.config.rule
    if rule.name == "median":
        return f"median of {count_of(rule.runs, 'run')} against the incumbent's"
    return f"hybrid, alpha {100 * rule.alpha:g} %, at most {count_of(rule.max_pairs, 'pair')} a trial"


def _commands(state: ExperimentState) -> tuple[tuple[str, str], ...]:
    config = state.config
    commands = {
        "Measure": config.measure,
        "Check": config.check,
        "Set up": config.setup,
        "Reset caches": config.reset_caches,
    }
    return tuple((name, command) for name, command in commands.items() if command.strip())


def _measured(state: ExperimentState) -> tuple[Fact, ...]:
    unit, calibration = state.config.metric.unit, state.calibration
    facts = [
        Fact(
            "Base", summary.figure(state.baseline, unit) if state.baseline is not None else "not measured yet"
        )
    ]
    if calibration is not None:
        facts += _calibration(calibration, unit)
    return tuple(facts)


def _calibration(calibration: Calibration, unit: str) -> list[Fact]:
    scale = calibration.scale or "ratio"
    smallest, few = known_effect(calibration), too_few_pairs(calibration)
    return [
        Fact("Regime", _REGIMES[calibration.regime]),
        Fact("Pairs of base against base", str(calibration.pairs)),
        Fact(
            "Noise of one run",
            f"{summary.effect_text(calibration.noise, scale, unit)}{f'; {few}' if few else ''}",
        ),
        Fact("Drift while calibrating", summary.effect_text(calibration.drift, scale, unit)),
        Fact(
            "Order within a pair",
            f"the first run is worse by {summary.effect_text(calibration.order_effect, scale, unit)}"
            if calibration.order_effect
            else "no effect was proven",
        ),
        Fact(
            "Smallest gain that can be seen",
            "unknown" if smallest is None else f"about {summary.effect_text(smallest, scale, unit)}",
        ),
        *[Fact("Not known", _UNAVAILABLE.get(name, name)) for name in calibration.unavailable],
    ]


def _trial(state: ExperimentState, row: TrialRow) -> dict[str, Any]:
    """A line of the table of trials, as texts."""
    unit = state.config.metric.unit
    return {
        "iteration": row.iteration,
        "kind": summary.kind_of(row),
        "hypothesis": summary.hypothesis_text(row),
        "metric": summary.figure(row.metric, unit) if row.metric is not None else "",
        "judged": summary.effect_interval(row.interval, summary.effect_scale(state), unit),
        "pairs": str(row.pairs) if row.pairs else "",
        "cost": f"${row.cost_usd:.2f}" if row.cost_usd else "",
        "duration": duration_text(row.duration_seconds) if row.duration_seconds else "",
        "checkpoint": row.checkpoint[:12],
        "reason": summary.shown_reason(row),
    }


def _step(row: TrialRow, material: ReportMaterial) -> dict[str, Any]:
    """An accepted step: its commit, and how many lines of which files."""
    changes = material.changes.get(row.candidate_commit)
    if changes is None:
        files = [(path, "") for path in row.changed_paths]
    else:
        files = [
            (f"{change.old_path} -> {change.path}" if change.old_path else change.path, _lines(change))
            for change in changes
        ]
    return {
        "iteration": row.iteration,
        "hypothesis": summary.hypothesis_text(row),
        "commit": row.candidate_commit[:12],
        "files": files[:PATHS_SHOWN],
        "left_out": max(0, len(files) - PATHS_SHOWN),
    }


def _lines(change: FileChange) -> str:
    if change.added_lines is None or change.deleted_lines is None:
        return "binary"
    return f"+{change.added_lines} -{change.deleted_lines}"


def _budget(state: ExperimentState) -> list[Fact]:
    shown: dict[str, tuple[str, Callable[[Any], str]]] = {
        "trials": ("Trials", str),
        "runs": ("Measured runs", str),
        "wall_seconds": ("Wall clock", duration_text),
        "cost_usd": ("Cost, as reported", "${:.2f}".format),
        "disk_bytes": ("Disk", lambda size_bytes: f"{size_bytes / 2**20:.0f} MiB"),
    }
    facts = []
    for key, (name, text) in shown.items():
        used, limit = text(getattr(state.usage, key)), getattr(state.config.limits, key)
        facts.append(Fact(name, f"{used} of {text(limit)}" if limit else used))
    return facts


def _isolations(state: ExperimentState, material: ReportMaterial) -> tuple[str, ...]:
    if material.origin:
        return ("unknown: this runtime ran nothing",)
    names = material.isolations or (state.isolation,)
    return tuple(_ISOLATION.get(name, name) for name in dict.fromkeys(names))


# --- The table of trials for other programs: JSON lines, CSV, and the events as they stand in the log.
#
# JSON lines are the lossless form: one object a trial, the same keys in the same order, strict UTF-8. CSV is for
# spreadsheets and data frames: RFC 4180, UTF-8 without a mark, every text that a spreadsheet could
# take for a formula behind an apostrophe. Both hold every field of every trial, the running one too.

MINIMUM_FIELDS = (
    "iteration", "hypothesis_id", "description", "status", "metric", "samples", "improvement", "cost_usd",
    "duration_seconds", "checkpoint", "candidate_commit", "reason",
)  # fmt: skip
"""The fields of a trial that every host shows; the first columns, in this order."""

SPREAD_COLUMNS = 100
"""Names of secondary metrics, and of the host's metadata, that get a column of their own; the rest stays together."""

EVENTS_LIMIT_BYTES = 1024 * 1024 * 1024
_SPREAD = ("others", "metadata")
_FORMULA_OPENINGS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001  # meant: spreadsheets take the wide forms too


class TrialTable(NamedTuple):
    """Trials as rows of flat cells; the columns are the same for every row, lists and objects are JSON text."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]


class ExportedEvents(NamedTuple):
    """The whole lines of an experiment's log, byte for byte, and the size of an unfinished last line left out."""

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
    names = {kind: _spread_names(record[kind] for record in records) for kind in _SPREAD}
    first = records[0] if records else {"experiment_id": "", **_ordered(to_plain(_EMPTY)), **_units(state)}
    columns = [name for name in first if name not in _SPREAD]
    for kind in _SPREAD:
        columns += [f"{kind}.{name}" for name in names[kind]]
        columns.append(kind)
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
        "improvement_scale": summary.effect_scale(state),
    }


def _spread_names(values: Iterable[dict[str, Any]]) -> Sequence[str]:
    """The names that most rows have, at most `SPREAD_COLUMNS`, in the order of the alphabet."""
    counts = Counter(name for value in values for name in value)
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:SPREAD_COLUMNS])


def _flat(record: dict[str, Any], names: dict[str, Sequence[str]]) -> dict[str, Any]:
    cells = {name: _plain_cell(value) for name, value in record.items() if name not in _SPREAD}
    for kind in _SPREAD:
        rest = dict(record[kind])
        for name in names[kind]:
            cells[f"{kind}.{name}"] = _plain_cell(rest.pop(name, None))
        cells[kind] = _plain_cell(rest) if rest else None
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
        **report_facts(state, material),
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
        **report_facts(state, material),
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


def step_changes(state: ExperimentState, worktrees: WorktreePair) -> dict[str, tuple[FileChange, ...]]:
    """For `ReportMaterial.changes`: the files of every accepted step, by its checkpoint.

    Raises:
        WorkspaceFault: a checkpoint is missing.
    """
    return {
        row.candidate_commit: worktrees.changes(row.checkpoint, row.candidate_commit)
        for row in summary.steps_of(state)
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
    return one_line(text, limit)


def plain_block(text: str) -> str:
    """Several lines of printable characters."""
    return "\n".join(printable(line, keep="\t") for line in text.splitlines()).strip("\n")


def markdown_text(text: str) -> str:
    """Our own sentence, with names in it, as Markdown that reads the same."""
    return _MARKS.sub(r"\\\1", plain(text, 10_000))


def markdown_code(text: str) -> str:
    """A foreign text as one code span; ``-`` for an empty one."""
    return _span(plain(text))


def markdown_cell(text: str) -> str:
    """A foreign text as one code span in one cell of a table; ``-`` for an empty one."""
    # A backslash before a bar would take away the bar's own escape where tables are split into cells.
    return _span(plain(text).replace("\\|", "\\ |").replace("|", "\\|"))


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
