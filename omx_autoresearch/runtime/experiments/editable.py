"""Editable installations of the project: by them its scripts would import the user's checkout, not a worktree.

``pip install -e .`` leaves, in the site-packages of an interpreter, a ``.pth`` file with a folder of the checkout (the
documentation of ``site``), or a finder module ``__editable___*_finder.py`` with a table of packages and their folders
(setuptools, "development mode"). A candidate that is measured through either changes nothing. PYTHONPATH comes before
both, so each such folder is put there as it is in the worktree.
"""

from __future__ import annotations

import os
import re
from glob import escape, iglob
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_READ_BYTES = 256 * 1024
_QUOTED_PATH = re.compile(r"""['"](/[^'"\n]+)['"]""")


def editable_folders(environment: Mapping[str, str], project_path: str) -> tuple[str, ...]:
    """Folders of the project from which an editable installation imports, relative, ``.`` for the project itself.

    Args:
        environment: of the commands; its interpreters are looked at.
        project_path: the user's checkout.
    """
    found: dict[str, None] = {}
    roots = tuple(dict.fromkeys((os.path.normpath(project_path), os.path.realpath(project_path))))
    for site_path in _site_folders(environment, project_path):
        for folder in _folders_named_in(site_path):
            for root in roots:
                if folder == root or folder.startswith(root + os.sep):
                    found[os.path.relpath(folder, root)] = None
    return tuple(found)


def _site_folders(environment: Mapping[str, str], project_path: str) -> Iterator[str]:
    prefixes = [environment.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    prefixes += [os.path.join(project_path, name) for name in (".venv", "venv")]
    path_folders = environment.get("PATH", "").split(os.pathsep)
    prefixes += [os.path.dirname(folder) for folder in path_folders if os.path.basename(folder) == "bin"]
    prefixes += [os.path.join(environment["HOME"], ".local")] if environment.get("HOME") else []
    for prefix in dict.fromkeys(filter(os.path.isabs, prefixes)):
        yield from sorted(iglob(os.path.join(escape(prefix), "lib", "python3*", "site-packages")))


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
