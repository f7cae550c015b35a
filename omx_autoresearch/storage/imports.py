"""Modules of a workspace that pinned Python scripts import although nobody pinned them.

Whether such a module measures or is what is measured, only the owner knows; so they are told by name and not pinned.
"""

from __future__ import annotations

import os

from omx_autoresearch.storage.inside import script_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_SHOWN = 8


def unpinned_imports(workspace_path: str, pinned: Iterable[str]) -> list[str]:
    """One note for each pinned script that imports modules of the workspace which are not pinned.

    Args:
        workspace_path: where the files stand.
        pinned: paths of all pinned files.
    """
    known = set(pinned)
    notes = []
    for path in sorted(known):
        found = [name for name in _imported_paths(workspace_path, path) if name not in known]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            notes.append(
                f"{path} imports {', '.join(found[:_SHOWN])}{more}, taken for the work itself: not pinned"
                f" (--protect {found[0]} pins it)"
            )
    return notes


def _imported_paths(workspace_path: str, path: str) -> list[str]:
    """Files that the imports of a Python script mean, from its own folder and from the root."""
    if not path.endswith(".py"):
        return []
    folders = dict.fromkeys((os.path.dirname(path), ""))
    found: dict[str, None] = {}
    for name in _imported_names(script_text(workspace_path, path, errors="replace")):
        for folder in folders:
            place = os.path.join(folder, *name.split("."))
            hits = (
                each for each in (f"{place}.py", f"{place}/__init__.py") if _is_file(workspace_path, each)
            )
            if hit := next(hits, ""):
                found[hit] = None
                break
    return list(found)


def _imported_names(text: str) -> list[str]:
    """Absolute names that a script imports, parts of packages included; nothing of a text that is no Python."""
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found[node.module] = None
            found.update(dict.fromkeys(f"{node.module}.{alias.name}" for alias in node.names))
    return list(found)


def _is_file(workspace_path: str, path: str) -> bool:
    return os.path.isfile(os.path.join(workspace_path, path))
