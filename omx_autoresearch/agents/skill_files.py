"""The skill that tells an agent how to work on a mission: a file in a folder of the client's, put there and taken back.

It is ours while it holds what we wrote, as the record of the installation or the text of this version says. One that a
person edited, or that somebody else put there under the name, is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from omx_autoresearch.agents.settings_files import (
    FileChange,
    InstalledFile,
    InstallRecord,
    read_bytes,
    sha256_of,
)

if TYPE_CHECKING:
    from omx_autoresearch.agents.installations import Installation


@dataclass(frozen=True, slots=True)
class SkillPlan:
    """What happens to the skill.

    Attributes:
        change: to the file; None where nothing of ours is concerned.
        file: what the record keeps of it; None for nothing.
        note: what a person has to know; empty for nothing.
    """

    change: FileChange | None = None
    file: InstalledFile | None = None
    note: str = ""


@cache
def skill_bytes() -> bytes:
    """The skill as this version of the package has it."""
    return resources.files("omx_autoresearch.foundation.templates").joinpath("SKILL.md").read_bytes()


def planned(installation: Installation, record: InstallRecord, *, has_skill: bool) -> SkillPlan:
    """Plan an installation; with ``has_skill=False`` an older one of ours goes.

    Raises:
        StorageFailed: the file cannot be read.
    """
    if not has_skill:
        return removal(installation, record)
    path = installation.skill_path
    if not path:
        return SkillPlan()
    current = read_bytes(path)
    known = record.file(path)
    if current is not None and not is_ours(current, known):
        return SkillPlan(file=known, note=f"a skill of your own stands in {path}; it stays")
    before = record.baseline(path, current, lambda text: text)
    wanted = skill_bytes()
    return SkillPlan(FileChange(path, current, wanted), InstalledFile(path, before, sha256_of(wanted)))


def removal(installation: Installation, record: InstallRecord) -> SkillPlan:
    """Plan taking the skill out: what stood there before it comes back, an edited one stays.

    Raises:
        StorageFailed: the file cannot be read.
    """
    path = installation.skill_path
    current = read_bytes(path) if path else None
    known = record.file(path)
    if current is None:
        return SkillPlan()
    if not is_ours(current, known):
        note = f"the skill in {path} was edited since; it stays" if known else ""
        return SkillPlan(note=note)
    before = known.before if known else None
    return SkillPlan(FileChange(path, current, None if before is None else before.encode()))


def is_ours(current: bytes, known: InstalledFile | None) -> bool:
    """Say whether a file holds what we wrote: by the record, or by the text of this version."""
    return current == skill_bytes() or bool(known and known.after_sha256 == sha256_of(current))
