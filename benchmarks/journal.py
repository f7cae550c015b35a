"""The journal against the disk it stands on: ``python -m benchmarks.journal [--records N] [--folder PATH]``.

Two parts. *Appends*: durable appends against a bare ``write`` + ``fsync`` loop on a descriptor that stays open, with
lines of the same size on the same disk, in rounds that alternate; ratios of medians. First the journal alone, then the
mission store: every record its own transaction, lock, fsync and snapshot; projections and index follow at the end of
each round, as at the end of a process.
*Size*: the newest 50 findings and a record by its id in a journal of a million records, as own work (CPU time of one
call).
Takes under a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import random
import shutil
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

from omx_autoresearch.journal.layout import MissionFolder, Runtime, StateHome
from omx_autoresearch.journal.log import Journal
from omx_autoresearch.journal.reader import GENESIS
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.records.lifecycle import MissionCreated, MissionLaunched
from omx_autoresearch.missions.records.sessions import SessionBound
from omx_autoresearch.missions.records.work import ClaimRecorded
from omx_autoresearch.missions.rules.mission import Contract
from omx_autoresearch.missions.store import MissionStore

if TYPE_CHECKING:
    from collections.abc import Callable

TS = "2026-01-02T03:04:05.123456Z"
TASK = "20260102-030405-benchmark"
ROUNDS = 25
APPENDS = 100
CALLS = 300
SESSION = "0a1b2c3d-0000-4000-8000-000000000001"
TEXT = "the parser loses the last token of a line " * 2


def main(argv: list[str] | None = None) -> int:
    """Print both parts as tables beside the bars; 1 when one is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="size of the large journal")
    parser.add_argument(
        "--folder", help="where to measure; its disk is the yardstick (default: the temporary folder)"
    )
    options = parser.parse_args(argv)
    root_path = tempfile.mkdtemp(prefix="journal-benchmark-", dir=options.folder)
    try:
        are_held = (measure_appends(root_path), measure_size(root_path, options.records))
    finally:
        shutil.rmtree(root_path)
    return 0 if all(are_held) else 1


def measure_appends(root_path: str) -> bool:
    """Durable appends a second, beside the bare loop."""
    journal = Journal(MissionFolder(os.path.join(root_path, "appends")))
    journal.create()
    store = make_mission(root_path)
    line = b"x" * journal.append([_draft(0)], ts=TS)[0].length + b"\n"
    bare = os.open(os.path.join(root_path, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ways: list[tuple[str, float, Callable[[int], None]]] = [
        ("journal", 0.75, lambda count: _append(journal, count)),
        ("mission, one by one", 0.40, lambda count: _record(store, count)),
    ]
    print(
        f"Durable appends of {len(line)} bytes, medians of {ROUNDS} rounds of {APPENDS}, each beside the bare loop"
    )
    is_held = True
    for name, bar, way in ways:
        # In pairs: what one way leaves dirty in the file system is paid for by the next fsync, whoever makes it.
        bare_seconds, seconds = _in_turn(lambda count: _write_bare(bare, line, count), way)
        ratio = bare_seconds / seconds
        is_held = is_held and ratio >= bar
        judged = f"(bar {bar:.0%}) {'held' if ratio >= bar else 'MISSED'}"
        print(
            f"  {name:22} {seconds * 1e6:7.0f} us   bare {bare_seconds * 1e6:5.0f} us   {ratio:6.1%}   {judged}"
        )
    os.close(bare)
    return is_held


def make_mission(root_path: str) -> MissionStore:
    """A store with one running, bound mission of a project of its own."""
    project_path = os.path.join(root_path, "project")
    os.mkdir(project_path)
    store = MissionStore(StateHome(os.path.join(root_path, "state")))
    created = MissionCreated(
        TASK, "benchmark", "measure", "standard", project_path, project_path, ".omx/specs/b"
    )
    contract = Contract("mission-validator-script", validator_command="false", environment=dict(os.environ))
    store.create(
        TASK,
        TS,
        created,
        MissionLaunched("running", contract, "digest"),
        SessionBound(SESSION, "claude", "prompt"),
    )
    return store


_numbers = itertools.count()


def _record(store: MissionStore, count: int) -> None:
    """Each record its own transaction; index and projections follow at the end, as where a process ends."""
    for _ in range(count):
        with store.transaction(TASK, TS) as transaction:
            transaction.record(ClaimRecorded(TEXT, "cli", f"c-{next(_numbers):016x}"))
    journal = store.journal(TASK)
    journal.index.catch_up(journal)
    journal.close()
    if write_changed(Runtime(home=store.home)):
        raise SystemExit("the projections could not be written")


def _append(journal: Journal, count: int) -> None:
    for number in range(count):
        journal.append([_draft(number)], ts=TS)


def _draft(number: int) -> tuple[str, dict[str, object]]:
    return "finding_recorded", {"id": f"f{number}", "text": TEXT}


def _write_bare(descriptor: int, line: bytes, count: int) -> None:
    for _ in range(count):
        os.write(descriptor, line)
        os.fsync(descriptor)


def _in_turn(first: Callable[[int], None], second: Callable[[int], None]) -> tuple[float, float]:
    """Median seconds of one append of each, measured in rounds that alternate."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for way, values in zip((first, second), seconds, strict=True):
            began = time.perf_counter()
            way(APPENDS)
            values.append((time.perf_counter() - began) / APPENDS)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def measure_size(root_path: str, records: int) -> bool:
    """Last 50 records and one by its id, in a journal of ``records`` lines."""
    journal = Journal(MissionFolder(os.path.join(root_path, "large")))
    journal.create()
    size_bytes = _fill(journal.path, records)
    began = time.perf_counter()
    journal.index.catch_up(journal)
    built_seconds = time.perf_counter() - began
    print(
        f"A journal of {records:,} records, {size_bytes / 1e6:.0f} MB (index built in {built_seconds:.1f} s)"
    )
    pick = random.Random(1)
    calls: dict[str, Callable[[], object]] = {
        "head": journal.head,
        "newest 50 findings": lambda: journal.newest("claims", limit=50),
        "one by id": lambda: journal.by_id(f"f{pick.randrange(records)}"),
    }
    is_held = True
    for name, call in calls.items():
        wall, cpu = _timed(call)
        is_held = is_held and cpu < 1e-3
        judged = "held" if cpu < 1e-3 else "MISSED"
        print(f"  {name:22} {cpu * 1e3:7.3f} ms CPU   {wall * 1e3:7.3f} ms wall   (bar 1 ms) {judged}")
    journal.close()
    return is_held


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    walls = []
    began_cpu = time.process_time()
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        walls.append(time.perf_counter() - began)
    return statistics.median(walls), (time.process_time() - began_cpu) / CALLS


def _fill(path: str, records: int) -> int:
    """Write valid chained lines without the lock, for speed; reading them back verifies every one."""
    prev, size_bytes = GENESIS, 0
    with open(path, "wb") as out:
        for seq in range(1, records + 1):
            line = (
                f'{{"seq":{seq},"ts":"{TS}","kind":"finding_recorded",'
                f'"data":{{"id":"f{seq - 1}","text":"{TEXT}"}},"prev":"{prev}"}}'
            ).encode()
            prev = hashlib.sha256(line).hexdigest()
            size_bytes += out.write(line + b"\n")
    return size_bytes


if __name__ == "__main__":
    raise SystemExit(main())
