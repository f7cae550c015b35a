"""The verbs that an agent CLI starts: hook, statusline, mcp."""

from __future__ import annotations

import os
from importlib.util import find_spec

import click

from omx_autoresearch.foundation.clients import CLIENT_NAMES
from omx_autoresearch.foundation.errors import UsageError
from omx_autoresearch.journal.layout import state_home
from omx_autoresearch.surfaces.cli.console import verb


def has_mcp() -> bool:
    """Whether the MCP server can start here."""
    return find_spec("mcp") is not None


@verb("hook")
@click.argument("client", type=click.Choice(CLIENT_NAMES))
def hook_verb(client: str) -> int:
    """Answer one hook event, as the installed hook does: the client's JSON or nothing, exit 0.

    Exits with 1 on a fault that could not be reported, and never with 2.
    """
    from omx_autoresearch.surfaces import hook

    return hook.main(["hook", state_home(os.environ), client])


@verb("statusline")
def statusline_verb() -> int:
    """Print one line about the mission that holds the session on stdin, or nothing. Never fails.

    Reads the JSON that Claude Code gives a status line: ``session_id`` is enough.
    """
    from omx_autoresearch.surfaces import statusline

    return statusline.main(["statusline", state_home(os.environ), statusline.WORD])


@verb("mcp")
@click.option("--home", default="", metavar="PATH", help="The state home.  [default: the environment's]")
@click.option(
    "--session-tools",
    is_flag=True,
    help="Also serve init_experiment, run_experiment and log_experiment, which measure in the workspace itself.",
)
def mcp_verb(home: str, session_tools: bool) -> None:
    """Serve the tools for agents on stdin and stdout (MCP), until the client closes them.

    `install` registers it with an agent CLI. Needs the extra: pip install omx-autoresearch[mcp].
    """
    if not has_mcp():
        raise UsageError(
            "the tools cannot be served, because the package mcp is missing",
            next_step="pip install 'omx-autoresearch[mcp]'",
        )
    from omx_autoresearch.surfaces.mcp.server import serve

    serve(home, has_session_tools=session_tools)
