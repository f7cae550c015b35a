"""An experiment that stands still: a number in a file is measured, so that every trial is quick and says the same."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import ExperimentConfig, ExperimentState
from omx_autoresearch.experiments.store import ExperimentStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.scratch import Scratch

MEASURE = "#!/bin/sh\necho METRIC total_ms=$(cat value.txt)\n"


@dataclass
class Quiet:
    """An experiment whose metric is the number in ``value.txt``, 100 at the base; lower is better.

    Attributes:
        scratch: the world.
        experiment_id: its name.
    """

    scratch: Scratch
    experiment_id: str

    @classmethod
    def begin(cls, scratch: Scratch, *, task_id: str = "", **config: Any) -> Quiet:
        """Commit the scripts, start the experiment, and measure its baseline; nobody works on it then."""
        gate = scratch.root / "gate"
        check = f"#!/bin/sh\nif [ -p {gate} ]; then read _ <{gate}; fi\ntest -s value.txt\n"
        scratch.write("measure.sh", MEASURE, executable=True)
        scratch.write("correct.sh", check, executable=True)
        scratch.write("value.txt", "100\n")
        scratch.commit("Something to optimize")
        return cls.begin_again(scratch, task_id=task_id, **config)

    @classmethod
    def begin_again(cls, scratch: Scratch, *, task_id: str = "", **config: Any) -> Quiet:
        """Another experiment on the same commit."""
        options: dict[str, Any] = {
            "name": "quiet",
            "metric": MetricSpec("total_ms", unit="ms"),
            "measure": "./measure.sh",
            "check": "./correct.sh",
            "protect": ("!value.txt",),
            "calibration_pairs": 2,
            "claim_pairs": 2,
        }
        runtime = scratch.runtime()
        with AutoresearchController(
            str(scratch.project), ExperimentConfig(**(options | config)), runtime=runtime, task_id=task_id
        ) as controller:
            controller.establish_baseline()
            return cls(scratch, controller.experiment_id)

    @property
    def folder(self) -> Path:
        return Path(ExperimentStore(self.scratch.home).folder(self.experiment_id).root_path)

    @property
    def candidate(self) -> Path:
        return self.folder / "work" / "candidate"

    @property
    def state(self) -> ExperimentState:
        return ExperimentStore(self.scratch.home).load(self.experiment_id)

    def change(self, value: object) -> None:
        """What an agent does in the candidate's worktree."""
        (self.candidate / "value.txt").write_text(f"{value}\n", encoding="utf-8")

    def patch(self, old: object, new: object) -> str:
        """The same as a patch."""
        return f"--- a/value.txt\n+++ b/value.txt\n@@ -1 +1 @@\n-{old}\n+{new}\n"

    @contextmanager
    def gate(self) -> Iterator[Gate]:
        """Let every check wait for the gate while it is there."""
        path = self.scratch.root / "gate"
        os.mkfifo(path)
        try:
            yield Gate(path)
        finally:
            path.unlink(missing_ok=True)


class Gate:
    """Where a check waits."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> None:
        """Let the check that waits, or comes next, go on; nobody waits any more after it."""
        self._path.write_text("go\n")  # begins when the check reads
        self._path.unlink()
