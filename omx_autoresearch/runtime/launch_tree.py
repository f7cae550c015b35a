"""The files of a workspace as they were at launch, to tell later which code changed.

The list stands in the mission's folder of the state home; the journal holds its digest (``launch_tree_digest``), so
that a list that was lost or changed is known as such. Git's own ``diff`` would run what a repository's settings name,
and would count what was dirty at launch.
"""

from __future__ import annotations

import os

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.readiness import is_code
from omx_autoresearch.errors import AutoresearchError
from omx_autoresearch.storage.atomic import read_bounded, replace_file
from omx_autoresearch.system.git import find_root
from omx_autoresearch.system.tree import tree_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Mission
    from omx_autoresearch.storage.layout import MissionFolder

UNKNOWN = "(the list of the files at launch is lost, so any of them may have changed)"
_LIST_BYTES = 256 * 1024 * 1024


def keep_launch_tree(folder: MissionFolder, workspace_path: str) -> str:
    """Write the list of a workspace's files and return its digest, which is that of ``system.tree.tree_state``.

    Raises:
        WorkspaceFault: the workspace cannot be read.
        StorageFailed: the state home cannot be written.
    """
    data = _listed(tree_files(workspace_path))
    replace_file(_path(folder), data)
    return sha256(data).hexdigest()


def changed_code(folder: MissionFolder, mission: Mission, exempt: tuple[str, ...]) -> tuple[str, ...]:
    """Paths of code that differ from the launch, relative to the repository (without one, to the workspace).

    Args:
        folder: of the mission.
        mission: with the digest at launch; without one (a mission of an older version) nothing is known to differ.
        exempt: paths, relative to the workspace, that the mission asks for: the artifact, the files of criteria.

    Raises:
        WorkspaceFault: the workspace cannot be read.
    """
    if not mission.launch_tree_digest:
        return ()
    try:
        data = read_bounded(_path(folder), _LIST_BYTES)
    except (OSError, AutoresearchError):
        data = b""
    if sha256(data).hexdigest() != mission.launch_tree_digest:
        return (UNKNOWN,)
    before = {
        name: described for described, _, name in (line.partition(b"\t") for line in data.split(b"\0")[:-1])
    }
    now = tree_files(mission.workspace_path)
    asked_for = {os.fsencode(path) for path in _from_root(mission.workspace_path, exempt)}
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    paths = (name.decode("utf-8", "replace") for name in changed if name not in asked_for)
    return tuple(path for path in paths if is_code(path))


def _listed(files: dict[bytes, bytes]) -> bytes:
    return b"".join(b"%b\t%b\0" % (described, name) for name, described in sorted(files.items()))


def _path(folder: MissionFolder) -> str:
    return os.path.join(folder.root_path, "launch-tree")


def _from_root(workspace_path: str, paths: tuple[str, ...]) -> list[str]:
    """Paths of the workspace as the list names them: from the root of the repository."""
    workspace = os.path.realpath(workspace_path)
    below = os.path.relpath(workspace, find_root(workspace) or workspace)
    return [os.path.normpath(os.path.join(below, path)) for path in paths if path]
