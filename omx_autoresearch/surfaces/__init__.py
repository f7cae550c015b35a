"""The doors: the hook process, the status line, the command line, the tools (MCP).

Each parses its input, calls one use case, and renders a view or a document: ``documents`` and ``experiment_documents``
say what ``--json`` prints and a tool answers. Begin with ``hook``.
"""
