"""The tools for agents: an MCP server on stdin and stdout, ``omx-autoresearch mcp``.

    server       the server, its instructions, its tools by name
    tools        what each tool does; every one has a twin on the command line
    calls        who calls, whether its client has a sandbox, and how an error is told
    results      what the tools answer, typed; a client gets the JSON Schema of each

A client starts it outside of its sandbox, so it does what the agent's own shell may not: it writes the journal. It runs
the commands of the mission's contract as the hook does, and never anything that a model supplies.
"""

from __future__ import annotations
