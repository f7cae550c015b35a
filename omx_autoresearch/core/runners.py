"""Known test runners: what a command that calls one looks like, and how many tests its own words say.

Only lines in a runner's own form count, not a number that some test printed in passing. A program under test can still
print such a line itself: a stated limit, narrowed by pinned tests and by the number of tests at intake.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from omx_autoresearch.core.values import dataclass


@dataclass(frozen=True, slots=True)
class RunnerCount:
    """What a runner said.

    Attributes:
        ran: tests that passed or failed. Skipped and expected failures are none: a test that is switched off is missed.
        passed: tests that passed.
    """

    ran: int
    passed: int


_Count = tuple[int, int]
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBERED_WORD = re.compile(r"(\d{1,9}) ([a-z]+)")

_PYTEST = re.compile(
    r"^(?:=+ )?((?:\d{1,9} [a-z]+(?: [a-z]+)?(?:, )?)+|no tests ran)"
    r" in [\d.]+ ?s(?:ec\w*)?(?: \([^)\n]*\))?(?: =+)?[ \t]*$",
    re.MULTILINE,
)
_UNITTEST = re.compile(
    r"^Ran (\d{1,9}) tests? in .*\n\n?(?:(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?)?", re.MULTILINE
)
_CARGO = re.compile(r"^test result: \w+\. (\d{1,9}) passed; (\d{1,9}) failed;", re.MULTILINE)
_NEXTEST = re.compile(r"\] +(\d{1,9})(?:/(\d{1,9}))? tests? run: (\d{1,9}) passed")
_GO_TEST = re.compile(r"^[ \t]*--- (PASS|FAIL): ", re.MULTILINE)
_GO_PACKAGE = re.compile(
    r"^(ok|FAIL)[ \t]+\S+[ \t]+(?:[\d.]+s|\(cached\)|\[build failed\])(.*)$", re.MULTILINE
)
_JEST = re.compile(r"^[ \t]*Tests:?[ \t]+(\d.*)$", re.MULTILINE)
_SPECS = re.compile(
    r"^[ \t]*(\d{1,9}) (?:tests? )?(pass|fail)(?:ed|ing)?(?: \([^)\n]*\))?[ \t]*$", re.MULTILINE
)
_TAP = re.compile(r"^(?:#|ℹ) (pass|fail)[ \t]+(\d{1,9})[ \t]*$", re.MULTILINE)  # noqa: RUF001 - node prints it
_AUTOMAKE = re.compile(r"^# (PASS|FAIL|XPASS|ERROR):[ \t]+(\d{1,9})[ \t]*$", re.MULTILINE)
_CTEST = re.compile(r"^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})", re.MULTILINE)


def _by_words(text: str) -> _Count:
    words = {word: int(number) for number, word in _NUMBERED_WORD.findall(text)}
    passed = words.get("passed", 0)
    return passed + words.get("failed", 0), passed


def _pytest(text: str) -> list[_Count]:
    return [_by_words(found[1]) for found in _PYTEST.finditer(text)]


def _unittest(text: str) -> list[_Count]:
    counts = []
    for found in _UNITTEST.finditer(text):
        said = {word: int(number) for word, number in re.findall(r"([a-z ]+)=(\d{1,9})", found[2] or "")}
        said = {word.strip(): number for word, number in said.items()}
        ran = int(found[1]) - said.get("skipped", 0) - said.get("expected failures", 0)
        lost = said.get("failures", 0) + said.get("errors", 0) + said.get("unexpected successes", 0)
        counts.append((max(0, ran), max(0, ran - lost)))
    return counts


def _cargo(text: str) -> list[_Count]:
    counts = [(int(found[1]) + int(found[2]), int(found[1])) for found in _CARGO.finditer(text)]
    return counts + [(int(found[2] or found[1]), int(found[3])) for found in _NEXTEST.finditer(text)]


def _go(text: str) -> list[_Count]:
    """Tests where they are listed (``-v``), else packages, which is all that go says."""
    if re.search(r"^=== RUN ", text, re.MULTILINE):
        return [(1, 1 if word == "PASS" else 0) for word in _GO_TEST.findall(text)]
    packages = [found for found in _GO_PACKAGE.finditer(text) if "[no tests to run]" not in found[2]]
    return [(1, 1 if found[1] == "ok" else 0) for found in packages]


def _javascript(text: str) -> list[_Count]:
    counts = [_by_words(found[1]) for found in _JEST.finditer(text)]
    said = [(int(found[1]), found[2]) for found in _SPECS.finditer(text)]
    said += [(int(found[2]), found[1]) for found in _TAP.finditer(text)]
    return counts + [(number, number if word == "pass" else 0) for number, word in said]


def _make(text: str) -> list[_Count]:
    counts = [
        (int(found[2]), int(found[2]) if found[1] == "PASS" else 0) for found in _AUTOMAKE.finditer(text)
    ]
    return counts + [(int(found[2]), int(found[2]) - int(found[1])) for found in _CTEST.finditer(text)]


_ANY: tuple[Callable[[str], list[_Count]], ...] = (_pytest, _unittest, _cargo, _go, _javascript, _make)

RUNNERS: dict[str, tuple[str, tuple[Callable[[str], list[_Count]], ...]]] = {
    "pytest": (r"\bpytest\b|\bpy\.test\b", (_pytest,)),
    "cargo": (r"\bcargo\s+(?:\S+\s+)*(?:test|nextest)\b", (_cargo,)),
    "go": (r"\bgo\s+test\b", (_go,)),
    "npm": (
        r"\b(?:npm|pnpm|yarn|npx|bun)\b.*\btest\b|\b(?:jest|vitest|mocha)\b|\bnode\s+(?:\S+\s+)*--test\b",
        _ANY,
    ),
    "make": (r"\bmake\b.*\b(?:test|check)\b|\bctest\b", _ANY),
    "unittest": (r"\bunittest\b", (_unittest,)),
}
"""Name to what a command that calls it looks like, and who reads its output. npm and make call any of the others."""


def runner_of(text: str) -> str:
    """The known runner that a command (or the text of a short script) calls; empty for none."""
    return next((name for name, (command, _) in RUNNERS.items() if re.search(command, text)), "")


def count_tests(output: str, runner: str) -> RunnerCount | None:
    """What the runner said about all its runs in ``output``; None when it said nothing, or nobody knows the runner."""
    if runner not in RUNNERS:
        return None
    text = _COLOUR.sub("", output).replace("\r\n", "\n")
    counts = [count for read in RUNNERS[runner][1] for count in read(text)]
    if not counts:
        return None
    return RunnerCount(sum(ran for ran, _ in counts), sum(passed for _, passed in counts))
