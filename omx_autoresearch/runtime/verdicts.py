"""What an ended run of the contract's command proves: exit status, last line, and why it could not even be started."""

from __future__ import annotations

import os

from omx_autoresearch.core.evidence import RunReport, report_of_run
from omx_autoresearch.storage import strictjson
from omx_autoresearch.system.commands import explain_shell_status
from omx_autoresearch.system.sandbox import bubblewrap_fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from omx_autoresearch.core.mission import Contract
    from omx_autoresearch.system.commands import CommandResult


def report_of(
    contract: Contract, workspace_path: str, result: CommandResult, output: bytes, nonce: str
) -> RunReport:
    """What an ended run of the contract's command proves; ``nonce`` is the reviewer's, empty for a validator."""
    if result.outcome == "not_started":
        return RunReport("error", "not-started", result.error)
    if result.outcome == "timed_out":
        return RunReport("error", "timed-out", f"ended after its limit of {contract.timeout_seconds:g} s")
    unsandboxed = bubblewrap_fault(result)
    if unsandboxed:
        return RunReport("error", "sandbox-failed", unsandboxed)
    if result.exit_status in (126, 127):
        return _unstartable(contract, workspace_path, result.exit_status)
    last, fault = last_object(output)
    if contract.validation_mode == "prompt-architect-artifact":
        from omx_autoresearch.runtime.reviews import report_of_review

        return report_of_review(result.exit_status, last, fault, nonce)
    return report_of_run(
        result.exit_status,
        output.decode("utf-8", "replace"),
        last_object=last,
        fault=fault,
        contract=contract,
    )


def _unstartable(contract: Contract, workspace_path: str, exit_status: int) -> RunReport:
    """The shell could not run a program of the command: ``not-started`` where only the owner can mend it.

    What the agent may still build (a program inside the workspace, one that a running script asked for) is
    ``program-missing``.
    """
    command = contract.validator_command or contract.reviewer_command
    is_owners = _is_for_the_owner(command, workspace_path, contract.environment.get("PATH", os.defpath))
    why = explain_shell_status(command, exit_status, workspace_path)
    return RunReport("error", "not-started" if is_owners else "program-missing", why)


def _is_for_the_owner(command: str, workspace_path: str, search_path: str) -> bool:
    from omx_autoresearch.core.evaluators import SHELL_WORDS, program_of

    program = program_of(command)[0]
    if not program or program in SHELL_WORDS:
        return False
    if "/" not in program:
        import shutil

        return shutil.which(program, path=search_path) is None
    path = os.path.join(workspace_path, program)
    if os.path.lexists(path):
        from omx_autoresearch.system.starting import shebang

        return not os.access(path, os.X_OK) or not os.access(shebang(path) or path, os.X_OK)
    inside = os.path.realpath(workspace_path) + os.sep
    return not os.path.realpath(path).startswith(inside)


def last_object(output: bytes) -> tuple[dict[str, object] | None, str]:
    """The JSON object on the last non-empty line, and why a line that begins like one cannot be read."""
    lines = output.rstrip().rsplit(b"\n", 1)
    line = lines[-1].strip()
    if not line.startswith(b"{"):
        return None, ""
    try:
        value = strictjson.decode(line)
    except ValueError as error:
        return None, str(error)
    return (value, "") if isinstance(value, dict) else (None, "it is no object")
