"""Known test runners: the commands that call them, and the number of tests that their output tells.

Of a runner's output only lines in its own form count, not a number that some test printed in passing. A program under
test can still print such a line itself: a stated limit, narrowed by pinned tests and by the number of tests at intake.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from omx_autoresearch.foundation.records import dataclass


@dataclass(frozen=True, slots=True)
class RunnerCount:
    """The tests that a runner reported.

    Attributes:
        ran: tests that passed or failed. Skipped tests and expected failures do not count, so that a test that was
            switched off is missed.
        passed: tests that passed.
    """

    ran: int
    passed: int


_Count = tuple[int, int]
# Texts, compiled where they are used: a hook needs those of one runner, and mostly none.
_COLOUR = r"\x1b\[[0-9;?]*[A-Za-z]"
_NUMBERED_WORD = r"(\d{1,9}) ([a-z]+)"

_PYTEST = (
    r"(?m)^(?:=+ )?((?:\d{1,9} [a-z]+(?: [a-z]+)?(?:, )?)+|no tests ran)"
    r" in [\d.]+ ?s(?:ec\w*)?(?: \([^)\n]*\))?(?: =+)?[ \t]*$"
)
_UNITTEST = r"(?m)^Ran (\d{1,9}) tests? in .*\n\n?(?:(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?)?"
_CARGO = r"(?m)^test result: \w+\. (\d{1,9}) passed; (\d{1,9}) failed;"
_NEXTEST = r"\] +(\d{1,9})(?:/(\d{1,9}))? tests? run: (\d{1,9}) passed"
_GO_TEST = r"(?m)^[ \t]*--- (PASS|FAIL): "
_GO_PACKAGE = r"(?m)^(ok|FAIL)[ \t]+\S+[ \t]+(?:[\d.]+s|\(cached\)|\[build failed\])(.*)$"
_JEST = r"(?m)^[ \t]*Tests:?[ \t]+(\d.*)$"
_SPECS = r"(?m)^[ \t]*(\d{1,9}) (?:tests? )?(pass|fail)(?:ed|ing)?(?: \([^)\n]*\))?[ \t]*$"
_TAP = r"(?m)^(?:#|ℹ) (pass|fail)[ \t]+(\d{1,9})[ \t]*$"  # noqa: RUF001 - node prints it
_AUTOMAKE = r"(?m)^# (PASS|FAIL|XPASS|ERROR):[ \t]+(\d{1,9})[ \t]*$"
_CTEST = r"(?m)^\d+% tests passed, (\d{1,9}) tests? failed out of (\d{1,9})"


def _by_words(text: str) -> _Count:
    words = {word: int(number) for number, word in re.findall(_NUMBERED_WORD, text)}
    passed = words.get("passed", 0)
    return passed + words.get("failed", 0), passed


def _pytest(text: str) -> list[_Count]:
    return [_by_words(found[1]) for found in re.finditer(_PYTEST, text)]


def _unittest(text: str) -> list[_Count]:
    counts = []
    for found in re.finditer(_UNITTEST, text):
        said = {word: int(number) for word, number in re.findall(r"([a-z ]+)=(\d{1,9})", found[2] or "")}
        said = {word.strip(): number for word, number in said.items()}
        ran = int(found[1]) - said.get("skipped", 0) - said.get("expected failures", 0)
        lost = said.get("failures", 0) + said.get("errors", 0) + said.get("unexpected successes", 0)
        counts.append((max(0, ran), max(0, ran - lost)))
    return counts


def _cargo(text: str) -> list[_Count]:
    counts = [(int(found[1]) + int(found[2]), int(found[1])) for found in re.finditer(_CARGO, text)]
    return counts + [(int(found[2] or found[1]), int(found[3])) for found in re.finditer(_NEXTEST, text)]


def _go(text: str) -> list[_Count]:
    """Tests where they are listed (``-v``), else packages, which is all that go says."""
    if re.search(r"(?m)^=== RUN ", text):
        return [(1, 1 if word == "PASS" else 0) for word in re.findall(_GO_TEST, text)]
    packages = [found for found in re.finditer(_GO_PACKAGE, text) if "[no tests to run]" not in found[2]]
    return [(1, 1 if found[1] == "ok" else 0) for found in packages]


def _javascript(text: str) -> list[_Count]:
    counts = [_by_words(found[1]) for found in re.finditer(_JEST, text)]
    said = [(int(found[1]), found[2]) for found in re.finditer(_SPECS, text)]
    said += [(int(found[2]), found[1]) for found in re.finditer(_TAP, text)]
    return counts + [(number, number if word == "pass" else 0) for number, word in said]


def _make(text: str) -> list[_Count]:
    counts = [
        (int(found[2]), int(found[2]) if found[1] == "PASS" else 0) for found in re.finditer(_AUTOMAKE, text)
    ]
    return counts + [(int(found[2]), int(found[2]) - int(found[1])) for found in re.finditer(_CTEST, text)]


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
"""By name: a pattern of the commands that call the runner, and the readers of its output (npm and make call others)."""


def runners_of(text: str) -> tuple[str, ...]:
    """Every known runner that a command or script calls, sorted."""
    return tuple(sorted(name for name, (command, _) in RUNNERS.items() if re.search(command, text)))


def runner_of(text: str) -> str:
    """The known runner that a command (or the text of a short script) calls; empty for none."""
    return next((name for name, (command, _) in RUNNERS.items() if re.search(command, text)), "")


_WORDS: dict[str, tuple[str, ...]] = {
    "pytest": (
        "passed", "failed", "skipped", "deselected", "error", "no tests ran", "PASS", "FAIL", "SKIP", "ERROR",
    ),
    "unittest": (
        "Ran ", "OK", "FAILED", "NO TESTS RAN", " ... ", "test", "ok", "ERROR", "skipped", "expected",
    ),
    "cargo": ("test ", "tests run", "test run", "Running ", "Doc-tests ", "PASS", "FAIL", "SKIP"),
    "go": ("--- ", "=== RUN", "ok ", "FAIL", "? ", '"Action"'),
    "npm": (
        "Tests", "pass", "fail", "PASS", "FAIL", "ok ", "# Sub", "✔", "✖", "✓", "✕", "\u00d7", "﹣", "▶", "\u276f",
        "↓",
    ),
    "make": ("PASS", "FAIL", "SKIP", "ERROR", "tests passed", "Test "),
}  # fmt: skip


def words_of(runner: str) -> tuple[bytes, ...]:
    """Words, one of which stands in every line in which a runner tells of a test or of their number."""
    if runner not in RUNNERS:
        return ()
    names = (runner,) if len(RUNNERS[runner][1]) == 1 else tuple(_WORDS)
    return tuple(dict.fromkeys(word.encode() for name in names for word in _WORDS[name]))


def _plain(output: str) -> str:
    return re.sub(_COLOUR, "", output).replace("\r\n", "\n")


def plain_lines(output: str) -> list[str]:
    """The lines of an output without colours."""
    return _plain(output).split("\n")


def count_tests(output: str, runner: str) -> RunnerCount | None:
    """The tests of all the runner's runs in ``output``; None where it reported none, or the runner is unknown."""
    if runner not in RUNNERS:
        return None
    text = _plain(output)
    counts = [count for read in RUNNERS[runner][1] for count in read(text)]
    if not counts:
        return None
    return RunnerCount(sum(ran for ran, _ in counts), sum(passed for _, passed in counts))


_SKIPPED = (
    r"(?m)^(?:=+ )?(?:\d{1,9} [a-z ]+, )*(\d{1,9}) skipped\b.* in [\d.]+ ?s",
    r"(?m)^(?:OK|FAILED) \(.*?\bskipped=(\d{1,9})",
    r"(?m)^test result: .*; (\d{1,9}) ignored;",
    r"(?m)^[ \t]*Tests:?[ \t]+.*?(\d{1,9}) skipped\b",
    r"(?m)^[ \t]*(\d{1,9}) pending[ \t]*$",
    r"(?m)^(?:#|ℹ) skipped[ \t]+(\d{1,9})[ \t]*$",  # noqa: RUF001 - node prints it
    r"(?m)^# SKIP:[ \t]+(\d{1,9})[ \t]*$",
)
"""What known runners say of tests that were skipped; go and ctest say nothing without a listing."""


def count_skipped(output: str, runner: str) -> int:
    """The tests that the runner says were skipped; 0 where it says nothing."""
    if runner not in RUNNERS:
        return 0
    text = _plain(output)
    return sum(int(number) for pattern in _SKIPPED for number in re.findall(pattern, text))
