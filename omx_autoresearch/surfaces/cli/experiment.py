"""Experiments on the command line: which one a verb means, its status, list, workspace, and live progress.

During the work a terminal shows a live table with the current run, a sparkline, and the remaining budget; a pipe gets
one line per event. Both go to stderr, so that stdout holds the answer alone.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import click

from omx_autoresearch.experiments.judge.calibration import known_effect, too_few_pairs
from omx_autoresearch.experiments.judge.summary import (
    HELD_OUT_FAILED,
    effect_words,
    ending_words,
    figure,
    kind_of,
    left_words,
    quoted_claim,
    row_text,
)
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.experiments.views import (
    NEXT_START,
    ExperimentLine,
    ExperimentView,
    candidate_path,
    find_experiment,
    list_views,
    next_command,
    reopening_command,
    view,
    view_of,
)
from omx_autoresearch.foundation.errors import StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.foundation.text import count_of, harmless, one_line
from omx_autoresearch.surfaces.cli.console import (
    Caller,
    Document,
    json_option,
    print_json,
    print_rows,
    print_table,
    say,
    tell,
    this_caller,
    verb,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, TextIO

    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

    from omx_autoresearch.experiments.judge.state import ExperimentState, TrialRow
    from omx_autoresearch.experiments.reports.pages import ReportMaterial
    from omx_autoresearch.experiments.store import ExperimentFolder


STYLES = {"accepted": "green", "rejected": "dim", "failed": "yellow", "tampered": "red", "running": "cyan"}
HEADER = ("TRIAL", "RESULT", "METRIC", "EFFECT", "PAIRS", "COST", "HYPOTHESIS")
LIVE_ROWS = 12
SPARKLINE_WIDTH = 40
BAR_WIDTH = 20
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-=*#"
_RESULT_CHARACTERS = 28
_DETAIL_LINES = 12
_REASON_ROWS = 12
_REASON_CHARACTERS = 200
_GAP = 2
"""Columns of a screen between two of a table."""


# --- which experiment is meant


experiment_argument = click.argument("named", default="", required=False, metavar="[ID]")
"""``[ID]``, optional: the only experiment of this project that has not ended, else its newest."""
auto_log_option = click.option(
    "--auto-log",
    default="",
    metavar="PATH",
    help="Read an existing .auto/ log instead: the file, or the project that has it.",
)


@dataclass(frozen=True, slots=True)
class Meant:
    """One experiment that a verb means.

    Attributes:
        caller: who typed the verb.
        store: of experiments.
        experiment_id: which one.
    """

    caller: Caller
    store: ExperimentStore
    experiment_id: str

    @property
    def folder(self) -> ExperimentFolder:
        """Its folder."""
        return self.store.folder(self.experiment_id)

    def load(self) -> ExperimentState:
        """Its state, as its log says."""
        return self.store.load(self.experiment_id)

    def workspace_path(self) -> str:
        """The candidate's worktree; empty where it is gone."""
        return candidate_path(self.caller.runtime, self.experiment_id)

    def view(self) -> ExperimentView:
        """How it stands."""
        return view(self.caller.runtime, self.load())

    def require_owner(self, verb: str) -> None:
        """Let the owner pass.

        Raises:
            OwnerOnly: this runs inside an agent; recorded in the experiment's mission, where it has one.
        """
        from omx_autoresearch.missions.lifecycle_commands import require_owner

        require_owner(self.caller.runtime, f"experiment {verb}", self.load().task_id)


def meant(named: str, *, is_open: bool = False, option: str = "") -> Meant:
    """The experiment that a verb means.

    Args:
        named: an id, its unique beginning, its slug, or a mission; empty for the one of this project.
        is_open: the verb needs an experiment that has not ended.
        option: what stands before its name, with a space; empty where it stands behind the verb.

    Raises:
        UsageError: none or several can be meant; they are named.
        StepIllegal: the named one has ended, and ``is_open``.
    """
    caller = this_caller()
    state = find_experiment(caller.runtime, named, cwd=caller.cwd, task_id=caller.held_task(), option=option)
    if is_open and state.phase == "completed":
        if named:
            raise ended(state)
        raise UsageError(
            f"no experiment of this project is under way; the newest, {state.experiment_id}, has ended",
            next_step=reopening_command(state) or NEXT_START,
        )
    return Meant(caller, ExperimentStore(caller.runtime.home), state.experiment_id)


def ended(state: ExperimentState) -> StepIllegal:
    """The refusal to go on with an experiment that has ended; its next command is legal then."""
    said = f"{state.experiment_id} has ended ({ending_words(state.completed_reason)})"
    if reopening := reopening_command(state):
        return StepIllegal(f"{said}; only more of a spent budget lets it go on", next_step=reopening)
    if state.completed_reason == "target_reached":
        next_step = f"omx-autoresearch experiment resume {state.experiment_id} --target VALUE"
        return StepIllegal(f"{said}; only another target lets it go on", next_step=next_step)
    return StepIllegal(
        f"{said} for good; its log and its accepted changes stay", next_step=next_command(state)
    )


def material_of(named: str, auto_log: str) -> tuple[ExperimentState, ReportMaterial, Meant | None]:
    """The state that is meant, and what else is known of it; an ``.auto/`` log has no experiment."""
    from omx_autoresearch.experiments.reports.pages import (
        ReportMaterial,  # `list` and `status` make no report
    )

    if not auto_log:
        found = meant(named)
        return found.load(), ReportMaterial(), found
    from omx_autoresearch.compat.auto_history import read_auto_log

    if named:
        raise UsageError("both an experiment and an .auto/ log were named", next_step="leave one of them out")
    log = read_auto_log(os.path.join(this_caller().cwd, auto_log))
    if not log.sessions:
        raise UsageError(f"{log.path} has no valid run", next_step="name another log")
    earlier = len(log.sessions) - 1
    older = (f"{count_of(earlier, 'earlier session')} of the log left out",) if earlier else ()
    material = ReportMaterial(origin=log.origin, faults=(*log.faults, *log.notes, *older))
    return log.sessions[-1], material, None


# --- how it is shown


def print_experiment(state: ExperimentState, document: ExperimentView) -> None:
    """The page of one experiment, for people."""
    metric = state.config.metric
    unit = f" ({metric.unit})" if metric.unit else ""
    quoted = quoted_claim(state)
    spent = (
        f"{count_of(state.usage.trials, 'trial')}, {count_of(state.usage.runs, 'run')}, "
        f"{state.usage.wall_seconds / 3600:.2f} h, ${state.usage.cost_usd:.2f}"
    )
    print_rows(
        [
            ("experiment", state.experiment_id, "bold"),
            ("mission", state.task_id, ""),
            ("phase", phase_words(state, is_at_work=document.is_at_work), ""),
            ("metric", f"{metric.name}{unit}, {metric.direction} is better", ""),
            ("baseline", figure(state.baseline, metric.unit) if state.baseline is not None else "", ""),
            ("noise", noise_words(state), ""),
            ("result", quoted.sentence, "green" if quoted.has_gain else ""),
            ("warning", "\n".join(document.warnings), "yellow"),
            ("spent", spent, ""),
            ("left", ", ".join(left_words(state)), ""),
            ("isolation", state.isolation if state.usage.runs else "", ""),
            ("workspace", document.workspace_path, "dim"),
            ("files", document.session_path, "dim"),
            ("next", document.next, "bold"),
        ]
    )
    if state.rows:
        say("")
        print_trials(state)
        for line in reason_lines(state.rows):
            say(line)


def phase_words(state: ExperimentState, *, is_at_work: bool) -> str:
    """The phase of an experiment in words."""
    if state.phase == "completed":
        return f"completed: {ending_words(state.completed_reason)}"
    if is_at_work:
        return f"{state.phase}, process {state.controller_pid} works on it"
    if state.controller_pid:
        return f"{state.phase}, but no process works on it, because its controller was killed"
    return "started; the base has not been measured yet" if state.phase == "started" else state.phase


def noise_words(state: ExperimentState) -> str:
    """The noise that calibration found; empty before calibration."""
    calibration = state.calibration
    if calibration is None:
        return ""
    if calibration.regime == "deterministic":
        return "none; every run gave the same value"
    is_ratio = calibration.scale == "ratio"
    factor, unit = (100.0, " %") if is_ratio else (1.0, f" {state.config.metric.unit}".rstrip())
    words = f"{factor * calibration.noise:.3g}{unit} a run"
    if few := too_few_pairs(calibration):
        return f"about {words}, but {few}"
    if smallest := known_effect(calibration):
        words += f"; a gain of {factor * smallest:.3g}{unit} is usually detected"
    return f"{words} ({calibration.regime})"


def print_trials(state: ExperimentState) -> None:
    """The table of trials: columns on a terminal, tab-separated lines elsewhere."""
    rows = [trial_cells(state, row) for row in state.rows]
    print_table(HEADER, rows, [STYLES[kind_of(row)] for row in state.rows])


def trial_cells(state: ExperimentState, row: TrialRow) -> tuple[str, ...]:
    """One trial as the cells of a table."""
    return (
        str(row.iteration),
        result_words(row),
        "" if row.metric is None else f"{row.metric:.6g}",
        effect_words(state, row),
        str(row.pairs) if row.pairs else "",
        f"${row.cost_usd:.2f}" if row.cost_usd else "",
        row_text(row),
    )


def result_words(row: TrialRow) -> str:
    """How a trial ended: ``accepted``, ``rejected: not better``."""
    if row.status == "accepted" or not row.reason_code:
        return row.status
    return f"{row.status}: {one_line(row.reason_code.replace('_', ' '))}"[:_RESULT_CHARACTERS]


def trial_line(state: ExperimentState, row: TrialRow) -> str:
    """One ended trial as a line for a log."""
    effect = effect_words(state, row)
    parts = [
        f"trial {row.iteration} {result_words(row)}",
        effect and f"{effect} in {count_of(row.pairs, 'pair')}",
        f"{row.duration_seconds:.0f} s",
        row.cost_usd and f"${row.cost_usd:.2f}",
        row_text(row),
    ]
    return harmless(", ".join(str(part) for part in parts if part))


def why_lines(row: TrialRow) -> tuple[str, ...]:
    """Why a trial was not accepted, and the end of what the command printed that failed, for people."""
    if row.status == "accepted" or not row.reason:
        return ()
    shown = harmless(row.detail).splitlines()[-_DETAIL_LINES:]
    return (f"  {harmless(row.reason)}", *[f"    {line}" for line in shown])


def reason_lines(rows: Sequence[TrialRow]) -> list[str]:
    """Why the newest trials without a judgement ended so, a trimmed line each; what a judge said is in the table."""
    told = [row for row in rows if row.status in ("rejected", "failed") and row.reason and not row.interval]
    lines = [f"trial {row.iteration}: {_short_reason(row)}" for row in told[-_REASON_ROWS:]]
    return ["", *lines] if lines else []


def _short_reason(row: TrialRow) -> str:
    if row.reason_code == HELD_OUT_FAILED:  # agents read this, too
        return "the held-out check failed"
    text = one_line(row.reason)
    return text if len(text) <= _REASON_CHARACTERS else f"{text[: _REASON_CHARACTERS - 1]}…"


def sparkline(values: Sequence[float], *, width: int = SPARKLINE_WIDTH, blocks: str = _BLOCKS) -> str:
    """The newest values as blocks between the smallest and the largest; empty for none."""
    shown = list(values)[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    top = len(blocks) - 1
    return "".join(
        blocks[round((value - low) / (high - low) * top) if high > low else top // 2] for value in shown
    )


def progress_bar(state: ExperimentState, *, is_ascii: bool = False, width: int = BAR_WIDTH) -> str:
    """How much of the scarcest limit is spent, as a bar with its share; empty where nothing is limited."""
    limits, usage = state.config.limits, state.usage
    shares = [
        getattr(usage, item.name) / getattr(limits, item.name)
        for item in fields(limits)
        if getattr(limits, item.name)
    ]
    if not shares:
        return ""
    share = min(1.0, max(shares))
    full, rest = ("#", "-") if is_ascii else ("━", "─")
    done = round(share * width)
    return f"{full * done}{rest * (width - done)} {100 * share:.0f} %  "


# --- while it works


class LineProgress:
    """One line an event that says something, for pipes and plain terminals; the claim is every verb's answer."""

    def __init__(
        self, state_of: Callable[[], ExperimentState], *, is_quiet: bool = False, is_row_answer: bool = False
    ) -> None:
        self._state_of = state_of
        self._is_quiet = is_quiet
        self._is_row_answer = is_row_answer

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __call__(self, event: dict[str, Any]) -> None:
        """Say what happened."""
        line = "" if self._is_quiet else self._line(event)
        if line:
            tell(line)

    def note(self, text: str) -> None:
        """A line of the caller's."""
        if not self._is_quiet:
            tell(text)

    def _line(self, event: dict[str, Any]) -> str:
        state, kind = self._state_of(), event["type"]
        if kind == "iteration":
            words = " ".join((event["description"] or event["hypothesis_id"]).split())
            return harmless(f"trial {event['iteration']} begins: {words}")
        if kind in ("accepted", "rejected", "failed"):
            return "" if self._is_row_answer else trial_line(state, state.rows[-1])
        if kind == "baseline":
            words = noise_words(state)
            return f"baseline {figure(event['metric'], state.config.metric.unit)}; noise {words}"
        if kind == "completed":
            return f"completed: {ending_words(str(event['reason']))}"
        return ""


class LiveProgress:
    """A table that lives, at a terminal."""

    def __init__(self, state_of: Callable[[], ExperimentState], stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._state_of = state_of
        self._step = ""
        self._console = Console(file=stream, no_color=bool(os.environ.get("NO_COLOR")))
        encoding = (stream.encoding or "").lower().replace("-", "")
        self._blocks = _BLOCKS if encoding == "utf8" else _ASCII_BLOCKS
        self._live: Live = Live(console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.update(self._page(), refresh=True)
        self._live.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show what happened."""
        self._step = step_words(self._state_of(), event) or self._step
        self._live.update(self._page())

    def note(self, text: str) -> None:
        """A line of the caller's, above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def _page(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        state = self._state_of()
        values = [row.metric for row in state.rows if row.metric is not None]
        curve = sparkline(values, blocks=self._blocks)
        left = ", ".join(left_words(state)) or "no limit"
        bar = progress_bar(state, is_ascii=self._blocks is not _BLOCKS)
        lines = [f"{state.experiment_id}  {curve}".rstrip(), f"{bar}left: {left}", self._step]
        return Group(self._table(state), *(Text(harmless(line), style="dim") for line in lines if line))

    def _table(self, state: ExperimentState) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        rows = [(trial_cells(state, row), STYLES[kind_of(row)]) for row in state.rows[-LIVE_ROWS:]]
        if len(state.rows) > LIVE_ROWS:
            rows.insert(0, ((f"+{len(state.rows) - LIVE_ROWS}", *("" for _ in HEADER[1:])), "dim"))
        taken = 0
        for number, title in enumerate(HEADER[:-1]):
            width = max(len(title), *(len(cells[number]) for cells, _ in rows)) if rows else len(title)
            table.add_column(title, no_wrap=True, min_width=width)
            taken += width + _GAP
        table.add_column(HEADER[-1], no_wrap=True)
        left = max(len(HEADER[-1]), self._console.width - taken)
        for cells, style in rows:  # figures stand whole: the last column gives way
            text = cells[-1] if len(cells[-1]) <= left else f"{cells[-1][: left - 1]}…"
            table.add_row(*(Text(cell) for cell in (*cells[:-1], text)), style=style)
        return table


def step_words(state: ExperimentState, event: dict[str, Any]) -> str:
    """The current step according to the newest event; empty if the event does not tell."""
    kind = event["type"]
    if kind == "iteration":
        return f"trial {event['iteration']}: the agent works"
    if kind == "made":
        return f"trial {event['iteration']}: checks"
    if kind == "measured":
        return _run_words(state, event)
    if kind in ("accepted", "rejected", "failed"):
        return f"trial {event['iteration']} {event['status']}"
    if kind == "completed":
        return f"completed: {ending_words(str(event['reason']))}"
    return ""


def _run_words(state: ExperimentState, event: dict[str, Any]) -> str:
    stage = str(event["stage"]).replace("_", " ")
    arm = event["arm"]
    where = {0: "baseline", -1: "base against final"}.get(event["iteration"], f"trial {event['iteration']}")
    if event["iteration"] < 0:
        arm = {"incumbent": "base", "candidate": "final"}[arm]
    most = {
        "calibration": state.config.calibration_pairs,
        "claim": state.config.claim_pairs,
        "trial": state.config.rule.max_pairs,
        "reverification": state.config.rule.max_pairs,
    }.get(event["stage"])
    pair = f", pair {event['pair']} of at most {most}" if event["pair"] and most else ""
    value = f": {event['value']:.6g}" if event["value"] is not None else ""
    fault = f": {event['fault']}" if event["fault"] else ""
    return f"{where}: {stage} of the {arm}{pair}{value}{fault}"


def progress_for(
    state_of: Callable[[], ExperimentState], *, as_json: bool, is_row_answer: bool = False
) -> LineProgress | LiveProgress:
    """What shows the work: a live table where stderr is a capable terminal, lines elsewhere, nothing with --json.

    With ``is_row_answer`` the ended trial is the verb's answer on stdout, and no line beside it.
    """
    if not as_json and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb"):
        return LiveProgress(state_of, sys.stderr)
    return LineProgress(state_of, is_quiet=as_json, is_row_answer=is_row_answer)


EXPERIMENT = Document("experiment", ExperimentView)
"""A verb that takes an experiment a step further prints this, too."""


@verb("experiment status", EXPERIMENT)
@experiment_argument
@auto_log_option
@json_option
def experiment_status(named: str, auto_log: str, as_json: bool) -> None:
    """Show the state of an experiment: the quotable result, the remaining budget, and every trial."""
    if auto_log:
        _show_auto_log(named, auto_log, as_json=as_json)
        return
    found = meant(named)
    document = found.view()
    if as_json:
        print_json(document)
    else:
        print_experiment(found.load(), document)


def _show_auto_log(named: str, auto_log: str, *, as_json: bool) -> None:
    """The newest session of a log that is not ours, as an experiment has its page, and what it is not."""
    state, material, _ = material_of(named, auto_log)
    document = view_of(state)
    notes = (material.origin, *material.faults)
    next_command = f"omx-autoresearch experiment report --auto-log {shlex.quote(auto_log)}"
    document = replace(document, warnings=(*document.warnings, *notes), next=next_command)
    if as_json:
        print_json(document)
        return
    print_experiment(state, document)
    for note in notes:
        tell(f"note: {note}")


@verb("experiment list", Document("experiment-list", tuple[ExperimentLine, ...]))
@json_option
def experiment_list(as_json: bool) -> None:
    """Show every experiment of every project, newest first."""
    lines = list_views(this_caller().runtime)
    if as_json:
        print_json(lines)
    elif not lines:
        say(f"No experiment yet.\n  next: {NEXT_START}")
    else:
        _print_list(lines)


def _short(line: ExperimentLine) -> str:
    """The result in the room that a table has: a number keeps its `Verified`, and a missing one gives no reason."""
    if line.completed_reason == "failure":
        return "the unchanged project could not be measured" if not line.trials else "it failed"
    return line.result.partition(": base and final")[0].partition(" (")[0].rstrip(".")


def _project_words(path: str) -> str:
    """A project's folder as a person writes it."""
    home = os.path.join(os.path.expanduser("~"), "")
    return (f"~/{path.removeprefix(home)}" if path.startswith(home) else path).replace("\n", " ")


def _print_list(lines: tuple[ExperimentLine, ...]) -> None:
    rows = [
        (
            line.experiment_id,
            ending_words(line.completed_reason) or line.phase,
            str(line.trials),
            str(line.accepted),
            _project_words(line.project_path),
            " ".join((line.fault or _short(line)).split()),
        )
        for line in lines
    ]
    styles = ["red" if line.fault else "cyan" if line.is_at_work else "" for line in lines]
    print_table(("EXPERIMENT", "PHASE", "TRIALS", "ACCEPTED", "PROJECT", "RESULT"), rows, styles)


@verb("experiment workspace", EXPERIMENT)
@experiment_argument
@json_option
def experiment_workspace(named: str, as_json: bool) -> None:
    """Print the path of the candidate's worktree. To try your own change, make it there and run `experiment trial`."""
    found = meant(named, is_open=True)
    path = found.workspace_path()
    if not path:
        raise WorkspaceFault(
            f"the worktree of {found.experiment_id} is gone",
            next_step=f"omx-autoresearch experiment resume {found.experiment_id}",
        )
    if as_json:
        print_json(found.view())
    else:
        say(path)
