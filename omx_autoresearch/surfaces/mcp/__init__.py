"""The tools for agents: an MCP server on stdin and stdout, ``omx-autoresearch mcp``.

    server              the server and its instructions
    tools               what each tool of a mission does; every one has a twin on the command line
    experiment_tools    the same for experiments
    session_tools       the older session tools
    calls               who calls, whether its client has a sandbox, what a tool is made of, and how an error is told

A tool answers with the document that its twin prints with ``--json``; a client gets its JSON Schema. A client starts
the server outside of its sandbox, so it does what the agent's own shell may not: it writes the journal. It runs the
commands of the mission's contract as the hook does, and never anything that a model supplies.
"""

from __future__ import annotations
