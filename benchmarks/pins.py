"""The cost of many pinned files at a stop: ``python -m benchmarks.pins [--rounds N] [--files N]``.

Two missions, each in a repository of its own of 4,500 files, one of which is edited before each stop. In the one 10
files are pinned, in the other 4,000. Their stops are refused in turn, by a validator that fails at once. What counts is
the ratio of the medians of CPU time (user and system, children included).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.hook import SESSION, Case, commit_all, install_hook, measure, payload
from omx_autoresearch.agents.clients import claude
from omx_autoresearch.agents.hook_lines import hook_line
from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions import launch
from omx_autoresearch.missions.rules.intake import MissionDraft

FEW, MANY, OTHERS = 10, 4000, 500
BAR = 1.2
_LIMITS: dict[str, int | float] = {
    "refusals_total": 5000,
    "idle_refusals": 5000,
    "stale_pivot": 3000,
    "stale_fresh": 4000,
    "stale_stalled": 5000,
}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 when the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, default=MANY, help="pinned in the second mission")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="pins-benchmark-") as folder:
        cases = [
            build(Path(folder, name), count, options.files + OTHERS)
            for name, count in (("few", FEW), ("many", options.files))
        ]
        for number in range(options.rounds + 2):
            for case in cases:
                measure(case, is_kept=number >= 2)
    few, many = (statistics.median(case.cpu_seconds) for case in cases)
    for case in cases:
        cpu, wall = statistics.median(case.cpu_seconds), statistics.median(case.wall_seconds)
        print(f"{case.name:42}{cpu * 1000:9.1f} ms CPU{wall * 1000:9.1f} ms wall")
    ratio = many / few
    print(f"many against few: {ratio:.2f} (bar {BAR:.2f}) {'MISSED' if ratio > BAR else 'held'}")
    return 1 if ratio > BAR else 0


def build(root: Path, pinned: int, total: int) -> Case:
    """A repository with a running mission, and a stop in it that is refused."""
    home, repository = root / "home", root / "repository"
    install_hook(home)
    for number in range(total):
        file = repository / ("data" if number < pinned else "other") / f"d{number // 50}" / f"f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 20)
    commit_all(repository)
    runtime = Runtime(home=StateHome(str(home)), environ=dict(os.environ))
    draft = MissionDraft(
        goal="measure",
        validator_command="false",
        protect=("data/**",),
        limits=_LIMITS,
    )
    mission = launch.create_mission(runtime, str(repository), draft)
    launch.start(runtime, mission.task_id, launch.StartOptions(session_id=SESSION, client="claude"))
    edited = repository / "other" / "edited.txt"

    def edit() -> None:
        edited.parent.mkdir(exist_ok=True)
        edited.write_text(f"edited {time.time_ns()}\n")

    stop = next(entry for entry in claude.CLIENT.entries if entry.native_event == "Stop")
    environ = {"PATH": os.environ["PATH"], "HOME": str(root)}
    argv = ["/bin/sh", "-c", hook_line(stop, "claude", str(home))]
    name = f"(stop) bound and refusing, {pinned} pinned files"
    return Case(name, argv, payload(repository, SESSION), environ, prepare=edit, expects=b'"block"')


if __name__ == "__main__":
    sys.exit(main())
