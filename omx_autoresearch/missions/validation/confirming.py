"""A pass that is asked for once more in a clean copy (``confirm: clean``).

It is that of the validator, or of the command of a criterion.
"""

from __future__ import annotations

import os

from omx_autoresearch.foundation.records import replace
from omx_autoresearch.freezing.meanwhile import Meanwhile
from omx_autoresearch.missions.validation.clean_copy import clean_copy, lacking

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from omx_autoresearch.missions.rules.mission import Contract
    from omx_autoresearch.missions.rules.run_reports import RunReport
    from omx_autoresearch.missions.validation.clean_copy import CleanCopy
    from omx_autoresearch.missions.workspace import PinnedRun
    from omx_autoresearch.system.commands import CommandResult

    Judge = Callable[[str, CommandResult], RunReport]
    """Takes the folder that a command ran in, and what became of it."""

_NAMED = 5


def confirmed(  # noqa: PLR0913  # what a run depends on
    contract: Contract,
    pins: PinnedRun,
    passed: CommandResult,
    *,
    run: Callable[..., CommandResult],
    judge: Judge,
    isolation: str,
    hidden_paths: tuple[str, ...],
) -> tuple[CommandResult, RunReport] | None:
    """Run a command that passed in the workspace once more in a clean copy; None where it passes there as well.

    Otherwise the output of this run takes the place of the first one's, and the report says why it is no pass. A copy
    of which something was changed meanwhile proves nothing.

    Args:
        contract: with its secrets filled in.
        pins: of the run in the workspace.
        passed: how that run ended.
        run: runs a command as every validation does (`runs.run_validator`).
        judge: gives the report on a run.
        isolation: of the run.
        hidden_paths: what no box shows.

    Raises:
        WorkspaceFault: the copy cannot be made from what is there, or git refuses.
        CommandFault: the copy cannot be written.
    """
    kept = {"keep": contract.keep, "link": contract.link}
    output_path = f"{passed.output_path}.clean"
    with clean_copy(pins.workspace_path, pins.copies, **kept) as copy:
        before = copy.content()
        meanwhile = Meanwhile(pins.manifest, copy.path, is_mounted=passed.is_mounted)
        try:
            result = run(
                passed.argv,
                contract,
                copy.path,
                output_path,
                copy.scratch_path,
                isolation=isolation,
                mounts=copy.mounts if passed.is_mounted else (),
                hidden_paths=hidden_paths,
                shown_paths=(copy.root_path,),
                watch=meanwhile.watch,
            )
            moved = (*meanwhile.moved(is_mounted=result.is_mounted), *_displaced(copy, result))
        finally:
            meanwhile.close()
        report = judge(copy.path, result)
        told: tuple[str, ...]
        if report.verdict != "passed":
            told = (report.summary, lacking(pins.workspace_path, **kept))
        elif moved := moved or _changed(before, copy.content()):
            told = (f"{', '.join(moved[:_NAMED])} was made, written or moved there while it ran",)
        else:
            os.remove(output_path)
            return None
    os.replace(output_path, passed.output_path)
    summary = f"in a clean copy: {'; '.join(filter(None, told))}"
    failed = replace(report, verdict="failed", cause="clean-copy", summary=summary)
    told_of = replace(
        result,
        output_path=passed.output_path,
        is_mounted=passed.is_mounted,  # these say how the pinned files of the workspace stood
        displaced=passed.displaced,
    )
    return told_of, failed


def _displaced(copy: CleanCopy, result: CommandResult) -> list[str]:
    return [os.path.relpath(path, copy.path) for path in result.displaced]


def _changed(before: dict[bytes, bytes], after: dict[bytes, bytes]) -> tuple[str, ...]:
    names = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return tuple(sorted(name.decode("utf-8", "replace") for name in names))
