"""The Python packages that the interpreters of a command's environment have installed, found without running one."""

from __future__ import annotations

import os
from glob import escape, iglob
from typing import TYPE_CHECKING

from omx_autoresearch.freezing.manifest import module_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
    for prefix in dict.fromkeys(filter(os.path.isabs, prefixes)):
        for name in ("site-packages", "dist-packages"):
            yield from sorted(iglob(os.path.join(escape(prefix), "lib", "python3*", name)))


def installed_modules(environment: Mapping[str, str], project_path: str) -> frozenset[str]:
    """The names under which installed packages are imported. Arguments as for `site_folders`."""
    found: set[str] = set()
    for folder in site_folders(environment, project_path):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        found |= {module_name(name) for name in names if not name.startswith("_")}
    return frozenset(found - {"", "__pycache__"})
