"""What the two work trees of an experiment were made from, on disk beside our repository.

Only this module writes the files: one for the experiment, and a small one for each tree that says at which commit it
stands. A tree without one is in the middle of something, and is restored before it is used.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import StateUntrusted, StorageFailed
from omx_autoresearch.system.submodules import Submodule
from omx_autoresearch.system.user_repository import UserStamp

if TYPE_CHECKING:
    from typing import Any

_NAME = "workspaces.json"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class WorkspaceState:
    """The facts that never change while an experiment lasts.

    Attributes:
        experiment_id: whose trees these are.
        repository_path: the root of the user's checkout.
        folder_path: where the work trees are.
        stamp: how the checkout looked when the experiment began.
        submodules: at the base commit.
        keep: ignored paths made by the setup command.
        link: ignored paths copied from the checkout.
        caches: ignored paths that nobody checks.
        link_seals: what stood at each path of ``link`` in the checkout.
        file_limit_bytes: the largest file of a checkpoint.
    """

    experiment_id: str
    repository_path: str
    folder_path: str
    stamp: UserStamp
    submodules: tuple[Submodule, ...]
    keep: tuple[str, ...]
    link: tuple[str, ...]
    caches: tuple[str, ...]
    link_seals: tuple[str, ...]
    file_limit_bytes: int


@dataclass(frozen=True, slots=True)
class ArmState:
    """Where one work tree stands.

    Attributes:
        commit: the one that it was set to; empty in the middle of that.
        seals: from kept and linked paths to what stood there.
    """

    commit: str
    seals: dict[str, str]


def save_state(store_path: str, state: WorkspaceState) -> None:
    """Write the facts of an experiment, durably.

    Raises:
        StorageFailed: the system refused.
    """
    facts = {name: getattr(state, name) for name in WorkspaceState.__slots__}
    facts["stamp"] = {name: getattr(state.stamp, name) for name in UserStamp.__slots__}
    facts["submodules"] = [[sub.path, sub.commit, sub.objects_path] for sub in state.submodules]
    _replace(os.path.join(store_path, _NAME), facts | {"version": _VERSION}, is_durable=True)


def load_state(store_path: str) -> WorkspaceState:
    """Read the facts of an experiment.

    Raises:
        StateUntrusted: they are missing, unreadable or of a later version.
    """
    path = os.path.join(store_path, _NAME)
    facts = _load(path)
    if facts is None or facts.pop("version", None) != _VERSION:
        raise StateUntrusted(f"{path} is missing or cannot be read", next_step=f"ls -la {store_path}")
    try:
        stamp = facts["stamp"]
        facts["stamp"] = UserStamp(**{**stamp, "dirty": tuple(stamp["dirty"])})
        facts["submodules"] = tuple(Submodule(*words) for words in facts["submodules"])
        for name in ("keep", "link", "caches", "link_seals"):
            facts[name] = tuple(facts[name])
        return WorkspaceState(**facts)
    except (KeyError, TypeError) as fault:
        raise StateUntrusted(f"{path} lacks {fault}", next_step=f"ls -la {store_path}") from fault


def has_state(store_path: str) -> bool:
    """An experiment was made here to its end."""
    return os.path.exists(os.path.join(store_path, _NAME))


def save_arm(path: str, arm: ArmState) -> None:
    """Write where one work tree stands.

    Raises:
        StorageFailed: the system refused.
    """
    _replace(path, {"commit": arm.commit, "seals": arm.seals}, is_durable=False)


def load_arm(path: str) -> ArmState:
    """Read where one work tree stands; nowhere, where nothing can be read."""
    facts = _load(path) or {}
    commit, seals = facts.get("commit"), facts.get("seals")
    if not isinstance(commit, str) or not isinstance(seals, dict):
        return ArmState("", {})
    return ArmState(commit, seals)


def _load(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as stream:
            facts = json.loads(stream.read())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _replace(path: str, facts: dict[str, Any], *, is_durable: bool) -> None:
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as stream:
            json.dump(facts, stream)
            stream.flush()
            if is_durable:
                os.fsync(stream.fileno())
        os.replace(f"{path}.new", path)
    except OSError as fault:
        raise StorageFailed(
            f"{path} cannot be written: {fault.strerror}", next_step=f"df -h {os.path.dirname(path)}"
        ) from fault
