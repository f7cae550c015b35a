"""A copy of the package to add something to, and what that took."""

from __future__ import annotations

import subprocess
from pathlib import Path
from shutil import copytree, ignore_patterns

import omx_autoresearch

PACKAGE = Path(omx_autoresearch.__file__).parent


def copied_package(folder: Path) -> Path:
    """The package, copied into a folder that can stand in PYTHONPATH."""
    copied = folder / PACKAGE.name
    copytree(PACKAGE, copied, ignore=ignore_patterns("__pycache__"))
    return copied


def insert(path: Path, before: str, lines: str) -> None:
    """Write lines in front of one that stands there once."""
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, lines + before), encoding="utf-8")


def touched(copied: Path) -> dict[str, tuple[int, int]]:
    """Lines added and taken away, by the path of each file of the copy that differs from the package."""
    said = subprocess.run(
        ["git", "diff", "--no-index", "--numstat", "-z", "--no-renames", str(PACKAGE), str(copied)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = {}
    words = iter(said.split("\0"))
    for word in words:
        if word:
            new, old, _ = word.split("\t")
            names = (next(words), next(words))
            path = names[0] if names[1] == "/dev/null" else names[1]
            name = path.removeprefix(f"{copied}/").removeprefix(f"{PACKAGE}/")
            if "__pycache__" not in name:
                found[name] = (int(new), int(old))
    return found
