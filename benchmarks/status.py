"""The status of a long mission beside that of a short one: ``python -m benchmarks.status [--records N]``.

Looking at a mission reads its snapshot and what the journal has beyond it, however long the journal is. Both are looked
at in turn, in one run: by the function that every door uses, and by the whole process ``omx-autoresearch status TASK
--json``. What counts is the ratio of the medians (bar: 2).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from omx_autoresearch.journal.layout import Runtime, StateHome
from omx_autoresearch.missions import store as states
from omx_autoresearch.missions.records.lifecycle import MissionCreated
from omx_autoresearch.missions.records.work import ClaimRecorded
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.views import view

if TYPE_CHECKING:
    from collections.abc import Callable

TS = "2026-01-02T03:04:05.123456Z"
CALLS = 200
PROCESSES = 12
PROGRAM = "from omx_autoresearch.surfaces.cli import main; main()"
BAR = 2.0


def main(argv: list[str] | None = None) -> int:
    """Print wall and CPU time of one look at each, and the ratios to the bar; 1 when it is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="size of the long mission")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="status-benchmark-") as folder:
        home = StateHome(f"{folder}/state")
        short = make_mission(home, folder, "20260102-030405-short")
        long = make_mission(home, folder, "20260102-030405-long")
        began = time.perf_counter()
        grow(home, long, options.records)
        print(
            f"A mission of {options.records:,} records (taken in within {time.perf_counter() - began:.1f} s)"
        )
        are_held = (
            report_calls(Runtime(home=home), short, long),
            report_processes(home, folder, short, long),
        )
    return 0 if all(are_held) else 1


def make_mission(home: StateHome, folder: str, task_id: str) -> str:
    """A draft of its own project."""
    project = Path(folder, task_id)
    project.mkdir()
    specs_path = f".omx/specs/autoresearch-{task_id[-5:].strip('-')}"
    MissionStore(home).create(
        task_id,
        TS,
        MissionCreated(task_id, "slug", "goal", "standard", str(project), str(project), specs_path),
    )
    return task_id


def grow(home: StateHome, task_id: str, records: int) -> None:
    """Append chained lines without the lock, for speed; the record after them folds and verifies every one."""
    store = MissionStore(home)
    path = Path(home.mission(task_id).journal_path)
    prev = hashlib.sha256(path.read_bytes().splitlines()[-1]).hexdigest()
    with path.open("ab") as out:
        for seq in range(2, records + 1):
            line = (
                f'{{"seq":{seq},"ts":"{TS}","kind":"claim_recorded",'
                f'"data":{{"text":"the parser loses a token","origin":"cli","claim_id":"c-{seq}"}},"prev":"{prev}"}}'
            ).encode()
            prev = hashlib.sha256(line).hexdigest()
            out.write(line + b"\n")
    with store.transaction(task_id, TS) as transaction:
        transaction.record(ClaimRecorded("the last one", "cli", "c-last"))


def report_calls(runtime: Runtime, short: str, long: str) -> bool:
    """Look at both in turn, in this process."""
    walls: dict[str, list[float]] = {short: [], long: []}
    costs: dict[str, list[float]] = {short: [], long: []}
    for _ in range(CALLS):
        for task_id in (short, long):
            states.forget(
                runtime.home.mission(task_id)
            )  # what a process knows already is no look at the disk
            wall, cost = timed(lambda task_id=task_id: view(runtime, task_id))  # type: ignore[misc]
            walls[task_id].append(wall)
            costs[task_id].append(cost)
    are_held = [
        shown("status, wall", walls[short], walls[long]),
        shown("status, CPU", costs[short], costs[long]),
    ]
    return all(are_held)


def report_processes(home: StateHome, folder: str, short: str, long: str) -> bool:
    """Ask the command line about both in turn."""
    seconds: dict[str, list[float]] = {short: [], long: []}
    environ = {"PATH": os.environ["PATH"], "HOME": folder, "OMX_AUTORESEARCH_HOME": home.root_path}
    for number in range(PROCESSES + 1):
        for task_id in (short, long):
            argv = [sys.executable, "-c", PROGRAM, "status", task_id, "--json"]
            process = subprocess.Popen(
                argv, env=environ, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
            )
            said = process.stdout.read() if process.stdout else b""
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode or task_id.encode() not in said:
                raise SystemExit(f"status {task_id}: exit {process.returncode}, said {said[:300]!r}")
            if number:
                seconds[task_id].append(usage.ru_utime + usage.ru_stime)
    return shown("status --json, CPU", seconds[short], seconds[long])


def shown(name: str, short: list[float], long: list[float]) -> bool:
    """Print one line; True when the bar is held."""
    few, many = statistics.median(short), statistics.median(long)
    judged = "held" if many / few <= BAR else "MISSED"
    print(
        f"  {name:20} {few * 1e3:8.3f} ms short {many * 1e3:8.3f} ms long   x {many / few:.2f}   (bar {BAR:g}) {judged}"
    )
    return many / few <= BAR


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    began, began_cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - began_cpu


if __name__ == "__main__":
    raise SystemExit(main())
