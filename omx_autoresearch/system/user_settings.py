"""The settings of a user that decide what files look like, read once when an experiment starts.

Line ends, filters (LFS and the user's own), ignore and attribute files count in our work trees as they do in the
user's checkout. Nothing else is taken over: no alias, hook, pager, driver, signature, include or command of a
transport. Later changes, whoever makes them, change nothing for a running experiment.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.system.git_calls import Git

_TAKEN = frozenset(
    {
        "core.autocrlf",
        "core.attributesfile",
        "core.bigfilethreshold",
        "core.checkroundtripencoding",
        "core.compression",
        "core.eol",
        "core.excludesfile",
        "core.filemode",
        "core.ignorecase",
        "core.loosecompression",
        "core.precomposeunicode",
        "core.protecthfs",
        "core.protectntfs",
        "core.sparsecheckout",
        "core.sparsecheckoutcone",
        "core.symlinks",
    }
)
_PATHS = frozenset({"core.attributesfile", "core.excludesfile"})
_FILTER_COMMANDS = ("clean", "smudge", "process")
_OURS = "GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM GIT_NO_REPLACE_OBJECTS"
"""Variables that lead to our repository; without them a filter that asks git finds the user's, and its keys there."""

_LFS = re.compile(r"git[- ]lfs\s")


def read_settings(git: Git) -> tuple[tuple[str, str], ...]:
    """The settings that count for work trees of this repository, in git's order, later ones winning.

    Raises:
        WorkspaceFault: git cannot read its configuration.
    """
    found = []
    for entry in git.output("config", "--list", "-z").split(b"\0"):
        key, _, value = os.fsdecode(entry).partition("\n")
        if "\n" not in os.fsdecode(entry):
            value = "true"  # a key alone
        if key in _PATHS and not value.startswith(("/", "~")):
            continue  # relative to a work tree that an agent writes
        if key in _TAKEN or key.startswith(("filter.", "lfs.")):
            found.append((key, value))
    return tuple(found)


def pinned(settings: Iterable[tuple[str, str]], root_path: str) -> tuple[tuple[str, str], ...]:
    """Settings whose filter commands run in the user's checkout.

    Git runs a filter in the work tree, where ``./tools/clean`` or ``python -m clean`` would be a program that an
    agent wrote. In the user's checkout the same words mean what the user wrote. LFS has its program on PATH and asks
    git for the work tree, so it stays where git runs it.
    """
    return tuple((key, _in_checkout(key, value, shlex.quote(root_path))) for key, value in settings)


def config_text(settings: Iterable[tuple[str, str]]) -> bytes:
    """Settings as a configuration file, git-config(1)."""
    lines = []
    for key, value in settings:
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        title = f'{section} "{_escaped(subsection)}"' if subsection else section
        quoted = _escaped(value).replace("\n", "\\n").replace("\t", "\\t")
        lines.append(f'[{title}]\n\t{name} = "{quoted}"\n')
    return os.fsencode("".join(lines))


def _in_checkout(key: str, value: str, quoted_root: str) -> str:
    kind, _, name = key.rpartition(".")
    if (
        not kind.startswith("filter.")
        or name not in _FILTER_COMMANDS
        or not value.strip()
        or _LFS.match(value)
    ):
        return value
    if name != "process":
        quoted_root = quoted_root.replace("%", "%%")  # git replaces %f in these
    return f"cd {quoted_root} && unset {_OURS} && {{ {value}\n}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
