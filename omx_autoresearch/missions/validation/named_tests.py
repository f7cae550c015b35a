"""Tests by name: each that ran at the baseline must pass in a run that passes, or be named by the owner.

The names stand in the mission's folder of the state home, and their digest in the contract. Only names that two runs of
the baseline listed alike are among them; all other tests count by number.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid
from omx_autoresearch.foundation.records import replace, sha256
from omx_autoresearch.foundation.text import count_of
from omx_autoresearch.freezing.listings import listed_tests
from omx_autoresearch.journal.safe_files import read_bounded, replace_file
from omx_autoresearch.missions.validation.output import runner_output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omx_autoresearch.freezing.listings import End
    from omx_autoresearch.journal.layout import MissionFolder
    from omx_autoresearch.missions.rules.mission import Contract
    from omx_autoresearch.missions.rules.run_reports import RunReport
    from omx_autoresearch.system.commands import CommandResult

_NAMES_BYTES = 64 * 1024 * 1024
_SHOWN = 3
_SHOWN_CHARACTERS = 100


def tests_of(contract: Contract, result: CommandResult) -> dict[str, End]:
    """The tests that a run of the contract's validator named, each with its end; empty without a known runner."""
    if not contract.runner:
        return {}
    report = result.report.decode("utf-8", "replace")
    listed = listed_tests(runner_output(result, contract.runner), contract.runner, report)
    return {" ".join(name.split()): end for name, end in listed.items()}


def agreed(listings: Iterable[dict[str, End]]) -> tuple[str, ...]:
    """The names that two runs or more listed alike, and that ran in them; sorted."""
    first, *others = listings
    if not others:
        return ()
    return tuple(
        sorted(
            name
            for name, end in first.items()
            if end != "skipped" and all(other.get(name) == end for other in others)
        )
    )


def keep_names(folder: MissionFolder, names: tuple[str, ...]) -> str:
    """Write the names down for later runs, and return their digest; empty where there are none, or far too many.

    Raises:
        StorageFailed: the state home cannot be written.
    """
    data = "\n".join(names).encode("utf-8", "surrogatepass")
    if not names or len(data) > _NAMES_BYTES:
        return ""
    replace_file(_path(folder), data)
    return sha256(data).hexdigest()


def kept_names(folder: MissionFolder, contract: Contract) -> tuple[str, ...] | None:
    """The names that count under a contract; None where the list is lost or was changed."""
    if not contract.named_tests_digest:
        return ()
    try:
        data = read_bounded(_path(folder), _NAMES_BYTES)
    except (OSError, AutoresearchError):
        return None
    if sha256(data).hexdigest() != contract.named_tests_digest:
        return None
    return tuple(data.decode("utf-8", "surrogatepass").split("\n"))


def held_to_names(
    report: RunReport, folder: MissionFolder, contract: Contract, result: CommandResult, task_id: str
) -> RunReport:
    """The report on a run that passes so far: no pass where a test of the baseline did not pass by its name."""
    if report.verdict != "passed" or not contract.named_tests_digest:
        return report
    names = kept_names(folder, contract)
    if names is None:
        cure = f"omx-autoresearch amend {task_id} --reason WHY"
        why = f"the list of the baseline's tests is lost, and without it tests count by number; the owner types: {cure}"
        return replace(report, verdict="error", cause="tests-unknown", summary=why)
    ended = tests_of(contract, result)
    if not ended:
        why = "its runner named no test, as it did at the baseline, or more than can be read"
        return replace(report, verdict="error", cause="tests-unknown", summary=why)
    released = frozenset(contract.without_tests)
    lost = [name for name in names if ended.get(name) != "passed" and name not in released]
    if not lost:
        return report
    return replace(report, verdict="failed", cause="tests-missing", summary=_told(lost, ended, task_id))


def _told(lost: list[str], ended: dict[str, End], task_id: str) -> str:
    shown = [f"{name[:_SHOWN_CHARACTERS]} ({ended.get(name, 'not run')})" for name in lost[:_SHOWN]]
    more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return (
        f"{count_of(len(lost), 'test')} of the baseline did not pass: {', '.join(shown)}{more}; have each run and pass"
        f" under its name, or the owner types: omx-autoresearch amend {task_id} --without-test {_quoted(lost[0])}"
    )


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "'\\''") + "'"


def refuse_unknown_names(folder: MissionFolder, contract: Contract, task_id: str) -> None:
    """Refuse to leave out a test that no run of the baseline named.

    Raises:
        MissionInvalid: names the closest one.
    """
    names = kept_names(folder, contract)
    unknown = [name for name in contract.without_tests if names and name not in names]
    if not unknown or not names:
        return
    import difflib

    near = difflib.get_close_matches(unknown[0], names, n=1, cutoff=0.3)
    raise MissionInvalid(
        f"without_tests: {unknown[0][:200]!r} is none of the {count_of(len(names), 'test')} that the baseline named",
        next_step=f"omx-autoresearch amend {task_id} --without-test {_quoted(near[0])}"
        if near
        else f"give a name that a refusal shows: omx-autoresearch validate {task_id}",
    )


def _path(folder: MissionFolder) -> str:
    return os.path.join(folder.root_path, "baseline-tests")
