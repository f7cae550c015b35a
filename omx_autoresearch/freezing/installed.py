"""The Python packages that the interpreters of a command's environment have installed, found without running one.

``pip install -e .`` (and uv's) leaves in the site-packages of an interpreter a ``direct_url.json`` with the checkout
(PEP 610), and one of three ways to it: a ``.pth`` file with a folder of the checkout (see the documentation of
``site``); a finder module ``__editable___*_finder.py`` with a table of packages and their folders (setuptools,
"development mode"); or a loader that builds what is imported (meson-python, scikit-build-core). PYTHONPATH comes before
the first two, so that another checkout's own copy of each such folder can be put there, and after the third.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass
from glob import escape, iglob
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from omx_autoresearch.freezing.manifest import module_name
from omx_autoresearch.system.git import common_dir, find_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any


_SITE_FOLDERS = (
    "lib/python3*/site-packages",
    "lib/python3*/dist-packages",
    "local/lib/python3*/dist-packages",
)


def site_folders(environment: Mapping[str, str], project_path: str) -> Iterator[str]:
    """The folders into which packages are installed, of every interpreter that a command may start.

    Args:
        environment: of the command.
        project_path: where virtual environments may stand, ``.venv`` or ``venv``.
    """
    prefixes = [environment.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    prefixes += [os.path.join(project_path, name) for name in (".venv", "venv")]
    path_folders = environment.get("PATH", "").split(os.pathsep)
    prefixes += [os.path.dirname(folder) for folder in path_folders if os.path.basename(folder) == "bin"]
    prefixes += [os.path.join(environment["HOME"], ".local")] if environment.get("HOME") else []
    return site_folders_of(filter(os.path.isabs, prefixes))


def site_folders_of(prefixes: Iterable[str]) -> Iterator[str]:
    """The folders into which packages are installed below these prefixes of interpreters."""
    for prefix in dict.fromkeys(prefixes):
        for name in _SITE_FOLDERS:
            yield from sorted(iglob(os.path.join(escape(prefix), name)))


def installed_modules(environment: Mapping[str, str], project_path: str) -> frozenset[str]:
    """The names under which installed packages are imported. Arguments as for `site_folders`."""
    return modules_in(site_folders(environment, project_path))


def modules_in(folders: Iterable[str]) -> frozenset[str]:
    """The names under which what stands in these folders is imported."""
    found: set[str] = set()
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found |= {module_name(name) for name in names}
    return frozenset(found - {"", "__pycache__"})


# --- editable installations

_READ_BYTES = 256 * 1024
_QUOTED_PATH = re.compile(r"""['"](/[^'"\n]+)['"]""")
_BUILDING = ("mesonpy", "scikit_build_core", "maturin", "py_build_cmake")
"""Back ends whose editable installs import what was built from their own checkout, whatever the search path says."""
_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True)
class ForeignInstall:
    """A project of a workspace that the interpreter would import from another checkout.

    Attributes:
        name: of the installed package.
        root_path: the checkout that it is installed from.
        folders: of the workspace, relative to it, that have to come first on the search path instead.
        is_fixed: no search path comes first, since its back end builds what is imported.
    """

    name: str
    root_path: str
    folders: tuple[str, ...]
    is_fixed: bool


def foreign_installs(environment: Mapping[str, str], workspace_path: str) -> list[ForeignInstall]:
    """The editable installs of the workspace's own projects that lead to another checkout.

    That is another work tree of the same repository, or the checkout of a project with the same name.
    """
    found = {}
    for name, root_path in _editable_installs(environment, workspace_path):
        place = _counterpart(name, root_path, workspace_path)
        if place is None:
            continue
        folders = editable_folders(environment, root_path, looked_from=workspace_path)
        own = (os.path.relpath(os.path.join(place, folder), workspace_path) for folder in folders)
        is_fixed = not folders or _back_end(place).startswith(_BUILDING)
        found[root_path] = ForeignInstall(name, root_path, tuple(own), is_fixed)
    return list(found.values())


def fixed_installs(environment: Mapping[str, str], project_path: str) -> list[str]:
    """Names of the project's own editable installs from which no search path leads away."""
    root = os.path.realpath(project_path)
    return [
        name
        for name, path in _editable_installs(environment, project_path)
        if (path == root or path.startswith(root + os.sep))
        and (not editable_folders(environment, path) or _back_end(path).startswith(_BUILDING))
    ]


def editable_folders(
    environment: Mapping[str, str], project_path: str, *, looked_from: str = ""
) -> tuple[str, ...]:
    """Folders of a checkout from which an editable installation imports, relative, ``.`` for the checkout itself.

    Args:
        environment: of the commands; its interpreters are looked at.
        project_path: the checkout.
        looked_from: where virtual environments may stand; the checkout by default.
    """
    found: dict[str, None] = {}
    roots = tuple(dict.fromkeys((os.path.normpath(project_path), os.path.realpath(project_path))))
    for site_path in site_folders(environment, looked_from or project_path):
        for folder in _folders_named_in(site_path):
            for root in roots:
                if folder == root or folder.startswith(root + os.sep):
                    found[os.path.relpath(folder, root)] = None
    return tuple(found)


def _editable_installs(environment: Mapping[str, str], project_path: str) -> Iterator[tuple[str, str]]:
    """Name and real path of every project that is installed in editable form."""
    for site_path in site_folders(environment, project_path):
        for path in sorted(iglob(os.path.join(escape(site_path), "*.dist-info", "direct_url.json"))):
            try:
                said = json.loads(_text_of(path))
                is_editable, url = said["dir_info"]["editable"] is True, urlsplit(said["url"])
            except (ValueError, KeyError, TypeError):
                continue
            if is_editable and url.scheme == "file":
                name = os.path.basename(os.path.dirname(path)).partition("-")[0]
                yield name, os.path.realpath(unquote(url.path))


def _counterpart(name: str, root_path: str, workspace_path: str) -> str | None:
    """The place in the workspace's own tree of a project that is installed from elsewhere; None for any other."""
    tree, other = find_root(os.path.realpath(workspace_path)), find_root(root_path)
    if tree is not None and other is not None:
        if os.path.realpath(tree) == os.path.realpath(other):
            return None
        if common_dir(tree) == common_dir(other):
            place = os.path.normpath(os.path.join(tree, os.path.relpath(root_path, other)))
            return (
                place if any(os.path.exists(os.path.join(place, each)) for each in _PROJECT_FILES) else None
            )
    elif os.path.realpath(workspace_path).startswith(
        os.path.join(root_path, "")
    ) or root_path == os.path.realpath(workspace_path):
        return None
    own = _project(workspace_path).get("project", {}).get("name", "")
    return workspace_path if own and _plain(own) == _plain(name) else None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).casefold()


def _back_end(root_path: str) -> str:
    return str(_project(root_path).get("build-system", {}).get("build-backend", ""))


def _project(root_path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(_text_of(os.path.join(root_path, "pyproject.toml")))
    except tomllib.TOMLDecodeError:
        return {}


def _folders_named_in(site_path: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(site_path))
    except OSError:
        return
    for name in names:
        path = os.path.join(site_path, name)
        if name.endswith(".pth"):
            lines = _text_of(path).splitlines()
            yield from (os.path.normpath(line.strip()) for line in lines if line.startswith("/"))
        elif name.startswith("__editable__") and name.endswith("finder.py"):
            # a table of packages: what has to be on the path is the folder around each
            yield from (
                os.path.dirname(os.path.normpath(named)) for named in _QUOTED_PATH.findall(_text_of(path))
            )


def _text_of(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(_READ_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
