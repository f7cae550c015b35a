"""Missions with many findings: ``python -m benchmarks.findings [--findings N ...] [--rounds N]``.

What people and agents ask of a mission that holds 10,000 and 1,000,000 findings, each call in this process, as ratios
of medians to a mission with 50: its status, the last 50 findings, one by its id, whether it is ready, and one more
finding; in CPU time, since the disk's own is the same for all. A tenth of the findings are accepted; how long it took
to record them is printed too.
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
from typing import TYPE_CHECKING

from omx_autoresearch.core.criteria import criterion_of
from omx_autoresearch.core.findings import Evidence, Finding
from omx_autoresearch.core.intake import MissionDraft
from omx_autoresearch.core.records.findings import FindingRecorded
from omx_autoresearch.runtime import findings, launch, readiness, status
from omx_autoresearch.runtime.context import Runtime
from omx_autoresearch.runtime.intake import write_intake
from omx_autoresearch.storage.layout import StateHome
from omx_autoresearch.storage.missions import MissionStore

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 10_000
BARS = {"status": 1.5, "last 50": 1.5, "one by id": 1.5, "readiness": 1.5, "one more": 1.5}
"""Ratio to the mission that holds 50 findings; what must not depend on their number stays near one."""
FEW = 50


def main(argv: list[str] | None = None) -> int:
    """Measure and print; ends 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--findings", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="findings-benchmark-") as folder:
        few, _ = measure(Path(folder, "few"), FEW, options.rounds)
        is_missed = False
        for count in options.findings:
            many, filled = measure(Path(folder, str(count)), count, options.rounds)
            print(f"\n{count} findings, recorded in {filled:.1f} s")
            for name, seconds in many.items():
                ratio = seconds / few[name]
                is_missed = is_missed or ratio > BARS[name]
                print(
                    f"  {name:12} {seconds * 1000:8.2f} ms  {ratio:5.2f} x {FEW} findings (bar {BARS[name]})"
                )
            shutil.rmtree(Path(folder, str(count)))
    return 1 if is_missed else 0


def measure(root: Path, count: int, rounds: int) -> tuple[dict[str, float], float]:
    """Medians of each call in a mission of ``count`` findings, in seconds; and how long it took to fill."""
    runtime, task_id = _mission(root)
    began = time.perf_counter()
    _fill(runtime, task_id, count)
    filled = time.perf_counter() - began
    findings.list_findings(runtime, task_id, limit=1)  # catches the index up
    serial = iter(range(count, count + rounds + 1))

    def one_more() -> None:
        submission = findings.Submission("one more", id=f"m{next(serial)}")
        findings.add_finding(runtime, task_id, submission, source="mcp")

    calls: dict[str, Callable[[], object]] = {
        "status": lambda: status.view(runtime, task_id),
        "last 50": lambda: findings.list_findings(runtime, task_id, limit=50),
        "one by id": lambda: findings.find_finding(runtime, task_id, f"f{count // 2}"),
        "readiness": lambda: readiness.readiness(runtime, task_id),
        "one more": one_more,
    }
    return {name: _median(call, rounds) for name, call in calls.items()}, filled


def _median(call: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return statistics.median(times)


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
    record = write_intake(runtime, str(project), draft)
    task_id = launch.create_draft(runtime, str(project), record, draft).task_id
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
