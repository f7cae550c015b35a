"""Listings: the tests that the output of a known runner names, and how each of them ended.

Lines in the runner's own form count, or the report that pytest writes for us (JUnit's XML). A test is named so that
its name stays while other tests come and go: with its file, class, package or test binary where the runner tells them,
without times and line numbers. Where one name stands twice (a retry, a summary at the end, two tests of one name), the
worst of its ends counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from omx_autoresearch.freezing.runners import plain_lines

End = Literal["passed", "skipped", "failed"]
"""How a test ended; an expected failure is ``skipped``, since it proves nothing that works."""
Named = tuple[str, End]

_WORST: tuple[End, ...] = ("passed", "skipped", "failed")

_ENDS: dict[str, End] = {
    "ok": "passed",
    "PASS": "passed",
    "PASSED": "passed",
    "Passed": "passed",
    "pass": "passed",
    "SKIP": "skipped",
    "SKIPPED": "skipped",
    "skip": "skipped",
    "XFAIL": "skipped",
    "ignored": "skipped",
    "Skipped": "skipped",
    "expected failure": "skipped",
    "✔": "passed",
    "✓": "passed",
    "﹣": "skipped",
    "↓": "skipped",
}
"""The runners' own words; every other one is a failure."""


def listed_tests(output: str, runner: str, reports: str = "") -> dict[str, End]:
    """The tests that a run named, each with its end; empty where it named none.

    Args:
        output: of the run, as far as its runner tells of tests in it.
        runner: of the contract (``runners.RUNNERS``).
        reports: what pytest wrote for us; where it wrote something, its lines in ``output`` are not read.
    """
    lines = plain_lines(output)
    found: dict[str, End] = {}
    readers = _READERS.get(runner, ())
    for reader in readers:
        named = _junit(reports) if reader is _pytest and reports else reader(lines)
        for name, end in named:
            found[name] = max(found.get(name, end), end, key=_WORST.index)
    return found


_CASE = re.compile(r"<(testcase|skipped|failure|error)\b([^>]*)>")
_ATTRIBUTE = re.compile(r'\b(classname|name)="([^"]*)"')
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#10;", " "), ("&amp;", "&"))


def _junit(text: str) -> Iterator[Named]:
    """The tests of JUnit's XML as pytest writes it: markup in texts and attributes is escaped.

    A file or class that could not be collected is no test; it is gone from the list once it can be.
    """
    name, end = "", _WORST[0]
    for tag, attributes in _CASE.findall(text):
        if tag != "testcase":
            if 'message="collection ' in attributes:
                name = ""
            end = max(end, "skipped" if tag == "skipped" else "failed", key=_WORST.index)
            continue
        if name:
            yield name, end
        said = dict(_ATTRIBUTE.findall(attributes))
        name, end = f"{said['classname']}::{said.get('name')}" if said.get("classname") else "", "passed"
        for entity, character in _ENTITIES:
            name = name.replace(entity, character)
    if name:
        yield name, end


def _by_pattern(
    pattern: str, *, name: str = "name", end: str = "end"
) -> Callable[[list[str]], Iterator[Named]]:
    """A reader of lines that have a test and its end in them."""
    compiled = re.compile(pattern)

    def read(lines: list[str]) -> Iterator[Named]:
        for line in lines:
            if found := compiled.match(line):
                yield found[name], _ENDS.get(found[end], "failed")

    return read


_pytest = _by_pattern(r"(?P<name>\S+\.py::.*?) (?P<end>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
_automake = _by_pattern(r"(?P<end>PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): (?P<name>\S.*)")
_ctest = _by_pattern(
    r" *\d+/\d+ Test +#\d+: (?P<name>\S+) [. ]*(?:\*\*\*)?(?P<end>Passed|Failed|Skipped|Not Run|Timeout|Exception)"
)
_jest_files = _by_pattern(r"(?P<end>PASS|FAIL) +(?:\[\w+\] |\w+ )?(?P<name>\S+\.\w+)(?: \([\d.]+ m?s\))?$")
_vitest_files = _by_pattern(r" (?P<end>[✓❯×↓]) +(?:\|\w+\| )?(?P<name>\S+\.\w+) \(\d+ tests?\b")  # noqa: RUF001

_UNITTEST = re.compile(r"(?P<test>\w+) \((?P<owner>[\w.]+)\)(?P<rest>.*)")
_UNITTEST_END = re.compile(
    r"(?:.* \.\.\. |.*\.\.\. )?(?P<end>ok|FAIL|ERROR|skipped\b.*|expected failure|unexpected success)$"
)


_NO_TEST = re.compile(r"unittest\.loader\.|.*\.(?:setUp|tearDown)(?:Class|Module)$")


def _unittest(lines: list[str]) -> Iterator[Named]:
    """``test_a (tests.test_x.T.test_a) ... ok``; a docstring, or what the test printed, may stand between."""
    waiting = ""
    for line in lines:
        found = _UNITTEST.match(line)
        if found:
            owner = found["owner"].removesuffix(f".{found['test']}")
            waiting = "" if _NO_TEST.match(f"{owner}.{found['test']}") else f"{owner}.{found['test']}"
        ended = _UNITTEST_END.match(found["rest"] if found else line) if waiting else None
        if ended:
            end = ended["end"]
            yield waiting, "skipped" if end.startswith("skipped") else _ENDS.get(end, "failed")
            waiting = ""


_CARGO_BINARY = re.compile(r" +(?:Running (?:unittests )?(?P<path>\S+)|Doc-tests (?P<docs>\S+))")
_CARGO_TEST = re.compile(r"test (?P<name>\S.*?)(?: - should panic)? \.\.\. (?P<end>ok|FAILED|ignored)")
_CARGO_LINE = re.compile(r" \(line \d+\)")
_NEXTEST = re.compile(r" +(?P<end>PASS|FAIL|SKIP|TIMEOUT|SIG\w+) \[.*?\] (?:\(.*?\) )?(?P<name>\S+ \S+)$")


def _cargo(lines: list[str]) -> Iterator[Named]:
    binary = ""
    for line in lines:
        if found := _CARGO_BINARY.match(line):
            binary = found["path"] or f"doc-tests {found['docs']}"
        elif found := _CARGO_TEST.match(line):
            name = _CARGO_LINE.sub("", found["name"])
            yield " ".join(filter(None, (binary, name))), _ENDS.get(found["end"], "failed")
        elif found := _NEXTEST.match(line):
            yield found["name"], _ENDS.get(found["end"], "failed")


_GO_TEST = re.compile(r".*?--- (?P<end>PASS|FAIL|SKIP): (?P<name>\S+) \([\d.]+s\)$")
_GO_PACKAGE = re.compile(
    r"(?P<end>ok|FAIL)[ \t]+(?P<name>\S+)[ \t]+(?:[\d.]+s|\(cached\)|\[build failed\])(?P<rest>.*)"
)
_GO_EVENT = re.compile(r'\{.*"Action":"(?P<end>pass|fail|skip)"')
_GO_FIELD = re.compile(r'"(Package|Test)":"((?:[^"\\]|\\.)*)"')


def _go(lines: list[str]) -> Iterator[Named]:
    """Tests by package where they are listed (``-v``, ``-json``), else packages."""
    is_verbose = any(line.startswith(("=== RUN ", "--- PASS")) for line in lines)
    waiting: list[Named] = []
    for line in lines:
        if found := _GO_EVENT.match(line):
            said = dict(_GO_FIELD.findall(line))
            if "Test" in said:
                yield f"{said.get('Package', '')}.{said['Test']}", _ENDS.get(found["end"], "failed")
        elif is_verbose and "--- " in line and (found := _GO_TEST.match(line)):
            waiting.append((found["name"], _ENDS.get(found["end"], "failed")))
        elif (found := _GO_PACKAGE.match(line)) and "[no tests to run]" not in found["rest"]:
            yield from ((f"{found['name']}.{name}", end) for name, end in waiting)
            if not is_verbose:
                yield found["name"], _ENDS.get(found["end"], "failed")
            waiting = []


_TAP = re.compile(
    r"(?P<margin> *)(?P<end>ok|not ok) \d+(?: - |\s)(?P<name>.*?)(?P<note> # (?:SKIP|TODO)\b.*)?$",
    re.IGNORECASE,
)
_SPEC = re.compile(r" *(?P<end>[✔✖✓✕﹣]) (?P<name>.*?)(?: \([\d.]+ ?m?s\)(?P<note> # .*)?)?$")


_LOADED_FILE = re.compile(r"(?:ok \d+ - |[✔✖] )\S*/\S*\.[cm]?[jt]sx?\b")


def _javascript(lines: list[str]) -> Iterator[Named]:
    """Tests of node and mocha; of jest and vitest files, since these list single tests at their own choice."""
    if any(re.match(r" *(?:Test Suites:|Test Files )", line) for line in lines):
        yield from _jest_files(lines)
        yield from _vitest_files(lines)
        return
    for line in lines:
        if _LOADED_FILE.search(line):
            continue  # node names a file that it could not load like a test
        if found := _TAP.match(line):
            end: End = "failed" if found["end"].lower() != "ok" else "skipped" if found["note"] else "passed"
            yield found["name"].strip(), end
        elif found := _SPEC.match(line):
            end = _ENDS.get(found["end"], "failed")
            yield found["name"].strip(), "skipped" if end == "passed" and found["note"] else end


_Reader = Callable[[list[str]], Iterable[Named]]
_ANY: tuple[_Reader, ...] = (_pytest, _unittest, _cargo, _go, _javascript, _automake, _ctest)
_READERS: dict[str, tuple[_Reader, ...]] = {
    "pytest": (_pytest,),
    "unittest": (_unittest,),
    "cargo": (_cargo,),
    "go": (_go,),
    "npm": _ANY,
    "make": _ANY,
}
"""By the names of ``runners.RUNNERS``."""
