"""The trust of hooks: Codex runs only hooks with a trusted hash, so this part asks for the hashes and writes them.

``codex app-server`` answers ``hooks/list`` with each hook's key and current hash (checked with 0.171.0). Codex reads
the trusted hashes from ``config.toml``: ``[hooks.state."KEY"] trusted_hash = "sha256:..."``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.hook_lines import state_home_of_line
from omx_autoresearch.agents.json_rpc import last_answer
from omx_autoresearch.agents.parts import Check, Part
from omx_autoresearch.agents.parts.hooks import others_behind, registered
from omx_autoresearch.agents.settings_files import readable_text
from omx_autoresearch.agents.settings_text import (
    TextFault,
    inner_value,
    toml_values,
    with_table,
    without_table,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.parts import Change, Examination, Installation
    from omx_autoresearch.agents.settings_files import SettingsFile

ANSWER_SECONDS = 30.0
_STATE = ("hooks", "state")
_ABOUT_US = {"name": "omx_autoresearch", "title": "omx_autoresearch", "version": "1"}
_MEMORY = "trust_keys"
_BY_HAND = (
    "Codex skips hooks that it does not trust: run /hooks in Codex and trust the entries of omx-autoresearch."
)


@dataclass(frozen=True, slots=True)
class HookTrust:
    """Codex's answer about one of our hooks.

    Attributes:
        key: the hook's name in the table of trusted hashes.
        current_hash: the hash of the hook's present definition.
        is_trusted: Codex runs the hook.
    """

    key: str
    current_hash: str
    is_trusted: bool


@dataclass(frozen=True)
class Trust(Part):
    """The part for the trusted hashes.

    Attributes:
        config_path: the file with the hashes.
    """

    config_path: str
    name = "trust"
    needs_the_others = True

    def path(self, installation: Installation) -> str:
        """The user's ``config.toml``, for a project's hooks too."""
        del installation
        return self.config_path

    def add(self, file: SettingsFile, change: Change) -> None:
        """Write the hashes that Codex asks for, and note any step that is left to the person."""
        notes = []
        if change.is_dry:
            hooks = change.files[change.installation.settings_path]
            if hooks.before != hooks.after:
                notes.append(
                    f"install then writes the hashes that make Codex trust these hooks to {self.config_path}."
                )
        elif not (states := self.states(change.installation, change.environ)):
            change.notes.insert(0, _BY_HAND)
            return
        else:
            try:
                stale = set(change.memory.get(_MEMORY, ())) - {state.key for state in states}
                text = file.text
                for key in sorted(stale):
                    text = without_table(text, (*_STATE, key))
                file.text = with_trust(text, states)
            except TextFault:
                change.notes.insert(0, _BY_HAND)
                return
            change.memory[_MEMORY] = tuple(state.key for state in states)
        if change.installation.scope == "project":
            notes.append("Codex reads a project's hooks only in a project that it trusts.")
        change.notes[:0] = notes

    def remove(self, file: SettingsFile, change: Change) -> None:
        """Remove our hashes. Codex keys the trust of other hooks by their position, which may change."""
        installation = change.installation
        hooks = readable_text(installation.settings_path)
        keys = change.memory.get(_MEMORY) or _keys(installation.settings_path, hooks)
        text = file.text
        with contextlib.suppress(TextFault):  # Codex ignores hashes of hooks that are gone
            for key in keys:
                text = without_table(text, (*_STATE, key))
            file.text = text
        if others_behind(hooks):
            change.notes.append(
                f"other hooks in {installation.settings_path} moved up: run /hooks in Codex and trust them again."
            )

    def check(self, examination: Examination) -> list[Check]:
        """Ask Codex whether it runs our hooks."""
        installation = examination.installation
        title = installation.client.title
        states = self.states(installation, examination.environ)
        if states is None:
            what = f"{title} did not say which hooks it trusts"
            return [Check(self.name, False, what, "run /hooks in it and check")]
        bad = [state.key for state in states if not state.is_trusted]
        if states and not bad:
            return [Check(self.name, True, f"{title} trusts all {len(states)} hooks")]
        what = f"{title} skips {len(bad)} of our hooks, untrusted or disabled"
        cure = f"{examination.install}, or trust them with /hooks"
        return [Check(self.name, False, what if states else f"{title} sees none of our hooks", cure)]

    def states(self, installation: Installation, environ: Mapping[str, str]) -> list[HookTrust] | None:
        """Ask Codex about our hooks in one settings file; None if Codex is missing or does not answer."""
        binary_path = shutil.which(installation.client.name, path=environ.get("PATH"))
        if not binary_path:
            return None
        folder_path = os.path.dirname(installation.settings_path)
        cwd = os.path.dirname(folder_path) if installation.scope == "project" else folder_path
        try:
            answer = last_answer(
                [binary_path, "app-server"],
                (
                    {"id": 1, "method": "initialize", "params": {"clientInfo": _ABOUT_US}},
                    {"method": "initialized"},
                    {"id": 2, "method": "hooks/list", "params": {"cwds": [cwd]}},
                ),
                environ={**environ, "CODEX_HOME": os.path.dirname(self.config_path)},
                wait_seconds=ANSWER_SECONDS,
                cwd=cwd,
            )
        except (OSError, ValueError):
            return None
        settings_path = os.path.realpath(installation.settings_path)
        return [
            HookTrust(
                str(hook["key"]),
                str(hook["currentHash"]),
                hook.get("trustStatus") == "trusted" and hook.get("enabled") is not False,
            )
            for hook in _hooks_in(answer)
            if os.path.realpath(str(hook.get("sourcePath", ""))) == settings_path
            and state_home_of_line(str(hook.get("command", "")))
        ]


def with_trust(text: str, states: list[HookTrust]) -> str:
    """Add trusted hashes to a ``config.toml``; they replace hashes of an older form of the same hook.

    Raises:
        TextFault: the edit would change something else in the file.
    """
    for state in sorted(states, key=lambda state: state.key):
        keys = (*_STATE, state.key)
        wanted: dict[str, object] = {"trusted_hash": state.current_hash}
        if inner_value(toml_values(text), keys) != wanted:
            text = with_table(without_table(text, keys), keys, wanted)
    return text


def _keys(settings_path: str, hooks: str) -> tuple[str, ...]:
    """Codex's keys for our handlers, derived from their positions in the file."""
    return tuple(
        f"{settings_path}:{re.sub(r'(?<!^)(?=[A-Z])', '_', one.event).lower()}:{one.group}:{one.handler}"
        for one in registered(hooks, comments=False)
    )


def _hooks_in(answer: dict[str, Any]) -> list[dict[str, Any]]:
    result = answer.get("result")
    entries = result.get("data", []) if isinstance(result, dict) else []
    return [
        hook
        for entry in entries
        if isinstance(entry, dict)
        for hook in entry.get("hooks", [])
        if isinstance(hook, dict) and "key" in hook and "currentHash" in hook
    ]
