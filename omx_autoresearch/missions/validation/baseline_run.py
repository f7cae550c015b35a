"""Running a contract's validator once, outside any mission: for ``init --dry-run`` and the baseline of ``start``."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

from omx_autoresearch.foundation.records import dataclass
from omx_autoresearch.journal.outputs import trim_for_person
from omx_autoresearch.missions.validation.runs import read_output, report_of, run_validator
from omx_autoresearch.system.commands import shell_argv

if TYPE_CHECKING:
    from omx_autoresearch.missions.rules.evidence import RunReport
    from omx_autoresearch.missions.rules.mission import Contract

OUTPUT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Tryout:
    """What one run of the validator said.

    Attributes:
        report: the verdict that the runtime would take from it.
        exit_status: None where a signal or the clock ended it, or it was never started.
        output: its output, trimmed and made harmless.
        duration_seconds: wall time.
    """

    report: RunReport
    exit_status: int | None
    output: str
    duration_seconds: float


def try_validator(contract: Contract, workspace_path: str, *, isolation: str = "none") -> Tryout:
    """Run a contract's validator as every validation runs it; nothing of ours stays behind.

    Raises:
        CommandFault: it shall run in bubblewrap, and there is none.
    """
    scratch_path = tempfile.mkdtemp(prefix="omx-autoresearch-")
    try:
        os.mkdir(os.path.join(scratch_path, "tmp"), 0o700)
        result = run_validator(
            shell_argv(contract.validator_command),
            contract,
            workspace_path,
            os.path.join(scratch_path, "output"),
            scratch_path,
            isolation=isolation,
        )
        output = read_output(result)
    finally:
        shutil.rmtree(scratch_path, ignore_errors=True)
    return Tryout(
        report=report_of(contract, workspace_path, result, output, ""),
        exit_status=result.exit_status if result.outcome == "exited" else None,
        output=trim_for_person(output, OUTPUT_CHARACTERS),
        duration_seconds=result.duration_seconds,
    )
