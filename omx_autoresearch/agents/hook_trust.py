"""Codex runs only hooks whose hash it has been told to trust: asking Codex for the hashes and writing them down.

``codex app-server`` answers ``hooks/list`` with each hook's key and current hash (seen with 0.171.0); the trust stands
in ``config.toml`` as ``[hooks.state."KEY"] trusted_hash = "sha256:..."``. The file is changed as text, so that a
person's formatting stays, and the outcome is read back by a TOML parser before it is used.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import time
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omx_autoresearch.agents.installations import Installation, state_home_of_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omx_autoresearch.agents.hook_settings import Registered

ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class HookTrust:
    """What Codex says about one hook of ours.

    Attributes:
        key: the name under which the trust is kept.
        current_hash: the hash of the hook as it stands.
        status: ``trusted``, ``untrusted``, ``modified`` or what else Codex says.
        is_enabled: a person may switch a single hook off.
    """

    key: str
    current_hash: str
    status: str
    is_enabled: bool


def trust_states(installation: Installation, environ: Mapping[str, str]) -> list[HookTrust] | None:
    """Ask Codex about our hooks in one settings file; None when there is no Codex to ask or it does not answer."""
    binary_path = shutil.which(installation.client.binary, path=environ.get("PATH"))
    if not binary_path:
        return None
    folder_path = os.path.dirname(installation.settings_path)
    cwd = os.path.dirname(folder_path) if installation.scope == "project" else folder_path
    environment = {**environ, "CODEX_HOME": os.path.dirname(installation.trust_path)}
    try:
        answer = _ask(binary_path, cwd, environment)
    except (OSError, ValueError):
        return None
    found = []
    for hook in _hooks_in(answer):
        same = os.path.realpath(str(hook.get("sourcePath", ""))) == os.path.realpath(
            installation.settings_path
        )
        if same and state_home_of_line(str(hook.get("command", ""))):
            status, is_enabled = str(hook.get("trustStatus", "")), hook.get("enabled") is not False
            found.append(HookTrust(str(hook["key"]), str(hook["currentHash"]), status, is_enabled))
    return found


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


def _ask(binary_path: str, cwd: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Hold the short JSON-RPC talk with ``codex app-server``."""
    with subprocess.Popen(
        [binary_path, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environ),
        cwd=cwd,
        start_new_session=True,
    ) as process:
        try:
            deadline = time.monotonic() + ANSWER_SECONDS
            about = {"name": "omx_autoresearch", "title": "omx_autoresearch", "version": "1"}
            _send(process, {"id": 1, "method": "initialize", "params": {"clientInfo": about}})
            rest = _receive(process, 1, b"", deadline)[1]
            _send(process, {"method": "initialized"})
            _send(process, {"id": 2, "method": "hooks/list", "params": {"cwds": [cwd]}})
            return _receive(process, 2, rest, deadline)[0]
        finally:
            process.kill()


def _send(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def _receive(
    process: subprocess.Popen[bytes], number: int, pending: bytes, deadline: float
) -> tuple[dict[str, Any], bytes]:
    assert process.stdout is not None
    while True:
        line, separator, rest = pending.partition(b"\n")
        if separator:
            pending = rest
            message = json.loads(line)
            if isinstance(message, dict) and message.get("id") == number:
                return message, pending
            continue
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        chunk = os.read(process.stdout.fileno(), 65536) if ready else b""
        if not chunk:
            raise OSError("codex app-server did not answer")
        pending += chunk


def trust_keys(installation: Installation, found: list[Registered]) -> tuple[str, ...]:
    """Give the keys under which Codex keeps the trust of handlers, from their places in the file."""
    events = {one.event: re.sub(r"(?<!^)(?=[A-Z])", "_", one.event).lower() for one in found}
    return tuple(f"{installation.settings_path}:{events[o.event]}:{o.group}:{o.handler}" for o in found)


def switch_faults(path: str) -> list[str]:
    """Name what switches hooks off in a ``config.toml``; nothing for one that is missing or cannot be read."""
    try:
        with open(path, "rb") as source:
            features = tomllib.load(source).get("features")
    except (OSError, ValueError):
        return []
    names = ("hooks", "codex_hooks")
    return [
        f"features.{name} is false"
        for name in names
        if isinstance(features, dict) and features.get(name) is False
    ]


def with_trust(text: str, states: list[HookTrust]) -> str | None:
    """Add trusted hashes to a ``config.toml``; None when that cannot be done without touching anything else.

    Args:
        text: the file's text.
        states: what to trust. A hash of an older form of the same hook is replaced.
    """
    try:
        wanted = tomllib.loads(text)
        kept = wanted.setdefault("hooks", {}).setdefault("state", {})
        new = {s.key: {"trusted_hash": s.current_hash} for s in sorted(states, key=lambda s: s.key)}
        new = {key: value for key, value in new.items() if kept.get(key) != value}
        kept.update(new)
        changed = _without_tables(text, tuple(new))
        for key, value in new.items():
            newline = "\r\n" if "\r\n" in changed else "\n"
            gap = "" if not changed else newline if changed.endswith("\n") else newline * 2
            header = f"[hooks.state.{json.dumps(key, ensure_ascii=False)}]"
            changed += f'{gap}{header}{newline}trusted_hash = "{value["trusted_hash"]}"{newline}'
        return changed if not new or tomllib.loads(changed) == wanted else None
    except (tomllib.TOMLDecodeError, AttributeError, TypeError):
        return None


def without_trust(text: str, keys: tuple[str, ...]) -> str | None:
    """Take the trust of some hooks out of a ``config.toml``; None when that would touch anything else."""
    try:
        changed = _without_tables(text, keys)
        return changed if tomllib.loads(changed) == _without_keys(tomllib.loads(text), keys) else None
    except tomllib.TOMLDecodeError:
        return None


def _without_tables(text: str, keys: tuple[str, ...]) -> str:
    for key in keys:
        header = re.escape(f"[hooks.state.{json.dumps(key, ensure_ascii=False)}]")
        table = rf"(?:^\r?\n)?^{header}[ \t]*(?:\r?\n|\Z)(?:[A-Za-z_]+[ \t]*=.*(?:\r?\n|\Z))*"
        text = re.sub(table, "", text, flags=re.MULTILINE)
    return text


def _without_keys(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Give the values as they are read after the tables are gone; tables that only held them vanish too."""
    hooks = values.get("hooks")
    states = hooks.get("state") if isinstance(hooks, dict) else None
    if isinstance(hooks, dict) and isinstance(states, dict):
        for key in keys:
            if states.pop(key, None) is not None and not states:
                del hooks["state"]
        if not hooks:
            del values["hooks"]
    return values
