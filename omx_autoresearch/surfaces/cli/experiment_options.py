"""The options of ``experiment start``; one that is left out leaves the word to the file, or to the default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omx_autoresearch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_OPTIONS = (
    click.option(
        "--metric", metavar="NAME", help="What is measured: the line `METRIC NAME=VALUE` of --measure."
    ),
    click.option(
        "--measure", metavar="COMMAND", help="Shell command that measures; it is frozen with its files."
    ),
    click.option(
        "--check", metavar="COMMAND", help="Shell command that says whether a candidate still works."
    ),
    click.option(
        "--direction", type=click.Choice(("lower", "higher")), help="Which way is better.  [default: lower]"
    ),
    click.option(
        "--source", metavar="SOURCE", help="line, wall, cpu, memory, exit, or json:PATH.  [default: line]"
    ),
    click.option("--unit", metavar="UNIT", help="Of the metric, for people."),
    click.option("--name", metavar="TEXT", help="Of the experiment.  [default: the metric's]"),
    click.option(
        "--guard",
        multiple=True,
        metavar="RULE",
        help="Must hold, too: `name<=bound`, `name:+5%` (may rise by 5 %), `name:-5%`, `name:+5` (by 5 of its unit). "
        "May be repeated.",
    ),
    click.option("--budget-trials", type=int, metavar="N", help="Hypotheses; 0 for no limit.  [default: 40]"),
    click.option(
        "--budget-hours", type=float, metavar="H", help="Hours of work; 0 for no limit.  [default: 0]"
    ),
    click.option(
        "--budget-cost",
        type=float,
        metavar="USD",
        help="What the agents may cost, as they report it.  [default: no limit]",
    ),
    click.option("--budget-runs", type=int, metavar="N", help="Measured runs; 0 for no limit.  [default: 0]"),
    click.option(
        "--budget-disk",
        metavar="SIZE",
        help="Of the experiment's folder, such as 2GiB; 0 for no limit.  [default: 0]",
    ),
    click.option("--target", type=float, metavar="VALUE", help="End once the metric verifiably reaches it."),
    click.option("--setup", metavar="COMMAND", help="Run after a worktree's files changed; not measured."),
    click.option("--reset-caches", metavar="COMMAND", help="Run before each measured run; not measured."),
    click.option(
        "--held-out",
        metavar="PATH",
        help="A check that no agent is shown: an executable, or a folder with one.",
    ),
    click.option(
        "--protect", multiple=True, metavar="GLOB", help="Freeze these files, too. May be repeated."
    ),
    click.option(
        "--keep", multiple=True, metavar="PATH", help="An ignored path that --setup makes; it stays."
    ),
    click.option(
        "--link",
        multiple=True,
        metavar="PATH",
        help="An ignored path of your checkout to be seen in the worktrees.",
    ),
    click.option(
        "--env", multiple=True, metavar="NAME=VALUE", help="A variable of every command. May be repeated."
    ),
    click.option(
        "--rule",
        type=click.Choice(("hybrid", "median")),
        help="How a candidate is judged.  [default: hybrid]",
    ),
    click.option(
        "--alpha",
        type=float,
        metavar="P",
        help="Chance of accepting no effect, before re-verification.  [default: 0.01]",
    ),
    click.option(
        "--max-pairs", type=int, metavar="N", help="Pairs after which hybrid decides.  [default: 30]"
    ),
    click.option("--min-effect", metavar="GAIN", help="A gain must exceed this: 0.02 or 2%.  [default: 0]"),
    click.option(
        "--scale", type=click.Choice(("auto", "ratio", "difference")), help="Of a gain.  [default: auto]"
    ),
    click.option("--runs", type=int, metavar="N", help="Runs that median judges.  [default: 5]"),
    click.option(
        "--warmups", type=int, metavar="N", help="Runs discarded after a change of files.  [default: 1]"
    ),
    click.option(
        "--calibration-pairs", type=int, metavar="N", help="Pairs of the base against itself.  [default: 15]"
    ),
    click.option("--claim-pairs", type=int, metavar="N", help="Pairs of base against final.  [default: 30]"),
    click.option(
        "--reverification",
        type=click.Choice(("auto", "on", "off")),
        help="Judge an accepted candidate again on fresh pairs.  [default: auto]",
    ),
    click.option(
        "--sandbox",
        type=click.Choice(("none", "auto", "bubblewrap")),
        help="What isolates the commands; the owner's choice.  [default: none]",
    ),
    click.option("--timeout", type=float, metavar="SECONDS", help="Of one measured run.  [default: 600]"),
    click.option(
        "--check-timeout", type=float, metavar="SECONDS", help="Of one check or set-up.  [default: --timeout]"
    ),
    click.option(
        "--agent-timeout", type=float, metavar="SECONDS", help="Of one agent session.  [default: 3600]"
    ),
    click.option("--seed", type=int, metavar="N", help="Of the order within pairs.  [default: 0]"),
)
"""In the order of reading; the names are those of the ``experiment:`` block, with ``-`` for ``_``."""


def start_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every option that configures an experiment."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def given_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, by the names of the block.

    Raises:
        UsageError: a variable is no ``NAME=VALUE``.
    """
    options = {name: value for name, value in given.items() if value is not None and value != ()}
    if "env" in options:
        options["env"] = dict(map(_variable, options["env"]))
    return options


def _variable(text: str) -> tuple[str, str]:
    name, is_given, value = text.partition("=")
    if not is_given:
        raise UsageError(f"--env is NAME=VALUE, received {text[:80]!r}", next_step="--env LEVEL=3")
    return name, value
