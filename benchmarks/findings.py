"""Missions with many findings: ``python -m benchmarks.findings [--findings N ...] [--rounds N] [--quick]``.

What people and agents ask of a mission that holds 10,000 and 1,000,000 findings, each call in this process, beside the
empty mission and one of 50, asked in turn: its status, the last 50 findings, one by its id, whether it is ready, and
one more finding. Medians, in CPU time, since the disk's own is the same for all. A tenth of the findings are accepted;
how long it took to record them is printed too.

The empty mission lists nothing and finds nothing, so "last 50" and "one by id" have their bar against the mission of
50, which answers the same. Their ratio to the empty one is what an answer of 50 findings, or of one, costs at all. The
empty mission also rests on no evidence, which readiness would look up by its ids; hence the wider bar.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions import findings, launch, views
from omx_autoresearch.missions.records.work import FindingRecorded
from omx_autoresearch.missions.rules.criteria import Evidence, Finding, criterion_of
from omx_autoresearch.missions.rules.intake import MissionDraft
from omx_autoresearch.missions.store import MissionStore

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 10_000
FEW = 50
BARS = {
    "status": (1.5, 0),
    "last 50": (1.5, FEW),
    "one by id": (1.5, FEW),
    "readiness": (2.0, 0),
    "one more": (1.5, 0),
}
"""The ratio that a call may reach, and how many findings the mission holds that it is compared with."""
QUICK = (200, 3)
"""Findings and rounds of ``--quick``, which only shows that this runs."""


def main(argv: list[str] | None = None) -> int:
    """Measure and print; ends 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--findings", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--quick", action="store_true", help="a few findings, no bars")
    options = parser.parse_args(argv)
    counts, rounds = ([QUICK[0]], QUICK[1]) if options.quick else (options.findings, options.rounds)
    with tempfile.TemporaryDirectory(prefix="findings-benchmark-") as folder:
        is_missed = False
        for count in counts:
            root = Path(folder, str(count))
            filled = [_filled(root / str(size), size, rounds) for size in (0, FEW, count)]
            print(f"\n{count:,} findings, recorded in {filled[-1].seconds:.1f} s")
            is_missed = _report(_medians(filled, rounds), is_judged=not options.quick) or is_missed
            shutil.rmtree(root)
    return 1 if is_missed else 0


@dataclass(frozen=True)
class Filled:
    """A mission that holds findings.

    Attributes:
        calls: what is asked of it, by name.
        seconds: how long it took to record them.
    """

    calls: dict[str, Callable[[], object]]
    seconds: float


def _report(medians: list[dict[str, float]], *, is_judged: bool) -> bool:
    """Print each call at the empty mission, the small and the large one; True when a bar is missed and is judged."""
    empty, few, many = medians
    is_missed = False
    print(f"  {'':10} {'empty':>9} {f'{FEW}':>9} {'all':>9}   all : empty   all : {FEW}")
    for name, (bar, against) in BARS.items():
        to_empty, to_few = many[name] / empty[name], many[name] / few[name]
        ratio = to_few if against else to_empty
        times = " ".join(f"{seconds * 1000:6.2f} ms" for seconds in (empty[name], few[name], many[name]))
        is_over = is_judged and ratio > bar
        said = f"bar {bar} x {against or 'the empty mission'}{'  MISSED' if is_over else ''}"
        print(f"  {name:10} {times}   {to_empty:9.2f} x   {to_few:6.2f} x   {said}")
        is_missed = is_missed or is_over
    return is_missed


def _filled(root: Path, count: int, rounds: int) -> Filled:
    """A mission of ``count`` findings, and the calls on it."""
    runtime, task_id = _mission(root)
    began = time.perf_counter()
    _fill(runtime, task_id, count)
    seconds = time.perf_counter() - began
    findings.list_findings(runtime, task_id, limit=1)  # catches the index up
    serial = iter(range(count, count + rounds + 1))

    def one_more() -> None:
        submission = findings.Submission("one more", id=f"m{next(serial)}")
        findings.add_finding(runtime, task_id, submission, source="mcp")

    calls: dict[str, Callable[[], object]] = {
        "status": lambda: views.view(runtime, task_id),
        "last 50": lambda: findings.list_findings(runtime, task_id, limit=50),
        "one by id": lambda: findings.find_finding(runtime, task_id, f"f{count // 2}"),
        "readiness": lambda: views.readiness(runtime, task_id),
        "one more": one_more,
    }
    return Filled(calls, seconds)


def _medians(missions: list[Filled], rounds: int) -> list[dict[str, float]]:
    """The median of each call at each mission, in seconds; they are asked in turn."""
    times: list[dict[str, list[float]]] = [{name: [] for name in BARS} for _ in missions]
    for name in BARS:  # the findings that the last one adds belong to no other call
        for _ in range(rounds):
            for mission, taken in zip(missions, times, strict=True):
                taken[name].append(_cpu_seconds(mission.calls[name]))
    return [{name: statistics.median(values) for name, values in taken.items()} for taken in times]


def _cpu_seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _mission(root: Path) -> tuple[Runtime, str]:
    project = root / "project"
    project.mkdir(parents=True)
    (project / "check.sh").write_text("#!/bin/sh\nexit 1\n")
    (project / "check.sh").chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)
    environ = {"PATH": os.environ.get("PATH", os.defpath)}
    runtime = Runtime(home=StateHome(str(root / "state")), environ=environ)
    draft = MissionDraft(
        goal="Measure",
        validator_command="./check.sh",
        criteria=(criterion_of("report: written :: file: report.md"),),
    )
    task_id = launch.create_mission(runtime, str(project), draft).task_id
    launch.start(runtime, task_id, launch.StartOptions(has_baseline=False))
    return runtime, task_id


def _fill(runtime: Runtime, task_id: str, count: int) -> None:
    store = MissionStore(runtime.home)
    for start in range(0, count, BATCH):
        records = [FindingRecorded(_finding(number)) for number in range(start, min(start + BATCH, count))]
        with store.transaction(task_id, runtime.now()) as transaction:
            transaction.record(*records)


def _finding(number: int) -> Finding:
    is_accepted = number % 10 == 0
    return Finding(
        f"f{number}",
        "file",
        f"Observation {number}: the render takes longer than before",
        source="mcp",
        paths=("src/render.py",),
        criterion_id="report",
        evidence=Evidence("report", f"digest-{number}") if is_accepted else None,
        claim_reason="" if is_accepted else "criterion: received no such file",
    )


if __name__ == "__main__":
    raise SystemExit(main())
