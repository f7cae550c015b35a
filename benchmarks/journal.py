"""The journal against the disk it stands on: ``python -m benchmarks.journal [--records N] [--folder PATH]``.

Two parts. *Appends*: durable appends against a bare ``write`` + ``fsync`` loop on a descriptor that stays open, with
lines of the same size on the same disk, in rounds that alternate; ratios of medians. *Size*: the last 50 records and
one by its id in a journal of a million records, as own work (wall and CPU time of one call). Takes under a minute.
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

from omx_autoresearch.storage import snapshots
from omx_autoresearch.storage.journal import Journal
from omx_autoresearch.storage.layout import MissionFolder
from omx_autoresearch.storage.lines import GENESIS

if TYPE_CHECKING:
    from collections.abc import Callable

TS = "2026-01-02T03:04:05.123456Z"
ROUNDS = 30
APPENDS = 40
CALLS = 300
SNAPSHOT = {"head": {}, "mission": {"phase": "running", "goal": "x" * 2000}}
_numbers = itertools.count()


def main() -> None:
    """Print both parts as tables of ratios to the bars."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="size of the large journal")
    parser.add_argument(
        "--folder", help="where to measure; its disk is the yardstick (default: the temporary folder)"
    )
    options = parser.parse_args()
    root_path = tempfile.mkdtemp(prefix="journal-benchmark-", dir=options.folder)
    try:
        measure_appends(root_path)
        measure_size(root_path, options.records)
    finally:
        shutil.rmtree(root_path)


def measure_appends(root_path: str) -> None:
    """Durable appends a second, beside the bare loop."""
    journal = Journal(MissionFolder(os.path.join(root_path, "appends")))
    journal.create()
    entry = journal.append([_draft(0)], ts=TS)[0]
    bare = os.open(os.path.join(root_path, "bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    line = b"x" * entry.length + b"\n"
    ways: list[tuple[str, str, Callable[[], None]]] = [
        ("journal", "bar 75 %", lambda: _append(journal, 1)),
        ("journal + index", "bar 40 %", lambda: _append_indexed(journal)),
        ("journal + index + snapshot", "", lambda: _append_derived(journal)),
        ("journal, 10 a batch", "", lambda: _append(journal, 10)),
    ]
    print(
        f"Durable appends of {len(line)} bytes, medians of {ROUNDS} rounds of {APPENDS}, each beside the bare loop"
    )
    for name, bar, way in ways:
        # In pairs: what one way leaves dirty in the file system is paid for by the next fsync, whoever makes it.
        bare_seconds, seconds = _in_turn(lambda: _write_bare(bare, line), way)
        figures = (
            f"{seconds * 1e6:7.0f} us   bare {bare_seconds * 1e6:5.0f} us   {bare_seconds / seconds:6.1%}"
        )
        print(f"  {name:28} {figures}   {bar}")
    os.close(bare)
    journal.close()


def _in_turn(first: Callable[[], None], second: Callable[[], None]) -> tuple[float, float]:
    """Median seconds of one call of each, measured in rounds that alternate."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for way, values in zip((first, second), seconds, strict=True):
            values.append(_wall(way, APPENDS))
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def _wall(call: Callable[[], object], times: int = 1) -> float:
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times


def _write_bare(descriptor: int, line: bytes) -> None:
    os.write(descriptor, line)
    os.fsync(descriptor)


def _append(journal: Journal, count: int) -> None:
    journal.append([_draft(number) for number in range(count)], ts=TS)


def _append_indexed(journal: Journal) -> None:
    _append(journal, 1)
    journal.index.catch_up(journal)


def _append_derived(journal: Journal) -> None:
    _append_indexed(journal)
    snapshots.save(journal.folder.root_path, SNAPSHOT, after=next(_numbers))


def _look_up_anew(journal: Journal, record_id: str) -> None:
    journal.close()
    journal.by_id(record_id)


def _draft(number: int) -> tuple[str, dict[str, object]]:
    return "finding_recorded", {"id": f"f{number}", "text": "the parser loses the last token of a line " * 2}


def measure_size(root_path: str, records: int) -> None:
    """Last 50 records and one by its id, in a journal of ``records`` lines."""
    folder = MissionFolder(os.path.join(root_path, "large"))
    journal = Journal(folder)
    journal.create()
    size_bytes = _fill(folder.journal_path, records)
    began = time.perf_counter()
    journal.index.catch_up(journal)
    built_seconds = time.perf_counter() - began
    print(
        f"A journal of {records:,} records, {size_bytes / 1e6:.0f} MB (index built in {built_seconds:.1f} s)"
    )
    pick = random.Random(1)
    calls: dict[str, Callable[[], object]] = {
        "head": journal.head,
        "last 50": lambda: journal.last(50),
        "one by id": lambda: journal.by_id(f"f{pick.randrange(records)}"),
        "one by seq": lambda: journal.by_seq(pick.randrange(records) + 1),
        "one by id, index opened anew": lambda: _look_up_anew(journal, f"f{pick.randrange(records)}"),
    }
    for name, call in calls.items():
        wall, cpu = _timed(call)
        print(f"  {name:28} {wall * 1e3:7.3f} ms wall   {cpu * 1e3:7.3f} ms CPU   bar 1 ms")
    journal.close()


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    began_cpu = time.process_time()
    walls = [_wall(call) for _ in range(CALLS)]
    return statistics.median(walls), (time.process_time() - began_cpu) / CALLS


def _fill(path: str, records: int) -> int:
    """Write valid chained lines without the lock, for speed; reading them back verifies every one."""
    prev, size_bytes = GENESIS, 0
    text = _draft(0)[1]["text"]
    with open(path, "wb") as out:
        for seq in range(1, records + 1):
            line = (
                f'{{"seq":{seq},"ts":"{TS}","kind":"finding_recorded",'
                f'"data":{{"id":"f{seq - 1}","text":"{text}"}},"prev":"{prev}"}}'
            ).encode()
            prev = hashlib.sha256(line).hexdigest()
            size_bytes += out.write(line + b"\n")
    return size_bytes


if __name__ == "__main__":
    main()
