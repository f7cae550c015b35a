"""The server: its name, its instructions for the agent, and its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.mcpserver import MCPServer

from omx_autoresearch import __version__
from omx_autoresearch.agents.parts.tools import NAME
from omx_autoresearch.missions.holds import tools_closed
from omx_autoresearch.missions.registry import Registry
from omx_autoresearch.missions.sessions import client_process, sessions_of_process
from omx_autoresearch.surfaces.mcp import experiment_tools, session_tools
from omx_autoresearch.surfaces.mcp.calls import newest_call, server_runtime
from omx_autoresearch.surfaces.mcp.tools import mission_tools
from omx_autoresearch.system.processes import signals

if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime

INSTRUCTIONS = (
    "A mission holds this session until evidence meets its completion contract. Only the runtime produces or checks "
    "evidence; your own statements are kept as claims. Record observations (finding_add), declare the direction that "
    "you try next (direction_add), see which items are missing (readiness), and run the contract's validator "
    "(validate). If a person must act first, call block. Every answer names the next step."
)


def build_server(runtime: Runtime, *, has_session_tools: bool = False) -> MCPServer:
    """The server of one state home, not yet running; with the older session tools only if the owner asked for them."""
    instructions = INSTRUCTIONS + experiment_tools.INSTRUCTIONS
    tools = [*mission_tools(runtime), *experiment_tools.experiment_tools(runtime)]
    if has_session_tools:
        instructions += session_tools.INSTRUCTIONS
        tools += session_tools.session_tools(runtime)
    return MCPServer(NAME, instructions=instructions, version=__version__, log_level="ERROR", tools=tools)


def serve(home_path: str = "", *, has_session_tools: bool = False) -> None:
    """Serve a client on stdin and stdout until it closes them.

    A client that closes them in mid-mission, and whose hooks sent nothing after the newest tool call, holds no session
    any more: that is recorded.

    Args:
        home_path: the state home; empty for the environment's.
        has_session_tools: serve the older session tools as well.
    """
    runtime = server_runtime(home_path)
    process = client_process()
    # As SIGTERM does: cancelled by asyncio, the process would wait for the thread that reads stdin.
    signals.signal(signals.SIGINT, signals.SIG_DFL)
    try:
        build_server(runtime, has_session_tools=has_session_tools).run("stdio")
    finally:
        entries = sessions_of_process(Registry(runtime.home), process) if process else []
        tools_closed(runtime, [entry for entry in entries if not entry.left_at], newest_call[0])
