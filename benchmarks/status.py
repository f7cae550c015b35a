"""The status of a long mission beside that of a short one: ``python -m benchmarks.status [--records N]``.

Looking at a mission reads its snapshot and what the journal has beyond it, however long the journal is. Both are looked
at in turn, in one run; what counts is the ratio of the medians (bar: 2).
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from omx_autoresearch.core.records.claims import ClaimRecorded
from omx_autoresearch.core.records.lifecycle import MissionCreated
from omx_autoresearch.runtime.context import Runtime
from omx_autoresearch.runtime.status import view
from omx_autoresearch.storage import states
from omx_autoresearch.storage.layout import StateHome
from omx_autoresearch.storage.missions import MissionStore

if TYPE_CHECKING:
    from collections.abc import Callable

TS = "2026-01-02T03:04:05.123456Z"
CALLS = 200


def main() -> None:
    """Print wall and CPU time of one look at each, and the ratios to the bar."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="size of the long mission")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="status-benchmark-") as folder:
        home = StateHome(f"{folder}/state")
        short = make_mission(home, folder, "20260102-030405-short")
        long = make_mission(home, folder, "20260102-030405-long")
        began = time.perf_counter()
        grow(home, long, options.records)
        print(
            f"A mission of {options.records:,} records (taken in within {time.perf_counter() - began:.1f} s)"
        )
        report(Runtime(home=home), short, long)


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


def report(runtime: Runtime, short: str, long: str) -> None:
    """Look at both in turn."""
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
    for name, figures in (("wall", walls), ("CPU", costs)):
        few, many = statistics.median(figures[short]), statistics.median(figures[long])
        print(
            f"  status, {name:4} {few * 1e3:7.3f} ms short   {many * 1e3:7.3f} ms long   x {many / few:.2f}   bar 2"
        )


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of one call."""
    began, began_cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - began_cpu


if __name__ == "__main__":
    main()
