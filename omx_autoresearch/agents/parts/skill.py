"""The skill that tells an agent how to work on a mission: a file in a folder of the client's, put there and taken back.

It is ours while it holds what we wrote, as the record of the installation or the text of this version says. One that a
person edited, or that stood there before, is never touched.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from omx_autoresearch.agents.parts import Check
from omx_autoresearch.agents.settings_files import SettingsFile, load_record, read_bytes
from omx_autoresearch.foundation.errors import StorageFailed

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Change, Examination, Installation


@cache
def skill_bytes() -> bytes:
    """The skill as this version of the package has it."""
    return resources.files("omx_autoresearch.foundation.templates").joinpath("SKILL.md").read_bytes()


def _is_ours(file: SettingsFile) -> bool:
    return file.before == skill_bytes() or file.is_as_we_left_it


class Skill:
    """See :class:`omx_autoresearch.agents.parts.Part`."""

    name = "skill"
    needs_the_others = False

    def path(self, installation: Installation) -> str:
        """A file of its own."""
        return installation.skill_path

    def add(self, file: SettingsFile, change: Change) -> None:
        """Write it, unless another skill of this name stands there."""
        if file.before is None or _is_ours(file):
            file.after = skill_bytes()
            file.stood_there = file.before is not None and not file.known
        else:
            file.is_foreign = True
            change.notes.append(f"{file.path} is your own skill and was kept")

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove it, unless it was edited."""
        if file.before is not None and _is_ours(file):
            file.after = None
        else:
            file.is_foreign = True
            if file.before is not None and file.known:
                change.notes.append(
                    f"the skill in {file.path} was edited after the installation and was kept"
                )

    def check(self, examination: Examination) -> list[Check]:
        """Look at the file, and for what would hide the prompt command from the hook."""
        installation = examination.installation
        checks = [_installed(examination)] if installation.skill_path else []
        return [*checks, _unhidden(installation)] if installation.hiding_paths else checks


def _installed(examination: Examination) -> Check:
    path = examination.installation.skill_path
    record = load_record(examination.installation.record_path(examination.hooks_home_path))
    try:
        file = SettingsFile(path, read_bytes(path), record.file(path))
    except StorageFailed as error:
        return _checked(str(error), examination.install)
    if file.before is None:
        return _checked(f"not installed; `install` writes {path}")
    if file.before == skill_bytes():
        return _checked(f"installed in {path}")
    if _is_ours(file):
        return _checked(f"the skill in {path} is from an earlier version", examination.install)
    return _checked(f"{path} is your own and was kept")


def _checked(what: str, cure: str = "", name: str = Skill.name) -> Check:
    return Check(name, not cure, what, cure, is_about_hold=False)


def _unhidden(installation: Installation) -> Check:
    for path in installation.hiding_paths:
        if os.path.lexists(path):
            what = f"{path} hides /autoresearch from the hook, so it would bind no mission"
            return _checked(what, f"remove {path}, or type $autoresearch instead", "prompt")
    return _checked("no command or skill hides /autoresearch from the hook", name="prompt")
