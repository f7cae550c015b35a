"""Schema versions, and the numbered steps from one to the next: pure functions over a record's kind and data.

A journal is never rewritten. It says its version in ``mission_created``, and again in ``schema_migrated``, which the
first writer of a newer version appends before anything else; what stands before is read through the steps, each time.
A snapshot carries its version, too, and goes through the steps of state documents.

To change the shape of a record or of the state: raise ``core.mission.SCHEMA_VERSION`` and add a step for the version
before it. A step adds, renames or splits fields; it never guesses what only a person could know.
"""

from __future__ import annotations

from omx_autoresearch.core.mission import SCHEMA_VERSION
from omx_autoresearch.core.shape import NewerShape, OlderShape, ShapeError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

UNSTAMPED = 1
"""The version of journals and snapshots that name none."""
OLDEST = 1
"""The oldest version that this one reads."""
STAMPS = ("mission_created", "schema_migrated")
"""Kinds that say the version of the records from them on."""


def version_after(kind: str, data: dict[str, Any], version: int) -> int:
    """The version of this record and of those behind it.

    Raises:
        NewerShape: this version does not know it.
        OlderShape: this version no longer reads it.
    """
    if kind == "mission_created":
        return checked(data.get("schema_version", UNSTAMPED))
    if kind == "schema_migrated":
        return checked(data.get("to_version"))
    return version


def checked(version: Any) -> int:
    """The version, where this program can read it.

    Raises:
        NewerShape: it is above :data:`SCHEMA_VERSION`.
        OlderShape: it is below :data:`OLDEST`.
        ShapeError: it is no number.
    """
    if type(version) is not int:
        raise ShapeError(f"schema_version: a whole number is needed, received {type(version).__name__}")
    if version > SCHEMA_VERSION:
        raise NewerShape(f"its schema version is {version}, and this program reads up to {SCHEMA_VERSION}")
    if version < OLDEST:
        raise OlderShape(f"its schema version is {version}, and this program reads from {OLDEST} on")
    return version


def migrated(kind: str, data: dict[str, Any], version: int) -> dict[str, Any]:
    """The data of a record of ``version`` as this version has it; the argument stays as it is.

    Raises:
        ShapeError: a step cannot make anything of it.
    """
    return _stepped(RECORD_STEPS, version, (kind, data))


def migrated_state(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a snapshot (``head`` and ``mission``) as this version has it.

    Raises:
        ShapeError: too new, too old, or nothing that a step could make anything of.
    """
    version = checked(content.get("schema_version", UNSTAMPED))
    return _stepped(STATE_STEPS, version, ("snapshot", content))


def _stepped(
    steps: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]],
    version: int,
    document: tuple[str, dict[str, Any]],
) -> dict[str, Any]:
    kind, data = document
    for number in range(version, SCHEMA_VERSION):
        try:
            data = steps[number](kind, data)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ShapeError(f"step {number} of the migrations cannot read {kind}: {error!r}") from None
    return data


# --- the steps, by the version that they start from


def _record_1(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Version 2 stamps journals, and knows milestones and forbidden operations."""
    if kind == "mission_created":
        return {**data, "schema_version": data.get("schema_version", 1), "milestones": []}
    if kind in ("mission_launched", "mission_amended"):
        return {**data, "contract": {"forbidden": [], **data["contract"]}}
    return data


def _state_1(_: str, content: dict[str, Any]) -> dict[str, Any]:
    """Version 2 says in the state which version the journal's newest records have."""
    return {**content, "mission": {"milestones": [], **content["mission"], "schema_version": 1}}


_PHASES_2 = {
    "mission_launched": "running",
    "mission_blocked": "blocked",
    "mission_unblocked": "running",
    "mission_paused": "paused",
    "mission_resumed": "running",
    "mission_cancelled": "cancelled",
    "mission_completed": "complete",
}


def _record_2(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Version 3 writes into the record of a step which phase it led to."""
    return {**data, "phase": _PHASES_2[kind]} if kind in _PHASES_2 else data


def _state_2(_: str, content: dict[str, Any]) -> dict[str, Any]:
    """A state has its phase in every version."""
    return content


RECORD_STEPS: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]] = {1: _record_1, 2: _record_2}
STATE_STEPS: dict[int, Callable[[str, dict[str, Any]], dict[str, Any]]] = {1: _state_1, 2: _state_2}
