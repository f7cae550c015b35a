"""The direct-launch forms of the former command: they start nothing and say what to do instead."""

from __future__ import annotations

import os
from importlib import import_module

import click

from omx_autoresearch import __version__
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.foundation.records import dataclass

REMOVED_VERBS = ("launch", "run", "tmux", "loop")
"""Former verbs."""
FLAGS = ("--tmux", "--split", "--split-pane", "--detach", "--detached", "--resume", "--launch", "--topic")
"""Former flags, wherever they stand."""

NEXT = (
    "write the mission down with `omx-autoresearch init --goal ... --validator ...`, launch it with "
    "`omx-autoresearch start`, and type in the agent: $autoresearch TASK"
)


def gone(form: str) -> UsageError:
    """The error for a former form, with the way that replaced it."""
    return UsageError(f"`{form}` is gone: nothing is launched from here, no pane is split", next_step=NEXT)


def removed_verb(name: str) -> click.Command | None:
    """A command that only answers with guidance; None when ``name`` was never a form of ours.

    A folder as the first word was ``MISSION``.
    """
    if name not in REMOVED_VERBS and not os.path.isdir(name):
        return None

    @click.command(
        name,
        hidden=True,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.pass_context
    def former(ctx: click.Context) -> None:
        """Answer with guidance."""
        raise gone(" ".join([name, *(word for word in ctx.args if word != "--json")][:3]))

    return former


# --- The verbs, in the order of reading, and a help that imports none of them.
#
# A verb's module is imported when the verb runs (or when its own help is asked for), so that ``--help``, ``--version``
# and shell completion stay quick.

PROGRAM = "omx-autoresearch"


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the command line.

    Attributes:
        name: as typed.
        module: of this package, that holds a click command of this name.
        help: one line.
    """

    name: str
    module: str
    help: str


SECTIONS: tuple[tuple[str, tuple[Verb, ...]], ...] = (
    (
        "Begin",
        (
            Verb("init", "init", "Write down a mission: goal and what completes it"),
            Verb("adopt", "adopt", "Begin a mission from another runtime's task folder"),
            Verb("start", "init", "Launch a mission and print the line to type in the agent"),
            Verb("demo", "demo", "Show a refusal and a release in a scratch repository"),
        ),
    ),
    (
        "Look",
        (
            Verb("status", "status", "Show how a mission stands"),
            Verb("list", "status", "Show every mission"),
            Verb("current", "current", "Show the mission of a session, or of this project"),
            Verb("open", "current", "Print a mission's folder, or reveal it"),
            Verb("wait", "status", "Wait for a running validation"),
            Verb("readiness", "criterion", "Show what a completion still lacks"),
            Verb("findings", "finding", "Show the newest findings, evidence first"),
            Verb("log", "criterion", "Show the newest iterations"),
            Verb("repair", "lifecycle", "Rebuild everything derived from the journal"),
            Verb("doctor", "install", "Prove that a stop would be held"),
        ),
    ),
    (
        "For the agent, too",
        (
            Verb("validate", "validate", "Run the validator now"),
            Verb("review", "validate", "Have the artifact reviewed, or give a verdict"),
            Verb("finding", "finding", "Record what was observed, or look it up"),
            Verb("criterion", "criterion", "Show criteria, have them checked, or accept one"),
            Verb("restore", "validate", "Put the pinned files back as they were frozen"),
            Verb("block", "validate", "Say that a person must act first"),
            Verb("note", "validate", "Leave a note in the mission"),
            Verb("direction", "direction", "Declare what is tried, or show what was"),
        ),
    ),
    (
        "Measure",
        (Verb("experiment", "experiment", "Optimize a metric by trials, keep only what is truly better"),),
    ),
    (
        "For the owner",
        (
            Verb("approve", "lifecycle", "Allow the mission's commands outside a sandbox"),
            Verb("direct", "direction", "Inject a direction for the agent to take up"),
            Verb("excuse", "criterion", "Accept why changed code was not verified"),
            Verb("pause", "lifecycle", "Hold nobody until resume"),
            Verb("resume", "lifecycle", "Go on after a pause"),
            Verb("unblock", "lifecycle", "Go on after a block"),
            Verb("cancel", "lifecycle", "Give the mission up"),
            Verb("amend", "lifecycle", "Change validator, limits or pins of a live mission"),
            Verb("unbind", "lifecycle", "Let the mission's session go"),
            Verb("install", "install", "Put the hooks into an agent CLI's settings"),
            Verb("uninstall", "install", "Take the hooks out again"),
        ),
    ),
    (
        "For the agent CLI",
        (
            Verb("hook", "hook", "Answer one hook event on stdin"),
            Verb("statusline", "hook", "Print the status line of the session on stdin"),
            Verb("mcp", "hook", "Serve the tools for agents (MCP) on stdin and stdout"),
        ),
    ),
)
"""Every verb, by section of the help."""

VERBS: dict[str, Verb] = {verb.name: verb for _, verbs in SECTIONS for verb in verbs}


class _Verbs(click.Group):
    """A group that knows the verbs' names and imports a verb only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb's name."""
        del ctx  # the table knows them all
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The click command of a verb, or the guidance of a former one."""
        del ctx
        if cmd_name in VERBS:
            verb = VERBS[cmd_name]
            module = import_module(f"omx_autoresearch.surfaces.cli.{verb.module}")
            command: click.Command = getattr(module, f"{verb.name}_verb")
            return command

        return removed_verb(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by section, from the table alone."""
        del ctx
        width = max(map(len, VERBS)) + 2
        for title, verbs in SECTIONS:
            with formatter.section(title):
                formatter.write_dl([(verb.name.ljust(width), verb.help) for verb in verbs])


@click.group(
    cls=_Verbs,
    invoke_without_command=True,
    epilog=f"TASK is optional where one mission can be meant. Every verb explains itself: {PROGRAM} VERB --help",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context) -> None:
    """Hold an agent's mission to its completion contract: a stop is refused until evidence exists."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
