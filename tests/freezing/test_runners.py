"""What the known test runners say, and what is not their word."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing.runners import RUNNERS, RunnerCount, count_tests, runner_of, words_of

if TYPE_CHECKING:
    from pathlib import Path

SAID: tuple[tuple[str, str, str, tuple[int, int] | None], ...] = (
    # pytest
    ("pytest, all passed", "pytest", "....\n===== 13 passed in 0.05s =====\n", (13, 13)),
    ("pytest, quiet", "pytest", "....  [100%]\n13 passed in 0.05s\n", (13, 13)),
    ("pytest, failures count as run", "pytest", "= 3 failed, 10 passed, 2 warnings in 1.20s =", (13, 10)),
    ("pytest, skipped ones did not run", "pytest", "= 10 passed, 3 skipped in 1.20s =", (10, 10)),
    (
        "pytest, expected failures did not pass",
        "pytest",
        "= 1 failed, 7 passed, 2 skipped, 3 deselected, 4 xfailed, 1 xpassed, 2 errors in 61.03s (0:01:01) =",
        (8, 7),
    ),
    ("pytest, subtests are no tests", "pytest", "= 3 passed, 12 subtests passed in 0.01s =", (3, 3)),
    ("pytest, reruns", "pytest", "= 3 passed, 2 rerun in 0.01s =", (3, 3)),
    ("pytest, nothing", "pytest", "==== no tests ran in 0.01s ====\n", (0, 0)),
    ("pytest, only errors", "pytest", "= 2 errors in 0.30s =", (0, 0)),
    (
        "pytest, coloured",
        "pytest",
        "\x1b[32m= \x1b[32m\x1b[1m13 passed\x1b[0m\x1b[32m in 0.05s\x1b[0m =\x1b[0m",
        (13, 13),
    ),
    ("pytest, line ends of Windows", "pytest", "= 13 passed in 0.05s =\r\n", (13, 13)),
    ("pytest, two runs", "pytest", "5 passed in 0.1s\nother\n= 2 failed, 6 passed in 0.1s =\n", (13, 11)),
    ("pytest, a number in passing", "pytest", "--- stdout ---\n999 passed\nall 999 passed!\n", None),
    ("pytest, crashed before its summary", "pytest", "....\nFatal Python error: Aborted\n", None),
    # unittest
    ("unittest", "unittest", "Ran 13 tests in 0.001s\n\nOK\n", (13, 13)),
    ("unittest, one", "unittest", "Ran 1 test in 0.001s\n\nOK\n", (1, 1)),
    (
        "unittest, failures",
        "unittest",
        "Ran 13 tests in 1s\n\nFAILED (failures=2, errors=1, skipped=3, expected failures=1, unexpected successes=1)",
        (9, 5),
    ),
    ("unittest, skipped", "unittest", "Ran 13 tests in 0.001s\n\nOK (skipped=3)\n", (10, 10)),
    ("unittest, nothing", "unittest", "Ran 0 tests in 0.000s\n\nNO TESTS RAN\n", (0, 0)),
    (
        "unittest, more failed subtests than tests",
        "unittest",
        "Ran 1 test in 0.1s\n\nFAILED (failures=5)\n",
        (1, 0),
    ),
    # cargo
    (
        "cargo",
        "cargo",
        (
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s\n"
            "   Doc-tests parser\n"
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n"
        ),
        (8, 6),
    ),
    (
        "nextest",
        "cargo",
        "     Summary [   0.012s] 10 tests run: 9 passed (1 slow), 1 failed, 2 skipped\n",
        (10, 9),
    ),
    ("nextest, cancelled", "cargo", "     Summary [   0.012s] 7/12 tests run: 6 passed, 1 failed\n", (12, 6)),
    ("cargo, did not compile", "cargo", "error: could not compile `parser`\n", None),
    # go
    (
        "go, verbose",
        "go",
        (
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/x\n--- FAIL: TestB (0.00s)\n"
            "    --- PASS: TestB/x (0.00s)\n=== RUN   TestC\n--- SKIP: TestC (0.00s)\nFAIL\nFAIL\texample/a\t0.01s\n"
        ),
        (3, 2),
    ),
    (
        "go, packages",
        "go",
        (
            "ok  \texample/a\t0.010s\nok  \texample/b\t(cached)\n?   \texample/c\t[no test files]\n"
            "--- FAIL: TestD (0.00s)\nFAIL\nFAIL\texample/d\t0.02s\nFAIL\texample/e [build failed]\nFAIL\n"
        ),
        (4, 2),
    ),
    ("go, a package whose tests are gone", "go", "ok  \texample/a\t0.010s [no tests to run]\n", None),
    ("go, coverage", "go", "ok  \texample/a\t0.010s\tcoverage: 83.1% of statements\n", (1, 1)),
    # npm and what it calls
    (
        "jest",
        "npm",
        "Test Suites: 1 failed, 1 passed, 2 total\nTests:       1 failed, 2 skipped, 3 todo, 5 passed, 11 total\n",
        (6, 5),
    ),
    (
        "vitest",
        "npm",
        " Test Files  1 failed | 1 passed (2)\n      Tests  1 failed | 5 passed | 2 skipped (8)\n",
        (6, 5),
    ),
    ("vitest, all", "npm", " Test Files  2 passed (2)\n      Tests  5 passed (5)\n", (5, 5)),
    ("mocha", "npm", "  5 passing (10ms)\n  2 pending\n  1 failing\n\n  1) a b\n", (6, 5)),
    ("node --test", "npm", "ℹ tests 6\nℹ suites 0\nℹ pass 5\nℹ fail 1\nℹ skipped 2\n", (6, 5)),  # noqa: RUF001
    ("node --test, TAP", "npm", "# tests 6\n# pass 5\n# fail 1\n# skipped 2\n", (6, 5)),
    ("ava", "npm", "  1 test failed\n  5 tests passed\n", (6, 5)),
    ("bun", "npm", " 5 pass\n 1 fail\n 12 expect() calls\n", (6, 5)),
    ("playwright", "npm", "  1 failed\n    [chromium] a.spec.ts\n  5 passed (3.2s)\n", (6, 5)),
    ("npm that calls pytest", "npm", "> test\n> pytest\n= 13 passed in 0.05s =\n", (13, 13)),
    ("npm, no test specified", "npm", "Error: no test specified\n", None),
    # make and what it calls
    (
        "make, automake",
        "make",
        "# TOTAL: 5\n# PASS:  3\n# SKIP:  1\n# XFAIL: 0\n# FAIL:  1\n# XPASS: 0\n# ERROR: 0\n",
        (4, 3),
    ),
    ("make, ctest", "make", "\n80% tests passed, 1 tests failed out of 5\n", (5, 4)),
    (
        "make, pytest and cargo",
        "make",
        "= 2 passed in 0.1s =\ntest result: ok. 3 passed; 1 failed; 0 ignored;\n",
        (6, 5),
    ),
    # nobody
    ("an unknown runner", "", "= 13 passed in 0.05s =", None),
    ("an unknown name", "ninja", "= 13 passed in 0.05s =", None),
    ("another runner's words", "cargo", "= 13 passed in 0.05s =", None),
)


@pytest.mark.requirement("DONE-06")
@pytest.mark.parametrize(
    ("runner", "output", "wanted"), [row[1:] for row in SAID], ids=[row[0] for row in SAID]
)
def test_the_runners_own_words_are_counted(runner: str, output: str, wanted: tuple[int, int] | None) -> None:
    count = None if wanted is None else RunnerCount(*wanted)
    assert count_tests(output, runner) == count
    words = [word.decode() for word in words_of(runner)]
    lines = [line for line in output.splitlines(keepends=True) if any(word in line for word in words)]
    assert count_tests("".join(lines), runner) == count, (
        "only lines with such a word are kept of a long output"
    )


@pytest.mark.parametrize(
    ("command", "runner"),
    [
        ("pytest -q", "pytest"),
        (".venv/bin/python -m pytest tests/x.py", "pytest"),
        ("py.test", "pytest"),
        ("python -m unittest discover", "unittest"),
        ("cargo test --release", "cargo"),
        ("cargo +nightly --locked nextest run", "cargo"),
        ("cd x && go test ./...", "go"),
        ("npm test", "npm"),
        ("npm run test:unit -- --ci", "npm"),
        ("npx vitest run", "npm"),
        ("yarn test", "npm"),
        ("node --experimental-x --test a.js", "npm"),
        ("make check", "make"),
        ("make -C build test", "make"),
        ("ctest --output-on-failure", "make"),
        ("#!/bin/sh\nset -e\ncargo build\npytest -q\n", "pytest"),
        ("./check.sh", ""),
        ("make", ""),
        ("cargo build", ""),
        ("go vet ./...", ""),
        ("node test.js", ""),
        ("grep -q latest x", ""),
        ("", ""),
    ],
)
def test_a_runner_is_known_by_the_command_that_calls_it(command: str, runner: str) -> None:
    assert runner_of(command) == runner


@pytest.mark.slow
def test_every_runner_reads_hostile_output_in_linear_steps() -> None:
    pieces = (
        "\n",
        " ",
        "1 ",
        "1 a, ",
        "= ",
        "Ran 1 test in \n",
        "ok a ",
        "--- PASS: ",
        "Tests: 1 ",
        "\x1b[",
        "1 passed; ",
    )
    for runner in RUNNERS:
        for piece in pieces:
            count_tests(piece * 100_000, runner)


def test_a_program_under_test_can_still_forge_the_whole_line() -> None:
    """A stated limit: what runs inside the runner's process writes to the same stream."""
    assert count_tests("= 999 passed in 0.01s =\n= 3 failed in 0.01s =\n", "pytest") == RunnerCount(1002, 999)


TESTS = """\
import unittest
import pytest

class A(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.fail()
    @unittest.skip("later")
    def test_c(self): pass
    @unittest.expectedFailure
    def test_d(self): self.fail()
"""


@pytest.mark.parametrize("option", ["-q", "--color=yes"])
def test_a_real_pytest_is_understood(tmp_path: Path, option: str) -> None:
    (tmp_path / "test_a.py").write_text(TESTS, encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        option,
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert count_tests(said.stdout, "pytest") == RunnerCount(ran=2, passed=1), said.stdout + said.stderr


def test_a_real_unittest_is_understood(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS.replace("import pytest\n", ""), encoding="utf-8")
    argv = [sys.executable, "-m", "unittest", "test_a"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert count_tests(said.stdout + said.stderr, "unittest") == RunnerCount(ran=2, passed=1), said.stderr
