"""The tools for agents: an MCP server on stdin and stdout, ``omx-autoresearch mcp``.

    server              the server and its instructions
    tools               the tools of a mission; each has a counterpart on the command line
    experiment_tools    the same for experiments
    session_tools       the older session tools
    calls               the caller of a tool and its sandbox, making a tool, and reporting errors

A tool returns the document that its counterpart prints with ``--json``; the client gets its JSON Schema. A client
starts the server outside its sandbox, so the server may write the journal, unlike the agent's own shell. It runs the
commands of the mission's contract as the hook does, and never a command that a model supplies.
"""

from __future__ import annotations
