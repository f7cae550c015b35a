"""A toy repository whose metric is deterministic, and candidates of every kind."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentLimits,
    HypothesisOutcome,
)
from tests.support.repositories import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from omx_autoresearch.experiments.trial import ExperimentWorkspace

MEASURE = """\
#!/bin/sh
# The program prints what it needed; this line is the only one that counts.
printf 'METRIC ms=%s\\n' "$(./work.sh)"
"""
CHECK = """\
#!/bin/sh
test "$(./answer.sh)" = 42
"""


def git(path: Path, *args: str) -> str:
    """What git says in a repository."""
    said = subprocess.run(["git", "-C", str(path), *args], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def toy(path: Path, *, value: str = "100", measure: str = MEASURE) -> Path:
    """A clean repository with a program of cost ``value``, a frozen measure and a frozen check."""
    path.parent.mkdir(parents=True, exist_ok=True)
    copy_of(path, "toy", lambda root: _make_toy(root, value, measure), value, measure)
    git(path, "update-index", "-q", "--really-refresh")
    return path


def _make_toy(path: Path, value: str, measure: str) -> None:
    for name, text in {
        "measure.sh": measure,
        "check.sh": CHECK,
        "work.sh": f"#!/bin/sh\necho {value}\n",
        "answer.sh": "#!/bin/sh\necho 42\n",
        ".gitignore": "*.log\nbuild/\n",
    }.items():
        (path / name).write_text(text, encoding="utf-8")
        (path / name).chmod(0o755 if name.endswith(".sh") else 0o644)
    git(path, "init", "-q")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "toy")


CONFIG = ExperimentConfig(
    "faster toy",
    MetricSpec("ms"),
    measure="./measure.sh",
    check="./check.sh",
    calibration_pairs=2,
    claim_pairs=3,
    measure_timeout_seconds=20.0,
    limits=ExperimentLimits(trials=20),
)
"""Deterministic, so two A/A pairs tell all there is."""


def configured(**changes: Any) -> ExperimentConfig:
    """The configuration of most tests with some fields changed."""
    return replace(CONFIG, **changes)


def works_at(value: object) -> Callable[[ExperimentWorkspace], HypothesisOutcome]:
    """A candidate whose program costs ``value``."""

    def play(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        put(workspace, "work.sh", f"#!/bin/sh\necho {value}\n")
        return HypothesisOutcome()

    return play


def writes(name: str, text: str) -> Callable[[ExperimentWorkspace], HypothesisOutcome]:
    """A candidate that writes one file."""

    def play(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        put(workspace, name, text)
        return HypothesisOutcome()

    return play


def put(workspace: ExperimentWorkspace, name: str, text: str) -> None:
    """Write a file of the candidate; an executable stays one."""
    with open(f"{workspace.path}/{name}", "w", encoding="utf-8") as stream:
        stream.write(text)


def h(number: int) -> ExperimentHypothesis:
    """A hypothesis."""
    return ExperimentHypothesis(f"h-{number}", f"idea {number}")


def begun(root: Path, **changes: Any) -> AutoresearchController:
    """A controller on a toy with its baseline established."""
    controller = AutoresearchController(str(root), configured(**changes))
    controller.establish_baseline()
    return controller


def checkout(path: Path) -> dict[str, str]:
    """Every file and link below a checkout with mode and content, ignored ones and git's own too.

    Left out is only the one reference that the experiment says it writes.
    """
    found = {}
    for each in sorted(path.rglob("*")):
        name = str(each.relative_to(path))
        if "refs/omx-autoresearch" in name or (each.is_dir() and not each.is_symlink()):
            continue
        content = os.readlink(each) if each.is_symlink() else sha256(each.read_bytes()).hexdigest()
        found[name] = f"{each.lstat().st_mode:o} {content}"
    return found
