"""When a completion contract is met: what a run proves, and every item that is still missing.

All checks have one shape: a tuple of :class:`Missing`, empty when there is nothing left to prove. What a model wrote
about itself is a claim and appears nowhere here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omx_autoresearch.core.mission import Verdict

if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Attestation, Contract, Mission


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that the contract still lacks.

    Attributes:
        code: stable word, for machines.
        what: what is missing, one sentence.
        received: what was there instead.
        next_command: the one command or act that helps, legal in the mission's phase.
    """

    code: str
    what: str
    received: str
    next_command: str


@dataclass(frozen=True, slots=True)
class Look:
    """The workspace as it is at this moment, against which an attestation must be fresh.

    Attributes:
        head: current commit.
        tree_digest: current content digest.
        pin_digest: digest of the pinned files as they are now.
        changed_pins: pinned paths whose content differs from the manifest, as far as they were compared.
        output_artifact_digest: of the artifact under review; empty when it is missing or empty.
        artifact_fault: why the artifact cannot be taken (outside the workspace, no regular file, ...).
        artifact_report: what a hand-written completion artifact says (see :func:`read_artifact`).
        artifact_claim: ``passed`` when that document is well formed and says so; a claim all the same.
    """

    head: str
    tree_digest: str
    pin_digest: str
    changed_pins: tuple[str, ...] = ()
    output_artifact_digest: str = ""
    artifact_fault: str = ""
    artifact_report: str = ""
    artifact_claim: str = ""


def is_fresh(run: Attestation | None, mission: Mission, look: Look) -> bool:
    """True when ``run`` belongs to this contract and nothing that it depended on has moved since it began.

    A validator depends on HEAD, the whole tree and the pinned files; a review on the artifact and the pinned files.
    """
    if run is None or not run.is_fresh or run.contract_digest != mission.contract_digest:
        return False
    if run.pin_digest != look.pin_digest:
        return False
    if mission.contract is not None and mission.contract.validation_mode == "prompt-architect-artifact":
        return is_same_artifact(run, look)
    return run.head == look.head and run.tree_digest == look.tree_digest


def has_moved(before: Look, after: Look, mission: Mission) -> bool:
    """True when what a run depends on changed while it ran."""
    if before.pin_digest != after.pin_digest:
        return True
    if mission.contract is not None and mission.contract.validation_mode == "prompt-architect-artifact":
        return before.output_artifact_digest != after.output_artifact_digest
    return (before.head, before.tree_digest) != (after.head, after.tree_digest)


def is_same_artifact(run: Attestation, look: Look) -> bool:
    """True when the artifact under review is the one that ``run`` saw; trivially so without an artifact."""
    return run.output_artifact_digest == look.output_artifact_digest


def is_reusable_failure(mission: Mission, look: Look) -> bool:
    """True when the newest run failed on exactly this workspace and no person spoke since: it need not run again."""
    run = mission.attestation
    return (
        run is not None
        and run.verdict == "failed"
        and not mission.is_recheck_due
        and is_fresh(run, mission, look)
    )


def missing_items(mission: Mission, look: Look) -> tuple[Missing, ...]:
    """Everything that the completion contract still lacks at this look; empty means that it is met."""
    contract = mission.contract
    if contract is None:
        return (
            Missing(
                "launch",
                "the mission was not launched",
                "a draft",
                f"omx-autoresearch start {mission.task_id}",
            ),
        )
    if contract.accept_unattested and look.artifact_claim == "passed":
        return ()
    missing = []
    if contract.validation_mode == "prompt-architect-artifact" and not look.output_artifact_digest:
        missing.append(
            Missing(
                "output-artifact",
                f"a non-empty output artifact at {contract.output_artifact_path}",
                look.artifact_fault or "no such file",
                f"omx-autoresearch review {mission.task_id}",
            )
        )
        return tuple(missing)
    run = mission.attestation
    if (
        run is not None
        and is_fresh(run, mission, look)
        and run.verdict == "passed"
        and is_same_artifact(run, look)
    ):
        return ()
    missing.append(_lacking_run(mission, contract, look))
    return tuple(missing)


def _lacking_run(mission: Mission, contract: Contract, look: Look) -> Missing:
    is_script = contract.validation_mode == "mission-validator-script"
    what = (
        f"a passing run of the validator `{contract.validator_command}`, by the runtime, on the workspace as it is now"
        if is_script
        else f"an approving review of {contract.output_artifact_path} as it is now"
    )
    run = mission.attestation
    if run is None or run.contract_digest != mission.contract_digest:
        received = "no run under this contract yet"
    elif not is_fresh(run, mission, look) and run.verdict == "passed":
        received = f"run {run.run_id} passed, but the workspace or HEAD moved since it began"
    else:
        received = f"run {run.run_id}: {run.verdict} ({run.cause}): {run.summary}"
    if look.artifact_report:
        received += f"; {look.artifact_report}"
    verb = "validate" if is_script else "review"
    return Missing(
        "validation" if is_script else "review", what, received, f"omx-autoresearch {verb} {mission.task_id}"
    )


def run_score(run: Attestation) -> float | None:
    """What progress is measured by: the validator's score, else the number of tests that passed."""
    if run.score is not None:
        return run.score
    return None if run.tests is None else float(run.tests)


def better_of(best: float | None, score: float | None, direction: str) -> float | None:
    """The better of two scores; None counts as no score, never as zero."""
    if score is None or best is None:
        return best if score is None else score
    return max(best, score) if direction == "higher" else min(best, score)


def is_better(best: float | None, score: float | None, direction: str) -> bool:
    """True when ``score`` beats ``best`` strictly; the first score of a mission without a baseline does not."""
    if score is None or best is None:
        return False
    return score > best if direction == "higher" else score < best


# --- what a finished command proves


@dataclass(frozen=True, slots=True)
class RunReport:
    """The validator's own words, read strictly.

    Attributes:
        verdict: after holding exit status and JSON line against each other.
        cause: one word.
        summary: one line.
        score: finite number or None.
        tests: tests that passed, as a known runner printed; None when it said nothing.
    """

    verdict: Verdict
    cause: str
    summary: str
    score: float | None = None
    tests: int | None = None


_REPORT_KEYS = ("passed", "status", "score", "summary")
_STATUS = {"passed": True, "failed": False}


def report_of_run(
    exit_status: int | None,
    output: str,
    *,
    last_object: dict[str, Any] | None,
    fault: str,
    contract: Contract,
) -> RunReport:
    """What an ended validator run proves.

    Args:
        exit_status: of the command; None or negative when a signal ended it.
        output: the kept output, decoded; its end matters.
        last_object: the JSON object on the output's last line, if there is one.
        fault: why that last line, although it begins like an object, cannot be read (duplicate keys, ...).
        contract: for the baseline's number of tests.
    """
    tests = count_tests(output, contract.runner)
    if exit_status is None or exit_status < 0:
        return RunReport(
            "error",
            "ended-by-signal",
            f"the validator was ended by signal {-(exit_status or 0)}",
            tests=tests,
        )
    if exit_status in (126, 127):
        return RunReport(
            "error", "not-started", f"the shell could not run it (exit status {exit_status})", tests=tests
        )
    if fault:
        return RunReport("error", "bad-report", f"its last line is no valid report: {fault}", tests=tests)
    claimed, score, summary, wrong = _read_report(last_object or {})
    if wrong:
        return RunReport("error", "bad-report", f"its last line is no valid report: {wrong}", tests=tests)
    is_passed = exit_status == 0
    if claimed is not None and claimed != is_passed:
        return RunReport(
            "failed",
            "contradiction",
            f"exit status {exit_status}, but its report says passed={claimed}",
            score,
            tests,
        )
    if not is_passed:
        return RunReport("failed", "exit-nonzero", summary or f"exit status {exit_status}", score, tests)
    if contract.baseline_tests is not None and (tests is None or tests < contract.baseline_tests):
        ran = "it named no number of tests" if tests is None else f"it ran {tests} tests"
        return RunReport("failed", "fewer-tests", f"{ran}, {contract.baseline_tests} at intake", score, tests)
    return RunReport("passed", "exit-0", summary or "exit status 0", score, tests)


def _read_report(report: dict[str, Any]) -> tuple[bool | None, float | None, str, str]:
    """(claimed verdict, score, summary, what is wrong) of a report object; other keys are the validator's own."""
    claims = set()
    if "passed" in report:
        if not isinstance(report["passed"], bool):
            return None, None, "", f"passed must be true or false, received {report['passed']!r}"
        claims.add(report["passed"])
    if "status" in report:
        if not isinstance(report["status"], str) or report["status"] not in _STATUS:
            return None, None, "", f"status must be passed or failed, received {report['status']!r}"
        claims.add(_STATUS[report["status"]])
    if len(claims) == 2:
        return None, None, "", "passed and status contradict each other"
    score = report.get("score")
    if score is not None and (
        isinstance(score, bool) or not isinstance(score, (int, float)) or score - score != 0
    ):
        return None, None, "", f"score must be a finite number, received {score!r}"
    summary = report.get("summary", "")
    if not isinstance(summary, str):
        return None, None, "", f"summary must be text, received {summary!r}"
    return (claims.pop() if claims else None), (None if score is None else float(score)), summary[:500], ""


RUNNERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pytest": (r"\bpytest\b|\bpy\.test\b", (r"(\d+) passed",)),
    "cargo": (
        r"\bcargo\s+(?:\S+\s+)*(?:test|nextest)\b",
        (r"test result: \w+\. (\d+) passed", r"tests? run: (\d+) passed"),
    ),
    "go": (r"\bgo\s+test\b", (r"(?m)^\s*(--- PASS:)", r"(?m)^(ok)\s+\S+")),
    "npm": (
        r"\b(?:npm|pnpm|yarn|npx|bun)\b.*\b(?:test|jest|vitest|mocha)\b",
        (r"Tests:?\s.*?(\d+) passed", r"(\d+) passing", r"(?m)^\S? ?pass (\d+)$"),
    ),
    "make": (r"\bmake\b.*\b(?:test|check)\b", (r"(\d+) passed", r"# PASS:\s+(\d+)")),
    "unittest": (r"\bunittest\b", (r"(?m)^Ran (\d+) tests?",)),
}
"""Known test runners: what a command that calls one looks like, and how it says how many tests passed."""


def runner_of(text: str) -> str:
    """The known runner that a command (or the text of a short script) calls; empty for none."""
    for name, (command, _) in RUNNERS.items():
        if re.search(command, text):
            return name
    return ""


def count_tests(output: str, runner: str) -> int | None:
    """How many tests passed according to the runner's own words; None when it did not say."""
    if runner not in RUNNERS:
        return None
    for pattern in RUNNERS[runner][1]:
        found = re.findall(pattern, output)
        if found:
            return sum(int(item) if item.isdigit() else 1 for item in found)
    return None


def read_artifact(artifact: Any, mission: Mission) -> tuple[bool, str]:
    """A hand-written completion artifact in the agreed shape: (it says passed, what to report of it).

    Only exact values count: ``status == "passed"`` with ``passed`` JSON true, or a review verdict from the closed set.
    The document is a claim all the same; it completes a mission only where the owner set ``accept_unattested``.
    """
    contract = mission.contract
    if contract is None:
        return False, ""
    if not isinstance(artifact, dict):
        return False, f"a hand-written completion artifact is no object but {type(artifact).__name__}"
    if contract.validation_mode == "mission-validator-script":
        status, passed = artifact.get("status"), artifact.get("passed")
        if status == "passed" and passed is True:
            return True, "a hand-written completion artifact says passed; it is unattested and does not count"
        return (
            False,
            f"a hand-written completion artifact has status={status!r}, passed={passed!r}; it does not count",
        )
    review = artifact.get("architect_review")
    verdict = review.get("verdict") if isinstance(review, dict) else None
    output_path = artifact.get("output_artifact_path")
    if verdict == "approved" and output_path == contract.output_artifact_path:
        return True, "a hand-written completion artifact says approved; it is unattested and does not count"
    return False, f"a hand-written completion artifact has verdict={verdict!r}; it does not count"
