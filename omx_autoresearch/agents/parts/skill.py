"""The skill, a file in the client's folder that tells its agent how to work on a mission.

The file is ours as long as it holds the text of this version, or the text that the installation recorded. We never
touch a skill that a person edited or that was there before.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from omx_autoresearch.agents.parts import Part
from omx_autoresearch.agents.settings_files import SettingsFile, load_record, read_bytes
from omx_autoresearch.foundation.errors import StorageFailed

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Change, Check, Examination, Installation


@cache
def skill_bytes() -> bytes:
    """The skill's text in this version of the package."""
    return resources.files("omx_autoresearch.foundation.templates").joinpath("SKILL.md").read_bytes()


def _is_ours(file: SettingsFile) -> bool:
    return file.before == skill_bytes() or file.is_as_we_left_it


class Skill(Part):
    """The part for ``SKILL.md``."""

    name = "skill"

    def path(self, installation: Installation) -> str:
        """A file of its own."""
        if not installation.has_skill:
            return ""
        folder_path = os.path.dirname(installation.settings_path)
        return os.path.join(folder_path, "skills", "autoresearch", "SKILL.md")

    def add(self, file: SettingsFile, change: Change) -> None:
        """Write the file, unless there is another skill of this name."""
        if file.before is None or _is_ours(file):
            file.after = skill_bytes()
            file.stood_there = file.before is not None and not file.known
        else:
            file.is_foreign = True
            change.notes.append(f"{file.path} is your own skill, so it was kept")

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove the file, unless a person edited it."""
        if file.before is not None and _is_ours(file):
            file.after = None
        else:
            file.is_foreign = True
            if file.before is not None and file.known:
                change.notes.append(f"{file.path} was edited after the installation, so it was kept")

    def check(self, examination: Examination) -> list[Check]:
        """Look at the file, and for anything that would keep the prompt command from the hook."""
        installation = examination.installation
        checks = [self._installed(examination)] if installation.has_skill else []
        return [*checks, self._unhidden(installation)] if installation.hiding_paths else checks

    def _installed(self, examination: Examination) -> Check:
        path = self.path(examination.installation)
        record = load_record(examination.installation.record_path(examination.hooks_home_path))
        try:
            file = SettingsFile(path, read_bytes(path), record.file(path))
        except StorageFailed as error:
            return self.found(str(error), examination.install)
        if file.before is None:
            return self.found(f"not installed; `install` writes {path}")
        if file.before == skill_bytes():
            return self.found(f"installed in {path}")
        if _is_ours(file):
            return self.found(f"the skill in {path} is from an earlier version", examination.install)
        return self.found(f"{path} is your own skill")

    def _unhidden(self, installation: Installation) -> Check:
        for path in installation.hiding_paths:
            if os.path.lexists(path):
                what = f"{path} hides /autoresearch from the hook, so typing it would bind no mission"
                cure = f"remove {path}, or type $autoresearch instead"
                return self.found(what, cure, name="prompt")
        return self.found("no command or skill hides /autoresearch from the hook", name="prompt")


PART = Skill()
