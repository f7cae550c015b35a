"""What a check imports: the project as it stands in the workspace, also where another checkout of it is installed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import MissionInvalid
from omx_autoresearch.freezing.installed import foreign_installs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.missions.rules.intake import MissionDraft


def own_imports(
    environment: Mapping[str, str], workspace_path: str, draft: MissionDraft
) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """What Python is to search first so that it imports the workspace.

    Args:
        environment: of the commands.
        workspace_path: where they run.
        draft: says whether another checkout is accepted.

    Returns:
        Folders of the workspace, relative to it; the other checkout that is accepted, if one is; notes for the owner.

    Raises:
        MissionInvalid: no search path leads to the workspace, and the owner does not accept that.
    """
    installs = foreign_installs(environment, workspace_path)
    if draft.accept_foreign_install:
        roots = [install.root_path for install in installs]
        notes = (
            (f"the check imports from {roots[0]}, not from {workspace_path}: you accepted that",)
            if roots
            else ()
        )
        return (), roots[0] if roots else "", notes
    for install in installs:
        if install.is_fixed:
            raise MissionInvalid(
                f"{install.name} is installed in editable form from {install.root_path} by a back end that builds it,"
                f" so the check would import that tree and not {workspace_path}",
                next_step=f"cd {shlex.quote(workspace_path)} && pip install --no-build-isolation -e . ; or accept"
                " that other files are judged: --accept-foreign-install",
            )
    folders = tuple(dict.fromkeys(folder for install in installs for folder in install.folders))
    return (
        folders,
        "",
        tuple(
            f"{install.name} is installed from {install.root_path}; checks import it from {workspace_path} (PYTHONPATH)"
            for install in installs
        ),
    )
