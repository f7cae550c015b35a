"""Whether this process runs modules that a workspace put in the way: its owner's command would then be an agent's.

The hooks and what ``install`` writes ignore every variable of the interpreter. A command that a person types does not:
``PYTHONPATH`` may lead into a repository, where an agent adds ``sitecustomize.py`` or a module with the name of one
that we import.
"""

from __future__ import annotations

import os
import sys

from omx_autoresearch.foundation.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CUSTOMIZERS = ("sitecustomize", "usercustomize")
_INTERPRETER = "an interpreter that stands in the workspace"
VARIABLES = ("PYTHONPATH", "PYTHONUSERBASE", "PYTHONHOME")


@dataclass(frozen=True, slots=True)
class PlantedModule:
    """A module of this process that a workspace holds.

    Attributes:
        name: of the module.
        path: of its file.
        cause: the variable that led there, or a phrase where none did.
    """

    name: str
    path: str
    cause: str


def planted_module(roots: Sequence[str], environ: Mapping[str, str]) -> PlantedModule | None:
    """The first module of this process that stands in one of these folders and that no installation put there.

    A virtual environment in the workspace is the person's own installation; a module that changes how the interpreter
    starts counts there, too.
    """
    inside = tuple(os.path.realpath(root) + os.sep for root in roots if root)
    installed, ways = os.path.realpath(sys.prefix) + os.sep, _ways(environ)
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str):
            continue
        path = os.path.realpath(path)
        if not path.startswith(inside):
            continue
        least = installed if path.startswith(installed) else ""
        causes = (cause for cause, way in ways if path.startswith(way) and way.startswith(least))
        cause = next(causes, _INTERPRETER if name in CUSTOMIZERS else "")
        if cause:
            return PlantedModule(name, path, cause)
    return None


def _ways(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each folder that a variable, or the way in which the program was started, puts before the installation."""
    names = () if sys.flags.ignore_environment else VARIABLES
    found = [
        (name, folder) for name in names if name in environ for folder in environ[name].split(os.pathsep)
    ]
    if not sys.flags.safe_path and sys.path:
        found.append(("the folder that the interpreter was started in or for", sys.path[0]))
    return [(cause, os.path.realpath(folder or os.curdir) + os.sep) for cause, folder in found]
