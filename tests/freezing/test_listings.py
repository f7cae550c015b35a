"""The tests that known runners name, by their own words."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.freezing.listings import listed_tests
from omx_autoresearch.freezing.runners import words_of

if TYPE_CHECKING:
    from pathlib import Path

SAID: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    (
        "pytest, verbose",
        "pytest",
        (
            "tests/test_a.py::test_a PASSED   [ 33%]\ntests/test_a.py::T::test_b[a b] FAILED [ 66%]\n"
            "tests/test_a.py::test_c SKIPPED (later) [100%]\n"
        ),
        {
            "tests/test_a.py::test_a": "passed",
            "tests/test_a.py::T::test_b[a b]": "failed",
            "tests/test_a.py::test_c": "skipped",
        },
    ),
    (
        "unittest, verbose",
        "unittest",
        (
            "test_a (tests.test_a.T.test_a) ... ok\ntest_b (tests.test_a.T)\nSays what it does. ... FAIL\n"
            "test_c (tests.test_a.T.test_c) ... a word of its own\nok\n"
            "test_d (tests.test_a.T.test_d) ... skipped 'later'\n"
            "test_e (tests.test_a.T.test_e) ... expected failure\nsetUpClass (tests.test_a.U) ... ERROR\n"
            "test_z (unittest.loader._FailedTest.test_z) ... ERROR\n"
        ),
        {
            "tests.test_a.T.test_a": "passed",
            "tests.test_a.T.test_b": "failed",
            "tests.test_a.T.test_c": "passed",
            "tests.test_a.T.test_d": "skipped",
            "tests.test_a.T.test_e": "skipped",
        },
    ),
    (
        "cargo",
        "cargo",
        (
            "     Running unittests src/lib.rs (target/debug/deps/demo-0b6e)\n\nrunning 2 tests\ntest tests::a ... ok\n"
            "test tests::b ... FAILED\n     Running tests/api.rs (target/debug/deps/api-77aa)\n"
            "test tests::a ... ignored, later\n"
            "test panics - should panic ... ok\n   Doc-tests demo\ntest src/lib.rs - add (line 12) ... ok\n"
        ),
        {
            "src/lib.rs tests::a": "passed",
            "src/lib.rs tests::b": "failed",
            "tests/api.rs tests::a": "skipped",
            "tests/api.rs panics": "passed",
            "doc-tests demo src/lib.rs - add": "passed",
        },
    ),
    (
        "nextest",
        "cargo",
        "        PASS [   0.004s] demo tests::a\n        FAIL [   0.005s] (2/3) demo::api b\n",
        {"demo tests::a": "passed", "demo::api b": "failed"},
    ),
    (
        "go, verbose",
        "go",
        (
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/x\n--- SKIP: TestB (0.00s)\n"
            "a log without its end--- FAIL: TestC (0.01s)\nFAIL\nFAIL\texample/a\t0.01s\n--- PASS: TestA (0.00s)\n"
            "ok  \texample/b\t(cached)\n"
        ),
        {
            "example/a.TestA": "passed",
            "example/a.TestB": "skipped",
            "example/a.TestC": "failed",
            "example/b.TestA": "passed",
        },
    ),
    (
        "go, packages",
        "go",
        (
            "ok  \texample/a\t0.01s\n--- FAIL: TestB (0.00s)\nFAIL\texample/b\t0.01s\n"
            "ok  \texample/c\t0.01s [no tests to run]\n"
        ),
        {"example/a": "passed", "example/b": "failed"},
    ),
    (
        "go, events",
        "go",
        (
            '{"Time":"x","Action":"pass","Package":"example/a","Test":"TestA","Elapsed":0}\n'
            '{"Action":"skip","Package":"example/a","Test":"TestB"}\n{"Action":"pass","Package":"example/a"}\n'
        ),
        {"example/a.TestA": "passed", "example/a.TestB": "skipped"},
    ),
    (
        "node, TAP",
        "npm",
        (
            "# Subtest: adds\nok 1 - adds\n  ---\n  duration_ms: 1\n  ...\nnot ok 2 - divides\n"
            "    ok 1 - inner # SKIP later\n"
            "not ok 3 - /home/me/test/broken.test.js\n"
        ),
        {"adds": "passed", "divides": "failed", "inner": "skipped"},
    ),
    (
        "node, spec",
        "npm",
        "▶ numbers\n  ✔ adds (0.5ms)\n  ✖ divides (1.2ms)\n  ﹣ waits (0.1ms) # SKIP\n✖ failing tests:\n",
        {"adds": "passed", "divides": "failed", "waits": "skipped", "failing tests:": "failed"},
    ),
    (
        "jest",
        "npm",
        "PASS test/a.test.js (5.1 s)\n  ✓ adds (2 ms)\nFAIL test/b.test.js\nTest Suites: 1 failed, 1 passed, 2 total\n",
        {"test/a.test.js": "passed", "test/b.test.js": "failed"},
    ),
    (
        "vitest",
        "npm",
        (
            " ✓ src/a.test.ts (3 tests) 4ms\n \u276f src/b.test.ts (2 tests | 1 failed) 5ms\n"
            " Test Files  1 failed | 1 passed (2)\n"
        ),
        {"src/a.test.ts": "passed", "src/b.test.ts": "failed"},
    ),
    (
        "automake",
        "make",
        "PASS: a.sh\nFAIL: b.sh\nSKIP: c.sh\n",
        {"a.sh": "passed", "b.sh": "failed", "c.sh": "skipped"},
    ),
    (
        "ctest",
        "make",
        (
            "    Start 1: adds\n1/3 Test #1: adds .............   Passed    0.01 sec\n"
            "2/3 Test #2: divides ..........***Failed    0.02 sec\n"
            "3/3 Test #3: waits ............***Skipped   0.00 sec\n"
        ),
        {"adds": "passed", "divides": "failed", "waits": "skipped"},
    ),
    ("coloured", "cargo", "test a ... \x1b[32mok\x1b[0m\n", {"a": "passed"}),
    ("one name twice", "make", "PASS: a.sh\nFAIL: a.sh\n", {"a.sh": "failed"}),
    ("a number alone", "pytest", "= 13 passed in 0.05s =\n", {}),
    ("an unknown runner", "", "PASS: a.sh\n", {}),
)


@pytest.mark.requirement("DONE-31")
@pytest.mark.parametrize(
    ("runner", "output", "wanted"), [row[1:] for row in SAID], ids=[row[0] for row in SAID]
)
def test_tests_are_named_by_their_runners_own_words(runner: str, output: str, wanted: dict[str, str]) -> None:
    listed = listed_tests(output, runner)
    listed.pop("failing tests:", None)
    assert listed == {name: end for name, end in wanted.items() if name != "failing tests:"}
    words = [word.decode() for word in words_of(runner)]
    kept = "".join(line for line in output.splitlines(keepends=True) if any(word in line for word in words))
    assert {**listed_tests(kept, runner), "failing tests:": ""} == {**listed, "failing tests:": ""}


TESTS = """\
import unittest
import pytest

@pytest.mark.parametrize("text", ["a<b>&\\"c\\"", "two\\nlines"])
def test_texts(text): pass

class A(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.fail("<testcase>")
    @unittest.skip("later")
    def test_c(self): pass
    @unittest.expectedFailure
    def test_d(self): self.fail()
"""


def test_a_real_report_of_pytest_is_understood(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "test_z.py").write_text("import a_module_that_is_to_be_written\n", encoding="utf-8")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--junitxml=said.xml",
        "--continue-on-collection-errors",
        "--rootdir=.",
    ]
    said = subprocess.run([*argv, "."], capture_output=True, text=True, check=False, cwd=tmp_path)
    listed = listed_tests(said.stdout, "pytest", (tmp_path / "said.xml").read_text(encoding="utf-8"))
    assert listed.pop("test_a.A::test_b") == "failed"
    assert {listed.pop("test_a.A::test_c"), listed.pop("test_a.A::test_d")} == {"skipped"}
    assert set(listed.values()) == {"passed"}
    assert sorted(listed) == [
        "test_a.A::test_a",
        'test_a::test_texts[a<b>&"c"]',
        "test_a::test_texts[two\\nlines]",
    ]


def test_a_real_verbose_unittest_is_understood(tmp_path: Path) -> None:
    text = TESTS.replace("import pytest\n", "").partition("@pytest")
    (tmp_path / "test_a.py").write_text(text[0] + TESTS[TESTS.index("class A") :], encoding="utf-8")
    argv = [sys.executable, "-m", "unittest", "-v", "test_a"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    ends = {"a": "passed", "b": "failed", "c": "skipped", "d": "skipped"}
    assert listed_tests(said.stderr, "unittest") == {
        f"test_a.A.test_{name}": end for name, end in ends.items()
    }


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
@pytest.mark.parametrize("reporter", ["tap", "spec"])
def test_a_real_node_is_understood(tmp_path: Path, reporter: str) -> None:
    (tmp_path / "a.test.js").write_text(
        "const {test} = require('node:test');\n"
        "test('adds', () => {}); test('divides', () => { throw new Error('no') });\n"
        "test('waits', {skip: 'later'}, () => {});\n",
        encoding="utf-8",
    )
    argv = ["node", "--test", f"--test-reporter={reporter}", "a.test.js"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    listed = listed_tests(said.stdout, "npm")
    assert [listed[name] for name in ("adds", "divides", "waits")] == ["passed", "failed", "skipped"]
