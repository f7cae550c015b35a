"""Our status line in a client's settings, unless the user has a status line already."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from omx_autoresearch.agents.hook_lines import quoted
from omx_autoresearch.agents.parts import Part
from omx_autoresearch.agents.parts.hold_proof import run_line
from omx_autoresearch.agents.settings_files import readable_text
from omx_autoresearch.agents.settings_text import TextFault, value_at, with_value, without_value

if TYPE_CHECKING:
    from omx_autoresearch.agents.parts import Change, Check, Examination, Installation
    from omx_autoresearch.agents.settings_files import SettingsFile

REFRESH_SECONDS = 10
"""How often Claude Code asks for the line, besides at its own events: the answer to a stop comes after the last event,
and the ages in the line grow while nothing happens. Older versions ignore the setting."""
_UNHELD: dict[str, object] = {
    "hook_event_name": "Status",
    "session_id": "00000000-0000-4000-8000-00000000d0c0",
}
_KEYS = ("statusLine",)
_LINE = re.compile(
    r"\[ -d (?P<missions>.+) \] && \[ -x (?P<script>.+) \] && exec (?P=script) statusline; exit 0"
)


def status_line(state_home_path: str) -> str:
    """The command that a client runs for its status line; it starts nothing for a user who never had a mission.

    It does not test for the registry's folder: a mission that has just ended is no longer there but is still shown.

    Example:
        ``[ -d S/missions ] && [ -x S/hook ] && exec S/hook statusline; exit 0``
    """
    missions, script = quoted(f"{state_home_path}/missions"), quoted(f"{state_home_path}/hook")
    return f"[ -d {missions} ] && [ -x {script} ] && exec {script} statusline; exit 0"


def _command(text: str, *, comments: bool) -> object:
    """The configured command, or the value of ``statusLine`` in any other form; None if it is not set."""
    found = value_at(text, _KEYS, comments=comments)
    return found.get("command", found) if isinstance(found, dict) else found


def _is_ours(command: object) -> bool:
    return isinstance(command, str) and bool(_LINE.fullmatch(command))


def _is_foreign(text: str) -> bool:
    try:
        command = _command(text, comments=True)
    except TextFault:
        return False
    return command is not None and not _is_ours(command)


class StatusLine(Part):
    """The part for ``statusLine``."""

    name = "status line"

    def path(self, installation: Installation) -> str:
        """The settings."""
        return installation.settings_path if installation.has_status_line else ""

    def add(self, file: SettingsFile, change: Change) -> None:
        """Set our command, unless the user has one, here or in settings that ours would override."""
        installation = change.installation
        assert change.program, "an installation has a program"
        outer = installation.other_settings_paths if installation.scope == "project" else ()
        if _is_foreign(file.text) or any(_is_foreign(readable_text(path)) for path in outer):
            change.notes.append(
                "your own status line was kept. To show the mission in it, make it run "
                f"`{change.program.script_path} statusline` with the same JSON on its input"
            )
            return
        command = status_line(change.program.state_home_path)
        value = {"type": "command", "command": command, "refreshInterval": REFRESH_SECONDS}
        file.text = with_value(file.text, _KEYS, value, comments=installation.allows_comments)

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove our command, whatever state home it names."""
        comments = change.installation.allows_comments
        if _is_ours(_command(file.text, comments=comments)):
            file.text = without_value(file.text, _KEYS, comments=comments)

    def check(self, examination: Examination) -> list[Check]:
        """Run the command for a session that no mission holds: it must print nothing."""
        installation = examination.installation
        if not installation.has_status_line:
            return []
        path = installation.settings_path
        try:
            command = _command(readable_text(path), comments=installation.allows_comments)
        except TextFault as fault:
            return [self.found(f"{path}: {fault}", "fix the file")]
        if command is None:
            return [self.found(f"{path} sets no status line; `install` sets ours")]
        if not _is_ours(command):
            return [self.found("you have your own status line, which was kept")]
        if command != status_line(examination.hooks_home_path):
            what = f"our status line is from an earlier version or another state home: {command}"
            return [self.found(what, examination.install)]
        if noise := _noise(examination, str(command)):
            return [self.found(noise, examination.install)]
        return [self.found("it shows the mission of a held session, and nothing for any other")]


PART = StatusLine()


def _noise(examination: Examination, line: str) -> str:
    """The output for a session that no mission holds, in a sentence; empty if there is none."""
    answer = run_line(examination, line, _UNHELD)
    if answer.status is None:
        return f"the status line did not answer: {answer.errors}"
    shown = answer.output[:200].decode("utf-8", "replace") + answer.errors[:200]
    if not answer.status and not shown:
        return ""
    return f"without a mission the status line ended with {answer.status} and printed {shown!r}"
