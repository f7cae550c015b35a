"""What a finished command proves: the verdict on a run of the validator, from its own words. Pure."""

from __future__ import annotations

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.foundation.text import count_of, quoted
from omx_autoresearch.missions.rules.allowances import is_finite_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from omx_autoresearch.foundation.types import RunVerdict
    from omx_autoresearch.freezing.runners import RunnerCount
    from omx_autoresearch.missions.rules.mission import Contract


@dataclass(frozen=True, slots=True)
class RunReport:
    """The validator's own words, read strictly.

    Attributes:
        verdict: after holding exit status and JSON line against each other.
        cause: one word.
        summary: one line.
        score: finite number or None.
        tests: tests that ran, as a known runner printed; None when it said nothing.
        tests_passed: of these.
        tests_skipped: tests that the runner skipped.
    """

    verdict: RunVerdict
    cause: str
    summary: str
    score: float | None = None
    tests: int | None = None
    tests_passed: int | None = None
    tests_skipped: int = 0


_STATUS = {"passed": True, "failed": False}
_REPORT_KEYS = ("passed", "status", "score", "summary")
_FAULT_KEYS = ("error", "errors", "failed")


def report_of_run(
    exit_status: int | None,
    output: str,
    *,
    last_object: dict[str, Any] | None,
    fault: str,
    contract: Contract,
) -> RunReport:
    """The verdict on a validator run that has ended.

    Args:
        exit_status: of the command; None or negative when a signal ended it.
        output: the kept output, decoded, as far as a test runner tells of its tests in it.
        last_object: the JSON object on the output's last line, if there is one.
        fault: why that last line is not known, or cannot be read although it begins like an object (duplicate keys,
            ...).
        contract: for what the validator printed at the baseline.
    """
    count, skipped = _counted(output, contract.runner)
    tests, passed = (count.ran, count.passed) if count else (None, None)

    def report(verdict: RunVerdict, cause: str, summary: str, score: float | None = None) -> RunReport:
        return RunReport(verdict, cause, summary, score, tests, passed, skipped)

    if exit_status is None or exit_status < 0:
        signal = str(-exit_status) if exit_status else "unknown"
        return report("error", "ended-by-signal", f"the validator was ended by signal {signal}")
    if exit_status in (126, 127):
        return report("error", "not-started", f"the shell could not run it (exit status {exit_status})")
    claimed, score, summary, wrong = _read_report(last_object or {})
    if fault or wrong:
        said = f"its last line is not a valid report: {fault or wrong}"
        if exit_status != 0:  # the exit status decides
            return report("failed", "exit-nonzero", f"exit status {exit_status}; {said}")
        return report("error", "bad-report", said)
    if claimed is not None and claimed != (exit_status == 0):
        said = f"exit status {exit_status}, but its report says passed={claimed}"
        return report("failed", "contradiction", said, score)
    if exit_status != 0:
        return report("failed", "exit-nonzero", summary or f"exit status {exit_status}", score)
    cause, lost = _lost(count, skipped, contract, has_reported=claimed is not None)
    if lost:
        return report("failed", cause, lost, score)
    if count is not None and not count.ran:
        summary = f"{summary or 'exit status 0'}; its runner tested nothing: no test ran"
    return report("passed", "exit-0", summary or "exit status 0", score)


_NAMELESS = "the runner does not name its tests, so that any of these may be one that ran there"


def _counted(output: str, runner: str) -> tuple[RunnerCount | None, int]:
    """The tests that a known runner ran, and how many it skipped."""
    if not runner:
        return None, 0
    from omx_autoresearch.freezing.runners import count_skipped, count_tests

    return count_tests(output, runner), count_skipped(output, runner)


def _lost(
    count: RunnerCount | None, skipped: int, contract: Contract, *, has_reported: bool
) -> tuple[str, str]:
    """A cause and what is missing against intake, in words; both empty when tests and report are there."""
    wanted = contract.baseline_tests
    if wanted is not None:
        wanted -= len(contract.without_tests)
        if count is None or count.passed < wanted:
            said = (
                "it reported no test count" if count is None else f"{count_of(count.passed, 'test')} passed"
            )
            said = "it tested nothing: no test ran" if count is not None and not count.ran else said
            return "fewer-tests", f"{said}; {wanted} ran at intake, and skipped ones do not count"
        more = skipped - contract.baseline_skipped
        if more > 0 and contract.named_tests < wanted:
            said = f"{count_of(more, 'test')} more skipped than at intake"
            return "skipped-tests", f"{said}; {_NAMELESS}: have it run, or take it out"
    if contract.baseline_reports and not has_reported:
        return "no-report", "its last line states no verdict (passed or status), as it did at intake"
    return "", ""


def is_report(last_object: dict[str, Any] | None) -> bool:
    """True for an object that states a verdict."""
    return _read_report(last_object or {})[0] is not None


def _read_report(report: dict[str, Any]) -> tuple[bool | None, float | None, str, str]:
    """(claimed verdict, score, summary, what is wrong) of a report object; other keys are the validator's own."""
    claims = set()
    for key in report:
        meant = key.strip().casefold()
        if meant in _REPORT_KEYS and meant != key:
            return None, None, "", f"the key {quoted(key)} must be spelled {meant}"
    if "passed" in report:
        if not isinstance(report["passed"], bool):
            return None, None, "", f"passed must be true or false, received {quoted(report['passed'])}"
        claims.add(report["passed"])
    if "status" in report:
        if not isinstance(report["status"], str) or report["status"] not in _STATUS:
            return None, None, "", f"status must be passed or failed, received {quoted(report['status'])}"
        claims.add(_STATUS[report["status"]])
    if contradiction := _contradiction(report, claims):
        return None, None, "", contradiction
    score = report.get("score")
    if score is not None and not is_finite_number(score):
        return None, None, "", f"score must be a finite number, received {quoted(score)}"
    summary = report.get("summary", "")
    if not isinstance(summary, str):
        return None, None, "", f"summary must be text, received {quoted(summary)}"
    return (claims.pop() if claims else None), (None if score is None else float(score)), summary[:500], ""


def _contradiction(report: dict[str, Any], claims: set[bool]) -> str:
    if len(claims) == 2:
        return "passed and status contradict each other"
    wrong = next((key for key in _FAULT_KEYS if report.get(key)), "") if True in claims else ""
    return f"it says passed beside {wrong}: {quoted(report[wrong])}" if wrong else ""


_MASKS = (
    r"\x1b\[[0-9;?]*[A-Za-z]",
    r"(?:/[\w.@+-]+){2,}",
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|0x[0-9a-fA-F]+|\b[0-9a-f]{7,128}\b",
    r"\d+",
    r"\s+",
)


def normalized_output(output: str) -> str:
    """Validator output without what changes by itself: digits, times, paths, digests, colours, spacing."""
    if not output:
        return ""
    import re

    for mask in _MASKS:
        output = re.sub(mask, " ", output)
    return output.strip()
