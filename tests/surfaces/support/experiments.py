"""A person with a repository whose program has a cost, and agents that are shell scripts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.surfaces.support.command_line import Person

if TYPE_CHECKING:
    import subprocess

MEASURE = "#!/bin/sh\nprintf 'METRIC ms=%s\\n' \"$(./work.sh)\"\n"
CHECK = '#!/bin/sh\ntest "$(./answer.sh)" = 42\n'
START = (
    *("experiment", "start", "--metric", "ms", "--measure", "./measure.sh", "--check", "./check.sh"),
    *("--calibration-pairs", "2", "--claim-pairs", "3", "--budget-trials", "20"),
)
"""Deterministic, so two A/A pairs tell all there is."""


class Researcher(Person):
    """A person who starts experiments."""

    def __post_init__(self) -> None:
        if not self.project.exists():
            self.project.mkdir(parents=True)
            self.write("measure.sh", MEASURE, mode=0o755)
            self.write("check.sh", CHECK, mode=0o755)
            self.write("work.sh", "#!/bin/sh\necho 100\n", mode=0o755)
            self.write("answer.sh", "#!/bin/sh\necho 42\n", mode=0o755)
            self.git("init", "--quiet")
            self.commit("Start")

    def begin(self, *more: str) -> str:
        """Start an experiment; returns its id."""
        started = self.json(*START, *more)
        return str(started["experiment"]["experiment_id"])

    def drive(self, script: str, *more: str, status: int = 0) -> Any:
        """Run an agent that is a shell script; returns the document."""
        return self.json("experiment", "run", "--agent", script, *more, status=status)

    def tries(self, script: str, *more: str, status: int = 0) -> Any:
        """``experiment trial`` with a shell script that makes the change; returns its row."""
        done = self.run("experiment", "trial", *more, "--json", "--", "sh", "-c", script)
        assert done.returncode == status, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
        return json.loads(done.stdout)["row"]

    def experiment(self, *more: str) -> Any:
        """``experiment status``."""
        return self.json("experiment", "status", *more)

    def refused(self, *arguments: str, status: int, **env: str) -> str:
        """Run what must be refused; returns what was said."""
        done: subprocess.CompletedProcess[str] = self.run(*arguments, env=env)
        assert done.returncode == status, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr


def works_at(cost: int) -> str:
    """A shell command that makes the program cost so much."""
    return f"printf '#!/bin/sh\\necho {cost}\\n' > work.sh"
