"""The files of a workspace that a pinned file reads: what it imports, and the paths that stand in its texts.

It is read statically, because a baseline that fails stops before it has opened everything.
"""

from __future__ import annotations

import os
import re
from glob import escape, glob

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.freezing import evaluator_commands
from omx_autoresearch.journal.safe_files import script_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHOWN = 8
"""A note for the owner names at most so many paths."""
_TEXT_LIMIT = 260
_NODE = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_QUOTING = (*_NODE, ".go", ".rs", ".py")
_PYTHON_FROM = re.compile(r"(?m)^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)")
_PYTHON_IMPORT = re.compile(r"(?m)^[ \t]*import[ \t]+([\w.][^\n#;]*)")
_OPEN_ENDED = re.compile(r"[*?\[{%$].*")
_NODE_IMPORT = re.compile(r"(?:\bfrom|\bimport|\brequire\(|\bimport\()\s*[\"']([^\"'\n]+)[\"']")
_NODE_ENDINGS = (
    "",
    ".js",
    ".json",
    ".node",
    *_NODE[1:],
    "/index.js",
    "/index.ts",
    "/index.mjs",
    "/index.cjs",
)
_GO_IMPORT = re.compile(r"(?m)^\s*(?:import\s+)?(?:[\w.]+\s+)?\"([^\"\n]+)\"\s*$")
_QUOTED = re.compile(r"[\"'`]([^\"'`\s]+)[\"'`]")
_QUOTED_RUN = re.compile(r"[\"'`][^\"'`\s]+[\"'`](?:\s*[,+/]\s*[\"'`][^\"'`\s]+[\"'`])*")


@dataclass(frozen=True, slots=True)
class Readings:
    """What a file reads of its workspace, as far as its text says so.

    Attributes:
        imports: files that it imports.
        paths: files and folders that a text in it can mean, from the root, where commands run, or from a folder on the
            way to it. So some of them do not exist.
    """

    imports: tuple[str, ...]
    paths: tuple[str, ...]


def readings_of(workspace_path: str, path: str) -> Readings:
    """What the file at ``path`` reads."""
    text = script_text(workspace_path, path, errors="replace")
    imports = _imports(workspace_path, path, text)
    words = _words(path, text)
    return Readings(tuple(dict.fromkeys(imports)), tuple(_places(path, words)))


def _places(path: str, words: Iterable[str]) -> dict[str, None]:
    folders = [""]
    for name in path.split("/")[:-1]:
        folders.append(os.path.join(folders[-1], name))
    found = (os.path.normpath(os.path.join(folder, word.lstrip("/"))) for word in words for folder in folders)
    return dict.fromkeys(place for place in found if not place.startswith(("..", "/")) and place != ".")


def unpinned_imports(imports: Mapping[str, Iterable[str]], pinned: Iterable[str]) -> list[str]:
    """One note for each pinned script that imports modules of the workspace which are not pinned.

    Only the owner knows whether such a module measures or is being measured. So a note names it, and nothing pins it.

    Args:
        imports: by pinned file: what it imports.
        pinned: paths of all pinned files.
    """
    known = set(pinned)
    notes = []
    for path in sorted(imports):
        found = [name for name in imports[path] if name not in known]
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            notes.append(
                f"{path} imports {', '.join(found[:SHOWN])}{more}, treated as the work itself and not pinned"
                f" (--protect {found[0]} pins it)"
            )
    return notes


def _imports(workspace_path: str, path: str, text: str) -> Iterator[str]:
    """Files that a script for Python or node imports, and those of the packages that one of Go imports."""
    folder = os.path.dirname(path)
    if path.endswith(".py"):
        yield from _python_imports(workspace_path, folder, text)
    elif path.endswith(_NODE):
        for word in _NODE_IMPORT.findall(text):
            if word.startswith("."):
                yield from _node_candidates(workspace_path, folder, word)[-1:]
    elif path.endswith(".go"):
        root, module = _go_module(workspace_path, folder)
        for name in _GO_IMPORT.findall(text) if module else ():
            if name == module or name.startswith(f"{module}/"):
                package = os.path.normpath(os.path.join(root, name[len(module) :].lstrip("/")))
                yield from sorted(glob(f"{escape(package)}/*.go", root_dir=workspace_path))


def _python_imports(workspace_path: str, folder: str, text: str) -> Iterator[str]:
    """Files that a Python script imports, from its own folder or from one above it."""
    folders = [folder]
    while folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    for level, name in imported_names(text):
        bases = folders[level - 1 : level] if level else folders
        places = (os.path.join(base, *name.split(".")).rstrip("/") for base in bases)
        hits = (
            each
            for place in places
            for each in (f"{place}.py", f"{place}/__init__.py")
            if os.path.isfile(os.path.join(workspace_path, each))
        )
        if hit := next(hits, ""):
            yield hit


def imported_names(text: str) -> dict[tuple[int, str], None]:
    """Names that a script of Python imports, parts of packages included, each with the number of dots before it."""
    found: dict[tuple[int, str], None] = {}
    for names in _PYTHON_IMPORT.findall(text):
        found.update(dict.fromkeys((0, words[0]) for name in names.split(",") if (words := name.split())))
    for dots, module, names in _PYTHON_FROM.findall(text):
        if module:
            found[len(dots), module] = None
        for name in names.strip("()").split(","):
            if words := name.split():
                found[len(dots), f"{module}.{words[0]}" if module else words[0]] = None
    return found


def _node_candidates(workspace_path: str, folder: str, word: str) -> list[str]:
    """The places at which node looks for a relative import up to the one where it finds it; none where it does not."""
    base = os.path.normpath(os.path.join(folder, word))
    if base.startswith(("..", "/")):
        return []
    asked: list[str] = []
    for ending in _NODE_ENDINGS:
        asked.append(base + ending)
        if os.path.isfile(os.path.join(workspace_path, asked[-1])):
            return asked
    return []


def node_guards(workspace_path: str, path: str, pinned: Iterable[str]) -> list[str]:
    """Places at which node would find a newcomer instead of what a pinned script imports.

    Args:
        workspace_path: where the files stand.
        path: of the script; another kind of file has none.
        pinned: paths of all pinned files.
    """
    found: list[str] = []
    folder = os.path.dirname(path)
    text = script_text(workspace_path, path, errors="replace") if path.endswith(_NODE) else ""
    for word in dict.fromkeys(_NODE_IMPORT.findall(text)):
        if word.startswith("."):
            candidates = _node_candidates(workspace_path, folder, word)
            if candidates and candidates[-1] in pinned:
                found += [each for each in candidates[:-1] if each.endswith((".js", ".json", ".node"))]
            continue
        package = "/".join(word.split("/")[: 2 if word.startswith("@") else 1])
        above = [folder]
        while above[-1]:
            above.append(os.path.dirname(above[-1]))
        places = [os.path.join(each, "node_modules", package) for each in above]
        there = [os.path.isdir(os.path.join(workspace_path, place)) for place in places]
        found += places[: there.index(True)] if True in there else []
    return found


def _go_module(workspace_path: str, folder: str) -> tuple[str, str]:
    """The folder of the nearest go.mod and the path of its module; empty where there is none."""
    while True:
        text = script_text(workspace_path, os.path.join(folder, "go.mod"))
        if found := re.search(r"(?m)^module\s+\"?([^\s\"]+)", text):
            return folder, found[1]
        if not folder:
            return "", ""
        folder = os.path.dirname(folder)


def _words(path: str, text: str) -> Iterable[str]:
    """Words of a script or source that look like paths, and those that it joins; none for any other file.

    Of a pattern (``cases/*.txt``, ``f"cases/{name}"``) it is the folder.
    """
    if path.endswith(_QUOTING):
        found: dict[str, None] = {}
        for run in _QUOTED_RUN.finditer(text):
            words = _QUOTED.findall(run[0])
            for word in (*words, "/".join(words)) if len(words) > 1 else words:
                found[_OPEN_ENDED.sub("", word) if not word.isalnum() else word] = None
        return [word for word in found if len(word) <= _TEXT_LIMIT and word.strip("./")]
    if not evaluator_commands.is_script(path, text[:2].encode("utf-8", "replace")):
        return ()
    return evaluator_commands.literal_paths(text)
