"""What `.ci/run` promises: all of it in less than an hour, and no success where nothing was proven."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
GRACE_SECONDS = 20
"""What `timeout --kill-after` gives a stage beyond its limit."""


def function_of_the_script(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one function of the script alone, in a folder with stand-ins for what it calls."""
    found = re.search(rf"^{name}\(\) \{{\n.*?^\}}$", SCRIPT, re.MULTILINE | re.DOTALL)
    assert found is not None
    program = f"set -uo pipefail\n{found[0]}\n{name}"
    return subprocess.run(["bash", "-c", program], cwd=folder, capture_output=True, text=True, check=False)


def stand_in(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def test_the_limits_of_all_stages_are_less_than_an_hour_together() -> None:
    limits = [int(limit) for limit in re.findall(r"^ *stage '[^']+' (\d+) ", SCRIPT, re.MULTILINE)]
    assert len(limits) >= 6
    assert f"--kill-after={GRACE_SECONDS} " in SCRIPT
    assert sum(limits) + GRACE_SECONDS * len(limits) < 60 * 60


@pytest.mark.parametrize(
    ("said", "status", "expected"),
    [
        ("27 passed in 61.50s", 0, 0),
        ("1 passed, 26 skipped in 61.50s", 0, 0),
        ("27 skipped in 1.50s", 0, 1),
        ("no tests ran in 0.01s", 5, 5),
        ("1 failed, 26 passed in 61.50s", 1, 1),
    ],
)
def test_real_clients_that_all_skip_are_no_success(
    tmp_path: Path, said: str, status: int, expected: int
) -> None:
    stand_in(tmp_path / "run", f"echo '{said}'; exit {status}")
    done = function_of_the_script("real_clients", tmp_path)
    assert done.returncode == expected
    assert said in done.stdout


@pytest.mark.parametrize(
    ("hook", "journal", "expected"),
    [
        ("echo '(d) against python: 3.1 (bar 3.00) missed'; exit 1", "echo '  one by id'", 0),
        ("echo '(d) against python: 1.1 (bar 3.00) held'", "echo '  one by id'; exit 1", 0),
        ("echo Traceback; exit 1", "echo '  one by id'", 1),
        ("echo '(d) against python: 1.1 (bar 3.00) held'", "echo '  journal (bar 75%) held'; exit 1", 1),
        ("echo '(d) against python: 1.1 (bar 3.00) held'; exit 2", "echo '  one by id'", 1),
    ],
)
def test_a_benchmark_that_cannot_run_fails_and_a_missed_bar_does_not(
    tmp_path: Path, hook: str, journal: str, expected: int
) -> None:
    lasts = (
        "  many against",
        "  status --json, CPU",
        "  one more",
        "bars: 1 held",
        "nothing changed",
        "experiment status",
    )
    others = "*) " + " ".join(f"echo '{last}';" for last in lasts) + ";"
    cases = f'case "$*" in *hook*) {hook} ;; *journal*) {journal} ;; {others} esac'
    stand_in(tmp_path / ".venv" / "bin" / "python", cases)
    assert function_of_the_script("benchmarks", tmp_path).returncode == expected


def test_every_file_that_it_starts_is_there() -> None:
    for path in (".ci/clients", "run", "benchmarks/hook.py", "benchmarks/journal.py", "benchmarks/status.py"):
        assert (ROOT / path).is_file(), path
