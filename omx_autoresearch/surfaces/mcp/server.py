"""The server: its name, what it tells the agent about itself, and its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from omx_autoresearch import __version__
from omx_autoresearch.core.tool_servers import NAME
from omx_autoresearch.surfaces.mcp.calls import server_runtime
from omx_autoresearch.surfaces.mcp.tools import Tools

if TYPE_CHECKING:
    from omx_autoresearch.runtime.context import Runtime

INSTRUCTIONS = (
    "A mission holds this session until its completion contract is met by evidence that the runtime itself produced or "
    "checked; what you write is kept as a claim. Record what you observe (finding_add), declare what you try next "
    "(direction_add), ask what is missing (readiness), and run the contract's validator (validate). If a person must "
    "act first, say so with block. Every answer names the next step."
)
LOOKING = ("status", "finding_list", "direction_list", "criterion_list", "readiness", "wait")
WRITING = ("finding_add", "direction_add", "note", "block", "start")
RUNNING = ("validate", "review")


def build_server(runtime: Runtime) -> MCPServer:
    """The server over one state home, not yet running."""
    server = MCPServer(NAME, instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    tools = Tools(runtime)
    for name in (*LOOKING, *WRITING, *RUNNING):
        hints = ToolAnnotations(
            read_only_hint=name in LOOKING,
            destructive_hint=False,
            idempotent_hint=name not in ("finding_add", "direction_add", "validate", "review"),
            open_world_hint=False,
        )
        server.add_tool(getattr(tools, name), name=name, annotations=hints, structured_output=True)
    return server


def serve(home_path: str = "") -> None:
    """Answer a client on stdin and stdout until it closes them.

    Args:
        home_path: the state home; empty for the environment's.
    """
    build_server(server_runtime(home_path)).run("stdio")
