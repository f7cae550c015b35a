"""The report of an experiment, for the person who decides whether to accept: Markdown and HTML, from the same facts.

One number is quoted as a result, the verified claim; without one the report says so. Everything that a model wrote is
text in both forms. The HTML is one file without script or outside reference, the plot a picture in it.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from omx_autoresearch import templates
from omx_autoresearch.core.agent_reports import harmless_line
from omx_autoresearch.core.experiment_summary import steps_of
from omx_autoresearch.core.values import replace
from omx_autoresearch.errors import UsageError
from omx_autoresearch.runtime.experiments.exports import trials_csv
from omx_autoresearch.runtime.experiments.plots import COLOURS, plot_specification, render_plot
from omx_autoresearch.runtime.experiments.report_facts import ReportMaterial, plain_facts, report_facts

if TYPE_CHECKING:
    from omx_autoresearch.core.experiments import ExperimentState
    from omx_autoresearch.system.patches import FileChange
    from omx_autoresearch.system.worktrees import Workspaces


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
