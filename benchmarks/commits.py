"""The verbs of two checkouts side by side: ``python -m benchmarks.commits BEFORE [AFTER]``.

Each checkout stands with its own ``.venv`` and gets a project, a mission and an experiment of its own, made by its own
command line. Then every verb runs in both in turn. What counts is the ratio of the medians of CPU time (user and
system, children included) of three such runs (bar: 1.10).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS, CALLS = 3, 9
BAR = 1.10
VERBS: tuple[tuple[str, ...], ...] = (
    ("--version",),
    ("status",),
    ("status", "--json"),
    ("list",),
    ("validate",),
    ("readiness",),
    ("findings",),
    ("note", "a remark"),
    ("experiment", "list"),
    ("experiment", "status"),
)


class Checkout:
    """One checkout with a scratch project of its own.

    Args:
        path: the checkout; its ``.venv`` has the package and what it needs.
        folder: where project and state home are made.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.program = path / ".venv" / "bin" / "omx-autoresearch"
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        home = folder / "home"
        home.mkdir()
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "OMX_AUTORESEARCH_HOME": str(folder / "state"),
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "user.name",
            "GIT_CONFIG_VALUE_0": "A Person",
            "GIT_CONFIG_KEY_1": "user.email",
            "GIT_CONFIG_VALUE_1": "person@example.invalid",
        }
        self._git("init", "-q", "-b", "main")
        (self.project / "measure.py").write_text("print('METRIC cost=5')\n")
        (self.project / "check.sh").write_text("#!/bin/sh\nexit 0\n")
        (self.project / "check.sh").chmod(0o755)
        self._git("add", "-A")
        self._git("commit", "-qm", "first")
        self.run("init", "--goal", "a benchmark", "--validator", "./check.sh")
        self.run("start", "--no-baseline")
        # fmt: off
        self.run("experiment", "start", "--metric", "cost", "--measure", "python3 measure.py", "--check", "./check.sh",
                 "--budget-trials", "5")
        # fmt: on

    def _git(self, *args: str) -> None:
        subprocess.run(["git", *args], cwd=self.project, env=self.environ, check=True, capture_output=True)

    def run(self, *argv: str) -> float:
        """Run one verb and return its CPU time in seconds.

        Raises:
            SystemExit: it ended with an error, so its time says nothing.
        """
        process = subprocess.Popen(
            [self.program, *argv],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{self.program} {' '.join(argv)} ended with {process.returncode}")
        return used.ru_utime + used.ru_stime


def main(argv: list[str] | None = None) -> int:
    """Print a row a verb; 1 when a ratio misses the bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout with a .venv")
    parser.add_argument("after", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--quick", action="store_true", help="one run of two calls, so that it cannot rot")
    options = parser.parse_args(argv)
    runs, calls = (1, 2) if options.quick else (RUNS, CALLS)
    folder = Path(tempfile.mkdtemp(prefix="commits-benchmark-"))
    try:
        before = Checkout(options.before.resolve(), folder / "before")
        after = Checkout(options.after.resolve(), folder / "after")
        missed = 0
        print(f"{'verb':24} {'before':>9} {'after':>9} {'ratio':>7}")
        for verb in VERBS:
            ratios, medians = [], []
            for _ in range(runs):
                pairs = [(before.run(*verb), after.run(*verb)) for _ in range(calls)]
                old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
                ratios.append(new / old)
                medians.append((old, new))
            ratio = statistics.median(ratios)
            old, new = medians[ratios.index(ratio)]
            missed += ratio > BAR
            print(
                f"{' '.join(verb):24} {old * 1000:6.0f} ms {new * 1000:6.0f} ms {ratio:7.2f}"
                f"{'  MISSED' if ratio > BAR else ''}",
                flush=True,
            )
        return 1 if missed else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(main())
