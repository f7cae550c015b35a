"""A bench in a scratch folder: two worktrees with a measure script that is frozen and a work script that is not."""

from __future__ import annotations

import os
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omx_autoresearch.experiments.evaluators import FrozenEvaluators, freeze_evaluators
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentConfig
from omx_autoresearch.experiments.runs import Run, run_once
from omx_autoresearch.experiments.store import ExperimentFolder

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")

MEASURE = "#!/bin/sh\n. ./work.sh\necho METRIC ms=5\n"


@dataclass
class Scene:
    """An experiment's folder beside a project, with equal worktrees."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})
    count: int = 0

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def folder(self) -> ExperimentFolder:
        return ExperimentFolder(str(self.root / "experiments" / "this"))

    @property
    def incumbent(self) -> Path:
        return Path(self.folder.work_path, "incumbent")

    @property
    def candidate(self) -> Path:
        return Path(self.folder.work_path, "candidate")

    def write(self, files: dict[str, str]) -> None:
        """Write files into both worktrees; what begins with a shebang may be executed."""
        for worktree in (self.incumbent, self.candidate):
            for name, text in files.items():
                path = worktree / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                path.chmod(0o755 if text.startswith("#!") else 0o644)

    def work(self, text: str) -> None:
        """What the candidate does when it is measured."""
        (self.candidate / "work.sh").write_text(text, encoding="utf-8")

    def bench(self, **config: Any) -> FrozenEvaluators:
        """Freeze what stands in the worktrees now."""
        config.setdefault("metric", MetricSpec("ms"))
        config.setdefault("measure", "./measure.sh")
        config.setdefault("protect", ("!work.sh",))
        config.setdefault("measure_timeout_seconds", 60.0)
        return freeze_evaluators(
            self.folder,
            ExperimentConfig("scene", **config),
            project_path=str(self.project),
            worktree_paths=(str(self.incumbent), str(self.candidate)),
            environment=self.environment,
        )

    def next_id(self) -> str:
        self.count += 1
        return f"r-{self.count:06}"

    def measure(self, bench: FrozenEvaluators, worktree: Path | None = None, **more: Any) -> Run:
        """Measure the candidate, or another worktree, once."""
        return run_once("measure", bench, str(worktree or self.candidate), self.next_id(), **more)


def scene_in(path: Path) -> Scene:
    """A scene whose measure script runs ``work.sh`` and prints one metric."""
    scene = Scene(path)
    scene.project.mkdir()
    scene.write({"measure.sh": MEASURE, "work.sh": ":\n"})
    return scene


def fresh_marker() -> str:
    """A number of seconds for `sleep` that no other process on the machine has in its arguments."""
    return f"60.{uuid.uuid4().int % 10**12:012}"


def living_with(marker: str) -> list[str]:
    """The command lines of all processes that have the marker among their arguments."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in line and int(name) != os.getpid():
            found.append(line.decode())
    return found
