"""The server: its name, what it tells the agent about itself, and its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from omx_autoresearch import __version__
from omx_autoresearch.agents.parts.tools import NAME
from omx_autoresearch.surfaces.mcp import experiment_tools, session_tools
from omx_autoresearch.surfaces.mcp.calls import server_runtime
from omx_autoresearch.surfaces.mcp.tools import Tools

if TYPE_CHECKING:
    from omx_autoresearch.journal.layout import Runtime

INSTRUCTIONS = (
    "A mission holds this session until its completion contract is met by evidence that the runtime itself produced or "
    "checked; what you write is kept as a claim. Record what you observe (finding_add), declare what you try next "
    "(direction_add), ask what is missing (readiness), and run the contract's validator (validate). If a person must "
    "act first, say so with block. Every answer names the next step."
)
LOOKING = ("status", "finding_list", "direction_list", "criterion_list", "readiness", "wait")
WRITING = ("finding_add", "direction_add", "note", "block", "start")
RUNNING = ("validate", "review")


def build_server(runtime: Runtime, *, has_session_tools: bool = False) -> MCPServer:
    """The server over one state home, not yet running; the older session tools only where the owner asked for them."""
    instructions = INSTRUCTIONS + experiment_tools.INSTRUCTIONS
    instructions += session_tools.INSTRUCTIONS if has_session_tools else ""
    server = MCPServer(NAME, instructions=instructions, version=__version__, log_level="ERROR")
    tools = Tools(runtime)
    for name in (*LOOKING, *WRITING, *RUNNING):
        hints = ToolAnnotations(
            read_only_hint=name in LOOKING,
            destructive_hint=False,
            idempotent_hint=name not in ("finding_add", "direction_add", "validate", "review"),
            open_world_hint=False,
        )
        server.add_tool(getattr(tools, name), name=name, annotations=hints, structured_output=True)
    experiment_tools.add_experiment_tools(server, runtime)
    if has_session_tools:
        session_tools.add_session_tools(server, runtime)
    return server


def serve(home_path: str = "", *, has_session_tools: bool = False) -> None:
    """Answer a client on stdin and stdout until it closes them.

    Args:
        home_path: the state home; empty for the environment's.
        has_session_tools: serve the older session tools as well.
    """
    build_server(server_runtime(home_path), has_session_tools=has_session_tools).run("stdio")
