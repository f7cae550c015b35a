"""What the controller adds to a trial: ``python -m benchmarks.trial [--quick] [--folder PATH]``.

One experiment in a repository of 1,000, 10,000 and 50,000 small files on a memory file system, its measure and check
commands as short as commands can be. A trial's *own* time is all of it but those commands: git, restoring, looking at
frozen files, starting and watching processes, the log. Beside it stand the bare git commands that isolate a trial in
one work tree (``add -A``, ``write-tree``, ``commit-tree``; ``reset --hard``, ``clean -ffdx``), run in turn with the
trials. Medians; a ratio means more than a time on a busy machine. Takes a few minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from omx_autoresearch.experiments import measurement
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.metrics import MetricSpec
from omx_autoresearch.experiments.judge.state import (
    ExperimentConfig,
    ExperimentHypothesis,
    ExperimentLimits,
    HypothesisOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.experiments.runs import Run
    from omx_autoresearch.experiments.trial import ExperimentWorkspace

SIZES = ((1_000, 60.0, 15), (10_000, 150.0, 9), (50_000, 400.0, 5))
"""Files, the bar in milliseconds, trials of each kind."""
FILES_IN_FOLDER = 50
MEMORY_FOLDER = "/dev/shm"  # where Linux has its memory file system


class Sample(NamedTuple):
    """One trial: its own time, what of it the runs took, and how many runs there were."""

    own_ms: float
    runs_ms: float
    runs: int


class Figures(NamedTuple):
    """Medians for one size."""

    files: int
    bar_ms: float
    bare_ms: float
    rejected: Sample
    accepted: Sample
    unchanged_ms: float


def main(argv: list[str] | None = None) -> int:
    """Print the table beside the bars; 1 when one is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="1,000 files, three trials, nothing is judged")
    parser.add_argument("--folder", help="where to measure (default: a memory file system)")
    options = parser.parse_args(argv)
    folder = options.folder or (MEMORY_FOLDER if os.path.isdir(MEMORY_FOLDER) else None)
    sizes = ((SIZES[0][0], SIZES[0][1], 3),) if options.quick else SIZES
    is_held = True
    print(f"Own time of a trial in {folder or tempfile.gettempdir()}, medians in ms")
    for files, bar_ms, count in sizes:
        figures = measure(folder, files, bar_ms, count)
        show(figures, is_judged=not options.quick)
        is_held = is_held and max(figures.rejected.own_ms, figures.accepted.own_ms) <= bar_ms
    return 0 if is_held or options.quick else 1


def measure(folder: str | None, files: int, bar_ms: float, count: int) -> Figures:
    """Run the trials of one size."""
    root_path = Path(tempfile.mkdtemp(prefix="trial-benchmark-", dir=folder))
    try:
        project_path = make_project(root_path / "repo", files)
        config = ExperimentConfig(
            "trial",
            MetricSpec("ms"),
            measure="./measure.sh",
            check="./check.sh",
            calibration_pairs=2,
            limits=ExperimentLimits(trials=0),
        )
        home_path = str(root_path / "home")
        with AutoresearchController(str(project_path), config, home_path=home_path) as controller:
            controller.establish_baseline()
            return _figures(controller, project_path, (files, bar_ms, count))
    finally:
        shutil.rmtree(root_path)


def make_project(path: Path, files: int) -> Path:
    """A repository with many small files, a measure and a check."""
    path.mkdir()
    for number in range(files):
        folder = path / "src" / f"d{number // FILES_IN_FOLDER}"
        if number % FILES_IN_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"f{number}.txt").write_text(f"{number}\n" * 20, encoding="utf-8")
    for name, line in {"measure.sh": "read v < v; echo METRIC ms=$v", "check.sh": ":"}.items():
        (path / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (path / name).chmod(0o755)
    (path / "v").write_text("100000\n", encoding="utf-8")
    for args in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "base")):
        _git(path, *args)
    return path


def _figures(controller: AutoresearchController, project_path: Path, size: tuple[int, float, int]) -> Figures:
    files, bar_ms, count = size
    bare_path = project_path.parent / "bare"
    _git(project_path, "worktree", "add", "-q", "--detach", str(bare_path))
    value = 100_000
    bare: list[float] = []
    samples: dict[str, list[Sample]] = {"rejected": [], "accepted": [], "unchanged": []}
    for number in range(count + 1):
        bare.append(bare_trial(bare_path, number))
        samples["rejected"].append(trial(controller, value + 10 + number, "rejected"))
        samples["unchanged"].append(trial(controller, None, "rejected"))
        value -= 1
        samples["accepted"].append(trial(controller, value, "accepted"))
    warm = {name: found[1:] for name, found in samples.items()}  # the first of each fills the caches
    return Figures(
        files,
        bar_ms,
        statistics.median(bare[1:]),
        _middle(warm["rejected"]),
        _middle(warm["accepted"]),
        _middle(warm["unchanged"]).own_ms,
    )


def _middle(samples: list[Sample]) -> Sample:
    return Sample(
        statistics.median(sample.own_ms for sample in samples),
        statistics.median(sample.runs_ms for sample in samples),
        samples[0].runs,
    )


def trial(controller: AutoresearchController, value: int | None, expected: str) -> Sample:
    """One trial that writes one file (or nothing), and what of it was ours."""
    runs: list[tuple[float, float]] = []

    def play(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        if value is not None:
            with open(f"{workspace.path}/v", "w", encoding="utf-8") as stream:
                stream.write(f"{value}\n")
        return HypothesisOutcome()

    with _timed("run_once", runs):
        began = time.perf_counter()
        row = controller.run_iteration(ExperimentHypothesis("h"), play)
        seconds = time.perf_counter() - began
    if row.status != expected:
        raise RuntimeError(f"the trial was to be {expected} and is {row.status}: {row.reason}")
    commands = sum(command for _, command in runs)
    return Sample(
        1e3 * (seconds - commands), 1e3 * sum(whole - command for whole, command in runs), len(runs)
    )


class _timed:  # noqa: N801  # reads as a word where it is used
    """Time every run, for the length of a ``with``."""

    def __init__(self, name: str, runs: list[tuple[float, float]]) -> None:
        self._name = name
        self._runs = runs
        self._plain: Callable[..., Run] = getattr(measurement, name)

    def __enter__(self) -> None:
        setattr(measurement, self._name, self._run)

    def __exit__(self, *_: object) -> None:
        setattr(measurement, self._name, self._plain)

    def _run(self, *args: object) -> Run:
        began = time.perf_counter()
        run = self._plain(*args)
        self._runs.append((time.perf_counter() - began, run.wall_seconds))
        return run


def bare_trial(path: Path, number: int) -> float:
    """The git commands that isolate one trial in one work tree, in milliseconds."""
    (path / "v").write_text(f"{number}\n", encoding="utf-8")
    began = time.perf_counter()
    _git(path, "add", "-A")
    tree = _git(path, "write-tree")
    _git(path, "commit-tree", tree, "-p", "HEAD", "-m", "trial")
    _git(path, "reset", "-q", "--hard")
    _git(path, "clean", "-ffdxq")
    return 1e3 * (time.perf_counter() - began)


def _git(path: Path, *args: str) -> str:
    identity = ("-c", "user.name=b", "-c", "user.email=b@localhost")
    said = subprocess.run(["git", "-C", str(path), *identity, *args], capture_output=True, check=True)
    return said.stdout.decode().strip()


def show(figures: Figures, *, is_judged: bool) -> None:
    """One size, as a few lines."""
    rejected, accepted = figures.rejected, figures.accepted
    print(f"  {figures.files:,} files   bare git {figures.bare_ms:.0f}")
    for name, sample in (("rejected", rejected), ("accepted, judged twice", accepted)):
        ratio = sample.own_ms / figures.bare_ms
        judged = "held" if sample.own_ms <= figures.bar_ms else "MISSED"
        verdict = f"   (bar {figures.bar_ms:.0f}) {judged}" if is_judged else ""
        each = sample.runs_ms / max(1, sample.runs)
        print(
            f"    {name:24} {sample.own_ms:6.0f}   {ratio:4.1f} x bare git,"
            f" {sample.runs} runs of {each:.1f} among it{verdict}"
        )
    print(f"    {'nothing changed':24} {figures.unchanged_ms:6.0f}")


if __name__ == "__main__":
    raise SystemExit(main())
