"""From where the Python of an evaluator imports: folders of the workspace that come before what is installed.

A new module in such a folder, named like one of the standard library, of an installed package or of a pinned file, is
imported in its place.
"""

from __future__ import annotations

import os
import re
import shutil
from fnmatch import fnmatchcase
from glob import escape, glob
from typing import TYPE_CHECKING

from omx_autoresearch.freezing.installed import modules_in, site_folders_of
from omx_autoresearch.freezing.manifest import DEFAULTS, PYTHON_START
from omx_autoresearch.freezing.readings import imported_names
from omx_autoresearch.journal.safe_files import script_text
from omx_autoresearch.system.files import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_INSERTED = re.compile(r"sys\.path(?:\.insert\(\s*0\s*,|\[:?0\]\s*=)\s*([^\n]+)")
_TEXT = re.compile(r"[\"']([^\"'\n]+)[\"']")
_PYTHONPATH_OPTION = re.compile(r"(?m)^[ \t]*pythonpath[ \t]*=[ \t]*(.*(?:\n[ \t]+\S.*)*)")
_PROGRAM = re.compile(r"[^\s\"'`;|&()<>=]*(?:\bpython[\d.]*|\bpy\.?test|\bunittest)(?=[\s\"']|$)")
_VENV_PROGRAM = re.compile(r"([^\s\"'`;|&()<>=]+)/bin/[\w.-]+")
_RUNNERS = ("pytest", "unittest")
_LOADED_BY_PYTEST = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "xdist"})


def import_folders(workspace_path: str, paths: Iterable[str], runners: Iterable[str]) -> set[str]:
    """Folders that pinned files of Python, and the runners of tests, put in front of what is installed.

    Args:
        workspace_path: where the files stand.
        paths: of pinned files.
        runners: that the evaluator calls.
    """
    found: set[str] = set()
    known = [name for name in _RUNNERS if name in runners]
    for path in paths:
        if path.endswith(".py"):
            name = path.rpartition("/")[2]
            if any(name == "conftest.py" or _is_test_name(name, runner) for runner in known):
                found.add(_base_folder(workspace_path, path))
            found |= _inserted_folders(workspace_path, path)
        elif "pytest" in known and path.endswith((".ini", ".toml", ".cfg")):
            for words in _PYTHONPATH_OPTION.findall(script_text(workspace_path, path)):
                for word in re.findall(r"[^\s\"'\[\],]+", words):
                    found |= _real_folders(workspace_path, word, os.path.dirname(path))
    return found


def _is_test_name(name: str, runner: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in DEFAULTS[runner].tests)


def _base_folder(workspace_path: str, path: str) -> str:
    """The folder from which a test is imported: the first one above it that is no package."""
    folder = os.path.dirname(path)
    while folder and os.path.isfile(os.path.join(workspace_path, folder, "__init__.py")):
        folder = os.path.dirname(folder)
    return folder


def _inserted_folders(workspace_path: str, path: str) -> set[str]:
    """Folders that a script puts first on its own path, as far as the text names them."""
    found: set[str] = set()
    folder = os.path.dirname(path)
    for expression in _INSERTED.findall(script_text(workspace_path, path, errors="replace")):
        words = _TEXT.findall(expression)
        for base in dict.fromkeys(("", folder, os.path.dirname(folder))):
            found |= _real_folders(workspace_path, "/".join(words) or ".", base)
    return found


def _real_folders(workspace_path: str, word: str, base: str) -> set[str]:
    place = os.path.normpath(os.path.join(base, word))
    if place.startswith(("..", "/")) or not os.path.isdir(os.path.join(workspace_path, place)):
        return set()
    return {"" if place == "." else place}


def taken_names(
    workspace_path: str, paths: Sequence[str], runners: Iterable[str], texts: Iterable[str], search_path: str
) -> set[str]:
    """Names that pinned files import from what is installed, or from each other.

    Args:
        workspace_path: where the files stand.
        paths: of pinned files.
        runners: that the evaluator calls.
        texts: of commands and scripts, which say by which interpreter they are run.
        search_path: the PATH that the commands will have.
    """
    scripts = [path for path in paths if path.endswith(".py")]
    names = {
        name.partition(".")[0]
        for path in scripts
        for level, name in imported_names(script_text(workspace_path, path, errors="replace"))
        if not level
    }
    stems = {path.rpartition("/")[2].removesuffix(".py") for path in scripts}
    packages = {os.path.basename(os.path.dirname(path)) for path in paths if path.endswith("/__init__.py")}
    asked = names | (_LOADED_BY_PYTEST if "pytest" in runners else set())
    there = modules_in(_site_folders(workspace_path, "\n".join(texts), search_path))
    return (names & (stems | packages)) | (asked & there)


def environments(workspace_path: str, texts: Iterable[str], search_path: str) -> list[str]:
    """Virtual environments of the workspace that the evaluator runs in, relative."""
    text = "\n".join(texts)
    root = os.path.join(os.path.realpath(workspace_path), "")
    folders = [
        os.path.dirname(os.path.abspath(os.path.join(root, each))) for each in search_path.split(os.pathsep)
    ]
    folders += [os.path.normpath(os.path.join(root, word)) for word in _VENV_PROGRAM.findall(text)]
    if re.search(r"\buv[ \t]+run\b", text):
        folders.append(os.path.join(root, ".venv"))
    found = [each[len(root) :] for each in folders if each.startswith(root)]
    return [each for each in dict.fromkeys(found) if os.path.isfile(os.path.join(root, each, "pyvenv.cfg"))]


def start_files(workspace_path: str, environment: str) -> tuple[list[str], list[str], list[str]]:
    """What an interpreter of a virtual environment runs by itself.

    Returns:
        Files that are there, places where none is, and globs of further ones.
    """
    present = [f"{environment}/pyvenv.cfg"]
    absent: list[str] = []
    globs: list[str] = []
    for folder in glob(f"{escape(environment)}/lib/python3*/site-packages", root_dir=workspace_path):
        globs.append(f"{folder}/*.pth")
        present += glob(f"{escape(folder)}/*.pth", root_dir=workspace_path)
        for name in PYTHON_START:
            is_there = os.path.lexists(os.path.join(workspace_path, folder, name))
            (present if is_there else absent).append(f"{folder}/{name}")
    return present, absent, globs


def _site_folders(workspace_path: str, text: str, search_path: str) -> Iterator[str]:
    """Folders in which packages are installed for the interpreters that a text calls."""
    programs = {word.rpartition("/")[2]: word for word in _PROGRAM.findall(text)}
    prefixes: dict[str, None] = {}
    for word in [*programs.values(), "python3"]:
        path = os.path.join(workspace_path, word) if "/" in word else shutil.which(word, path=search_path)
        for each in (path, _interpreter_of(path)):
            if each:
                prefixes[os.path.dirname(os.path.dirname(each))] = None
                prefixes[os.path.dirname(os.path.dirname(os.path.realpath(each)))] = None
    prefixes |= dict.fromkeys(
        os.path.join(workspace_path, each) for each in environments(workspace_path, [text], search_path)
    )
    return site_folders_of(prefixes)


def _interpreter_of(path: str | None) -> str:
    """The interpreter that the first line of a script names."""
    line = os.fsdecode(first_line(path, 512)) if path else ""
    return line[2:].split()[0] if line.startswith("#!/") else ""


def python_folders(search_path: str, workspace_path: str) -> list[str]:
    """Folders of the workspace in a PYTHONPATH, relative; the root is empty."""
    found = []
    for entry in search_path.split(os.pathsep):
        relative = os.path.relpath(entry, workspace_path) if entry else ".."
        if relative == ".":
            found.append("")
        elif relative.split(os.sep, 1)[0] != "..":
            found.append(relative)
    return found
