"""``hook CLIENT``: one hook event on stdin, the client's JSON or nothing on stdout."""

from __future__ import annotations

import os

import click

from omx_autoresearch.agents.registry import CLIENT_NAMES


@click.command("hook")
@click.argument("client", type=click.Choice(CLIENT_NAMES))
def hook_verb(client: str) -> int:
    """Answer one hook event, as the installed hook does: the client's JSON or nothing, exit 0.

    Ends with 1 on a fault that could not even be reported, and never with 2.
    """
    from omx_autoresearch.storage.layout import state_home
    from omx_autoresearch.surfaces import hook

    return hook.main(["hook", state_home(os.environ), client])
