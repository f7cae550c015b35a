"""What a check is told by git, where it asks: flags of the index, filters, and the refs that it names.

A check that compares the work with a tag says what git says, so an agent that moves the tag, has git skip a file, or
puts a filter before it changes the verdict. HEAD and the branch that is checked out move with honest commits, and are
left alone.
"""

from __future__ import annotations

import os
import re

from omx_autoresearch.foundation.records import sha256
from omx_autoresearch.system.git import common_dir, run_git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "git: "
_LEARNS = frozenset((
    "diff", "diff-index", "diff-files", "diff-tree", "ls-files", "ls-tree", "status", "show", "log",
    "rev-parse", "rev-list", "describe", "merge-base", "cat-file", "grep", "tag", "check-attr",
    "check-ignore", "for-each-ref", "archive", "blame",
))  # fmt: skip
_CALL = re.compile(r"\bgit\b((?:[\"',\[\]\s]+[\w./@=:{}$-]+){1,8})")
_TAKES_VALUE = ("-C", "-c", "--git-dir", "--work-tree")
_WORD = re.compile(r"[\w./@-]+")
_DECIDING = re.compile(
    r"(?:filter|diff|include|includeif|alias|grep|status)\.|core\.(?:attributesfile|worktree|filemode|autocrlf|eol|"
    r"symlinks|ignorecase|excludesfile|fsmonitor|trustctime|checkstat|untrackedcache|sparsecheckout\w*|safecrlf)\b|"
    r"submodule\..*\.ignore\b"
)
_REF = f"{PREFIX}ref "
_FLAGS = f"{PREFIX}flags of the index"
_FILTERS = f"{PREFIX}filters and attributes"
_REPLACED = f"{PREFIX}replaced objects"


def asked_of_git(texts: Iterable[str]) -> tuple[str, ...]:
    """The commands of git that commands and scripts call to learn something, sorted."""
    found: set[str] = set()
    for text in texts:
        for words in _CALL.findall(text):
            previous = ""
            for word in re.findall(r"[\w./@=:{}$-]+", words):
                if not word.startswith("-") and previous not in _TAKES_VALUE:
                    found |= {word} & _LEARNS
                    break
                previous = word
    return tuple(sorted(found))


def refs_named(workspace_path: str, texts: Iterable[str]) -> tuple[str, ...]:
    """Names of tags and of other branches than the one that is checked out that these texts have in them, sorted."""
    words = {part for text in texts for word in _WORD.findall(text) for part in word.split("..")}
    current = _answer(workspace_path, "symbolic-ref", "-q", "HEAD").strip()
    found: set[str] = set()
    for ref in _answer(workspace_path, "for-each-ref", "--format=%(refname)").split():
        short = re.sub(r"^refs/(?:tags|heads|remotes)/", "", ref)
        if ref != current and not ref.startswith(("refs/stash", "refs/replace/")):
            found |= {ref, short, ref.removeprefix("refs/")} & words
    return tuple(sorted(found - {re.sub(r"^refs/heads/", "", current), "HEAD"}))


def refs_of(names: Iterable[str]) -> list[str]:
    """The refs of which these names of answers tell."""
    return [name.removeprefix(_REF) for name in names if name.startswith(_REF)]


def answers(workspace_path: str, refs: Iterable[str]) -> dict[str, str]:
    """By name: the digest of each thing that decides what git says; none where there is no repository.

    Args:
        workspace_path: in the work tree.
        refs: names of refs.
    """
    own = common_dir(workspace_path)
    if own is None:
        return {}
    listed = _answer(workspace_path, "ls-files", "-v", "-z").split("\0")
    flagged = [line for line in listed if line[:1].islower() or line[:1] == "S"]
    settings = _answer(workspace_path, "config", "--local", "--includes", "--list", "-z").split("\0")
    deciding = sorted(line for line in settings if _DECIDING.match(line))
    found = {_FLAGS: flagged, _FILTERS: [*deciding, _attributes(own)]}
    found[_REPLACED] = _answer(workspace_path, "for-each-ref", "refs/replace").split("\n")
    for ref in refs:
        found[_REF + ref] = [_answer(workspace_path, "rev-parse", "-q", "--verify", ref)]
    return {
        name: sha256("\0".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
        for name, lines in found.items()
    }


def _attributes(own_path: str) -> str:
    try:
        with open(
            os.path.join(own_path, "info", "attributes"), encoding="utf-8", errors="surrogateescape"
        ) as stream:
            return stream.read(1_000_000)
    except OSError:
        return ""


def _answer(workspace_path: str, *args: str) -> str:
    result = run_git([*args], cwd=workspace_path)
    return result.stdout.decode("utf-8", "surrogateescape") if result.exit_status == 0 else ""
