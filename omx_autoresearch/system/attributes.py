"""How git would write files of a work tree: line ends, filters, encodings, as the attribute files in it say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.system.git_calls import own_git

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.system.worktrees import Workspaces

ATTRIBUTES_NAME = ".gitattributes"


def same_attributes(workspaces: Workspaces, names: Sequence[str]) -> bool:
    """Whether git would write these files in the candidate's tree as it does in the incumbent's.

    Raises:
        WorkspaceFault: git cannot read the trees.
    """
    stdin = b"".join(os.fsencode(name) + b"\0" for name in names)
    git = own_git(workspaces.repository_path, workspaces.store_path)
    said = [
        git.at(path, GIT_WORK_TREE=path, GIT_CEILING_DIRECTORIES=os.path.dirname(path)).output(
            "check-attr", "-z", "--all", "--stdin", stdin=stdin
        )
        for path in (workspaces.incumbent_path, workspaces.candidate_path)
    ]
    return said[0] == said[1]
