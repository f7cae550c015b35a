"""A stop that is refused looks at thousands of pinned files for the price of a few.

Such a stop reads the work tree anyway (`tree`), and gets the id of every file from it, mostly without reading the file.
So most pins of a large manifest are *held by the tree*: as long as the tree has them under the modes and ids of the
launch, they are unchanged. What stays in the light manifest is compared one by one, as ever: links, what is not in the
tree, and what decides which additions tamper.

No pass rests on this. The index of git vouches for those ids, and what is held by the tree is neither mounted nor
watched during a run. A run that passed so is made again with the whole manifest (`missions/validation/runs.py`).
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import AutoresearchError
from omx_autoresearch.foundation.records import ShapeError, dataclass, from_plain, nested, replace, to_plain
from omx_autoresearch.freezing.manifest import PinManifest
from omx_autoresearch.freezing.pins import compare, folders_of
from omx_autoresearch.freezing.tree import whole_tree
from omx_autoresearch.journal.safe_files import load_json, replace_file
from omx_autoresearch.system.git import find_root

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

    from omx_autoresearch.system.files import Entries

HELD_FROM = 500
"""Up to so many pinned files a stop compares each."""


@dataclass(frozen=True, slots=True)
class LightPins:
    """A manifest, most of whose pins are held by the tree.

    Attributes:
        manifest: the others, under the digest of all.
        held: a line ``MODE ID<tab>PATH`` for each pin that is held; paths are relative to the workspace.
        folders: on the way to these; each must be a real one.
    """

    manifest: PinManifest = nested(PinManifest)
    held: str = ""
    folders: tuple[str, ...] = ()

    def stand_in(self, entries: Entries, workspace_path: str) -> bool:
        """Whether a work tree has every pin that it holds as it was; if not, only the whole manifest tells more.

        Args:
            entries: of the tree now, see `tree.whole_tree`.
            workspace_path: the folder that was looked at.
        """
        for folder in self.folders:
            path = os.path.join(workspace_path, folder)
            if os.path.islink(path) or not os.path.isdir(path):
                return False
        prefix = _prefix(workspace_path)
        lines = (line.partition(b"\t") for line in os.fsencode(self.held).splitlines())
        return all(entries.get(prefix + path) == described for described, _, path in lines)


def keep(frozen_path: str, manifest: PinManifest, workspace_path: str) -> None:
    """Write down what the tree can hold of a large manifest that was pinned from a workspace.

    Raises:
        WorkspaceFault: the workspace cannot be read.
        StorageFailed: the system refused.
    """
    if manifest.frozen_count <= HELD_FROM:
        return
    entries, prefix = whole_tree(workspace_path)[1], _prefix(workspace_path)
    if not compare(manifest, workspace_path).is_intact:
        return  # it is being written to: stops go on with the whole manifest
    held = {
        pin.path: described
        for pin in manifest.pins
        if (described := entries.get(prefix + os.fsencode(pin.path))) and pin.kind == "file"
    }
    # What a runner loads by its name is an addition where it is not pinned one by one.
    for path in compare(_without(manifest, held), workspace_path).added:
        held.pop(path, None)
    light = LightPins(
        _without(manifest, held),
        "\n".join(f"{os.fsdecode(described)}\t{path}" for path, described in held.items()),
        tuple(sorted({folder for path in held for folder in folders_of(path)})),
    )
    path = os.path.join(frozen_path, f"light-{manifest.digest}.json")
    replace_file(path, json_codec.encode(to_plain(light)))


def load(path: str, digest: str) -> LightPins | None:
    """The light form of the manifest with this digest; None where it cannot be read."""
    try:
        light: LightPins = from_plain(LightPins, load_json(path))
    except (OSError, AutoresearchError, ShapeError, TypeError):
        return None  # the whole manifest says the same, only slower
    return light if light.manifest.digest == digest else None


def _without(manifest: PinManifest, held: Container[str]) -> PinManifest:
    """The manifest without some pins, still under the digest of all."""
    return replace(
        manifest, pins=tuple(pin for pin in manifest.pins if pin.path not in held), notes=(), opened=()
    )


def _prefix(workspace_path: str) -> bytes:
    """What stands before the workspace's paths in the names of its tree."""
    workspace = os.path.realpath(workspace_path)
    below = os.path.relpath(workspace, find_root(workspace) or workspace)
    return b"" if below == "." else os.fsencode(below) + b"/"
