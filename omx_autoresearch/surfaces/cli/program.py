"""The verbs, in the order of reading, and a help that imports none of them.

A verb's module is imported when the verb runs (or when its own help is asked for), so that ``--help``, ``--version``
and shell completion stay quick.
"""

from __future__ import annotations

from importlib import import_module

import click

from omx_autoresearch import __version__
from omx_autoresearch.core.values import dataclass

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
            Verb("init", "beginning", "Write down a mission: goal and what completes it"),
            Verb("adopt", "adopting", "Begin a mission from another runtime's task folder"),
            Verb("start", "beginning", "Launch a mission and print the line to type in the agent"),
            Verb("demo", "demo", "Show a refusal and a release in a scratch repository"),
        ),
    ),
    (
        "Look",
        (
            Verb("status", "looking", "Show how a mission stands"),
            Verb("list", "looking", "Show every mission"),
            Verb("current", "hosting", "Show the mission of a session, or of this project"),
            Verb("open", "hosting", "Print a mission's folder, or reveal it"),
            Verb("wait", "looking", "Wait for a running validation"),
            Verb("readiness", "criterion", "Show what a completion still lacks"),
            Verb("findings", "finding", "Show the newest findings, evidence first"),
            Verb("log", "criterion", "Show the newest iterations"),
            Verb("repair", "owning", "Rebuild everything derived from the journal"),
            Verb("doctor", "setting_up", "Prove that a stop would be held"),
        ),
    ),
    (
        "For the agent, too",
        (
            Verb("validate", "checking", "Run the validator now"),
            Verb("review", "checking", "Have the artifact reviewed, or give a verdict"),
            Verb("finding", "finding", "Record what was observed, or look it up"),
            Verb("criterion", "criterion", "Show criteria, have them checked, or accept one"),
            Verb("restore", "checking", "Put the pinned files back as they were frozen"),
            Verb("block", "checking", "Say that a person must act first"),
            Verb("note", "checking", "Leave a note in the mission"),
            Verb("direction", "directing", "Declare what is tried, or show what was"),
        ),
    ),
    (
        "Measure",
        (Verb("experiment", "experiment", "Optimize a metric by trials, keep only what is truly better"),),
    ),
    (
        "For the owner",
        (
            Verb("approve", "owning", "Allow the mission's commands outside a sandbox"),
            Verb("direct", "directing", "Inject a direction for the agent to take up"),
            Verb("excuse", "criterion", "Accept why changed code was not verified"),
            Verb("pause", "owning", "Hold nobody until resume"),
            Verb("resume", "owning", "Go on after a pause"),
            Verb("unblock", "owning", "Go on after a block"),
            Verb("cancel", "owning", "Give the mission up"),
            Verb("amend", "amending", "Change validator, limits or pins of a live mission"),
            Verb("unbind", "owning", "Let the mission's session go"),
            Verb("install", "setting_up", "Put the hooks into an agent CLI's settings"),
            Verb("uninstall", "setting_up", "Take the hooks out again"),
        ),
    ),
    (
        "For the agent CLI",
        (
            Verb("hook", "hooking", "Answer one hook event on stdin"),
            Verb("statusline", "hooking", "Print the status line of the session on stdin"),
            Verb("mcp", "hooking", "Serve the tools for agents (MCP) on stdin and stdout"),
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
        from omx_autoresearch.surfaces.cli import former

        return former.command(cmd_name)

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
