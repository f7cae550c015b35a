"""The direct-launch forms of the former command: they start nothing and say what to do instead."""

from __future__ import annotations

import os

import click

from omx_autoresearch.errors import UsageError

VERBS = ("launch", "run", "tmux", "loop")
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


def command(name: str) -> click.Command | None:
    """A command that only answers with guidance; None when ``name`` was never a form of ours.

    A folder as the first word was ``MISSION``.
    """
    if name not in VERBS and not os.path.isdir(name):
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
