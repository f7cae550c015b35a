"""What judges and is no whole file: tests inside files of the work, and what a check is told by git.

A fact has a name, which the owner reads, and a digest. It is not copied and cannot be put back, for its file is work.
"""

from __future__ import annotations

import os

from omx_autoresearch.freezing import git_answers
from omx_autoresearch.freezing.inline_tests import inline_tests, is_addition, test_files
from omx_autoresearch.freezing.manifest import Fact
from omx_autoresearch.journal.safe_files import script_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from omx_autoresearch.freezing.manifest import PinManifest

_SEPARATOR = "::"


def facts_of(workspace_path: str, paths: Iterable[str]) -> tuple[Fact, ...]:
    """The tests inside these source files, sorted by name.

    Args:
        workspace_path: where the files stand.
        paths: of files of Rust.
    """
    found = [
        Fact(f"{path}{_SEPARATOR}{name}", digest)
        for path in paths
        for name, digest in inline_tests(script_text(workspace_path, path)).items()
    ]
    return tuple(sorted(found, key=lambda fact: fact.name))


def test_modules(workspace_path: str, paths: Iterable[str]) -> list[str]:
    """Places of modules of tests in files of their own that these sources name (``#[cfg(test)] mod tests;``)."""
    found: list[str] = []
    for path in paths:
        if path.endswith(".rs"):
            folder, stem = os.path.dirname(path), os.path.basename(path).removesuffix(".rs")
            below = folder if stem in ("lib", "main", "mod") else os.path.join(folder, stem)
            for name in test_files(script_text(workspace_path, path)):
                found += [os.path.join(below, f"{name}.rs"), os.path.join(below, name, "mod.rs")]
    return found


def changed_facts(
    manifest: PinManifest, workspace_path: str, known: dict[str, Any], seen: dict[str, Any]
) -> dict[str, str]:
    """Names of facts that are no longer what they were, each with what is there now.

    Args:
        manifest: of the contract.
        workspace_path: where the files stand now.
        known: by file: what an earlier look found, and the times of the file then.
        seen: is filled likewise.
    """
    wanted: dict[str, dict[str, str]] = {}
    told = {fact.name: fact.sha256 for fact in manifest.facts if fact.name.startswith(git_answers.PREFIX)}
    changed = _changed_answers(told, workspace_path) if told else {}
    for fact in manifest.facts:
        if fact.name in told:
            continue
        path, _, name = fact.name.partition(_SEPARATOR)
        wanted.setdefault(path, {})[name] = fact.sha256
    for path, tests in wanted.items():
        try:
            status = os.lstat(os.path.join(workspace_path, path))
            marks = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        except OSError:
            marks = []
        entry = known.get(path)
        if not (marks and isinstance(entry, list) and entry[0] == marks):
            entry = [marks, inline_tests(script_text(workspace_path, path))]
        seen[path] = entry
        now = dict(entry[1])
        names = {name for name in tests if now.get(name) != tests[name]}
        names |= {name for name in now if name not in tests and not is_addition(name)}
        changed |= {f"{path}{_SEPARATOR}{name}": str(now.get(name, "")) for name in names}
    return changed


def told_by_git(workspace_path: str, texts: Iterable[str]) -> tuple[Fact, ...]:
    """What decides the answers of git, where these commands and scripts ask it; nothing elsewhere."""
    texts = list(texts)
    if not git_answers.asked_of_git(texts):
        return ()
    found = git_answers.answers(workspace_path, git_answers.refs_named(workspace_path, texts))
    return tuple(Fact(name, found[name]) for name in sorted(found))


def _changed_answers(told: dict[str, str], workspace_path: str) -> dict[str, str]:
    """Those that differ now; none in a copy that has no repository."""
    now = git_answers.answers(workspace_path, git_answers.refs_of(told))
    return {name: now[name] for name in told if now and now.get(name) != told[name]}
