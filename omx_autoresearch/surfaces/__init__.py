"""The doors: the hook process, the status line, the command line, the tools (MCP).

Each parses its input, calls one use case, and renders a view. Begin with ``hook``.
"""
