"""The sandbox policy of a Codex session whose rollout does not tell it: ``codex exec --ephemeral`` keeps no rollout.

Without a rollout we believe the command line of ``codex exec``, whose policy cannot change while it runs, and behind it
the user's settings. No tool in a sandbox can write either. An interactive session may change its policy at any time, so
there nothing is believed.
"""

from __future__ import annotations

import os

from omx_autoresearch.agents.machine import home_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NO_SANDBOX = "danger-full-access"
_BYPASSES = ("dangerously-bypass-approvals-and-sandbox", "yolo")
"""Options of Codex, read and never written by us, without the two hyphens."""
_PROFILES = ("-p", "--profile")
_MAX_BYTES = 1024 * 1024


def started_policy(words: list[str], environ: Mapping[str, str]) -> str:
    """The policy that a command line of Codex chooses; empty where it cannot be told.

    Args:
        words: the command line of the client.
        environ: in which it was started.
    """
    if "exec" not in words:
        return ""
    options = words[: words.index("--")] if "--" in words else words
    if any(word.startswith("--") and word[2:] in _BYPASSES for word in options):
        return NO_SANDBOX
    named = [value for name, value in _pairs(options) if name in ("-s", "--sandbox")]
    named += [
        value.partition("=")[2].strip("\"' ")
        for name, value in _pairs(options)
        if name in ("-c", "--config") and value.partition("=")[0].strip() == "sandbox_mode"
    ]
    if len(set(named)) > 1 or any(name in _PROFILES for name, _ in _pairs(options)):
        return ""
    return named[0] if named else _configured(environ)


def _pairs(options: list[str]) -> list[tuple[str, str]]:
    """Every option with what follows it, behind ``=`` or as the next word."""
    return [
        (word.partition("=")[0], word.partition("=")[2])
        if word.startswith("--") and "=" in word
        else (word, following)
        for word, following in zip(options, [*options[1:], ""], strict=True)
        if word.startswith("-")
    ]


def _configured(environ: Mapping[str, str]) -> str:
    """The policy in the user's settings; empty where they name none, or a profile that may name another."""
    folder_path = environ.get("CODEX_HOME") or os.path.join(home_path(environ), ".codex")
    try:
        with open(os.path.join(folder_path, "config.toml"), "rb") as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    if "sandbox_mode" not in text:
        return ""
    import tomllib

    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""
    found = settings.get("sandbox_mode")
    return found if isinstance(found, str) and "profile" not in settings else ""


def client_words() -> list[str]:
    """The command line of the client that started this hook; empty where the system does not tell it."""
    try:
        with open(f"/proc/{os.getppid()}/cmdline", "rb") as stream:
            return [os.fsdecode(word) for word in stream.read(_MAX_BYTES).split(b"\0")[:-1]]
    except OSError:
        return []
