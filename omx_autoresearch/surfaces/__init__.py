"""The surfaces: the hook process, the status line, the command line, the tools (MCP).

Each parses its input, calls one use case, and renders a view or a document; none writes a journal itself.
``documents`` and ``experiment_documents`` define what several verbs print and a tool answers. Begin with ``hook``.
"""
