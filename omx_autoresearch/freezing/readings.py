"""The files of a workspace that a pinned file reads: what Python imports, and the paths that stand in its texts.

It is read statically, because a baseline that fails stops before it has opened everything.
"""

from __future__ import annotations

import ast
import os

from omx_autoresearch.freezing import evaluator_commands
from omx_autoresearch.journal.safe_files import script_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHOWN = 8
"""A note for the owner names at most so many paths."""
_TEXT_LIMIT = 260


def unpinned_imports(workspace_path: str, pinned: Iterable[str]) -> list[str]:
    """One note for each pinned script that imports modules of the workspace which are not pinned.

    Only the owner knows whether such a module measures or is being measured. So a note names it, and nothing pins it.

    Args:
        workspace_path: where the files stand.
        pinned: paths of all pinned files.
    """
    known = set(pinned)
    notes = []
    for path in sorted(known):
        found = [name for name in imported_paths(workspace_path, path) if name not in known]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            notes.append(
                f"{path} imports {', '.join(found[:SHOWN])}{more}, treated as the work itself and not pinned"
                f" (--protect {found[0]} pins it)"
            )
    return notes


def imported_paths(workspace_path: str, path: str) -> list[str]:
    """Files that a Python script imports, from its own folder or from the root."""
    tree = _parsed(workspace_path, path)
    folders = dict.fromkeys((os.path.dirname(path), ""))
    found: dict[str, None] = {}
    for name in _imported_names(tree) if tree else ():
        for folder in folders:
            place = os.path.join(folder, *name.split("."))
            hits = (
                each
                for each in (f"{place}.py", f"{place}/__init__.py")
                if os.path.isfile(os.path.join(workspace_path, each))
            )
            if hit := next(hits, ""):
                found[hit] = None
                break
    return list(found)


def paths_read_by(workspace_path: str, path: str) -> list[str]:
    """Files and folders that a pinned file may read: its imports, and every path that a text in it can mean.

    A text is looked for from the root, where commands run, and from each folder on the way to the file. So some of
    these paths do not exist.
    """
    tree = _parsed(workspace_path, path)
    words = _texts(tree) if tree else _words(workspace_path, path)
    folders = [""]
    for name in path.split("/")[:-1]:
        folders.append(os.path.join(folders[-1], name))
    texts = [os.path.normpath(os.path.join(folder, word)) for word in words for folder in folders]
    return list(dict.fromkeys((*imported_paths(workspace_path, path), *texts)))


def _words(workspace_path: str, path: str) -> list[str]:
    """Words of a script that look like paths; none for what is no script."""
    text = script_text(workspace_path, path, errors="replace")
    if not evaluator_commands.is_script(path, text[:2].encode("utf-8", "replace")):
        return []
    return evaluator_commands.literal_paths(text)


def _parsed(workspace_path: str, path: str) -> ast.Module | None:
    """A Python file as a tree; None for another file, and for a text that is not Python."""
    if not path.endswith(".py"):
        return None
    try:
        return ast.parse(script_text(workspace_path, path, errors="replace"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported_names(tree: ast.Module) -> list[str]:
    """Absolute names that a script imports, parts of packages included."""
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found[node.module] = None
            found.update(dict.fromkeys(f"{node.module}.{alias.name}" for alias in node.names))
    return list(found)


def _texts(tree: ast.Module) -> list[str]:
    """The texts of a script, and those that it joins to a path (``HERE / "data" / "a.txt"``); no docstrings."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        parts: list[str] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = list(_joined(node))
        elif isinstance(node, ast.Call):
            parts = [each for argument in node.args if (each := _text(argument))]
        elif id(node) not in said:
            parts = [each] if isinstance(node, ast.expr) and (each := _text(node)) else []
        if parts:
            found["/".join(parts)] = None
    return [text for text in found if len(text) <= _TEXT_LIMIT and text.isprintable() and text.strip("./")]


def _joined(node: ast.expr) -> Iterator[str]:
    """The texts that are joined by ``/``, in their order."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from _joined(node.left)
        yield from _joined(node.right)
    elif text := _text(node):
        yield text


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
