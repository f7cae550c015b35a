"""``init --dry-run``: what a mission would pin, and what its validator says today; nothing of ours is written there."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from omx_autoresearch.core.evaluators import SHELL_WORDS
from omx_autoresearch.core.intake import SCRIPT, settled
from omx_autoresearch.core.mission import Contract
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.runtime.contracts import compile_contract, undeclared_names
from omx_autoresearch.runtime.tryouts import Tryout, try_validator
from omx_autoresearch.storage.pins import check_pins

if TYPE_CHECKING:
    from omx_autoresearch.core.intake import MissionDraft
    from omx_autoresearch.runtime.context import Runtime


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a start would do.

    Attributes:
        contract: as it would be compiled.
        pinned_paths: files that would be frozen.
        guarded_paths: paths at which nothing may appear.
        notes: what was named but is not pinned, and why.
        warnings: what will hardly work: a script that is missing or cannot be executed, an undeclared variable.
        tryout: of the validator; None in review mode.
        changed_by_run: pinned paths that the validator itself changes, so that it could never pass.
    """

    contract: Contract
    pinned_paths: tuple[str, ...]
    guarded_paths: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    tryout: Tryout | None
    changed_by_run: tuple[str, ...] = ()


def dry_run(runtime: Runtime, workspace_path: str, draft: MissionDraft) -> DryRun:
    """Compile a draft and run its validator once, in the environment of every later validation.

    Raises:
        MissionInvalid: the draft cannot stand, or nothing would be pinned.
        WorkspaceFault: the evaluator cannot be pinned.
    """
    draft = settled(draft)
    contract, manifest = compile_contract(runtime, workspace_path=workspace_path, draft=draft)
    tryout = None
    changed: tuple[str, ...] = ()
    if contract.validation_mode == SCRIPT:
        tryout = try_validator(contract, workspace_path)
        check = check_pins(manifest, workspace_path)
        changed = (*check.changed, *check.added)
    return DryRun(
        contract=contract,
        pinned_paths=tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard"),
        guarded_paths=tuple(pin.path for pin in manifest.pins if pin.kind == "absent-guard"),
        notes=manifest.notes,
        warnings=draft_warnings(runtime, workspace_path, draft),
        tryout=tryout,
        changed_by_run=changed,
    )


# --- warnings


def draft_warnings(runtime: Runtime, workspace_path: str, draft: MissionDraft) -> tuple[str, ...]:
    """What of a draft will hardly work as it stands; nothing here refuses it."""
    found = [
        f"env: {name} is not set in your environment, so the validator will not have it"
        for name in undeclared_names(runtime, draft.environment_names)
    ]
    for command in (draft.validator_command, draft.reviewer_command):
        found += command_warnings(runtime, workspace_path, command) if command.strip() else []
    return (*found, *_reviewer_warnings(draft))


def _reviewer_warnings(draft: MissionDraft) -> list[str]:
    """A review that no command can give: who is waited for, and what decides without anybody."""
    is_review = draft.validation_mode != SCRIPT and bool(draft.validator_prompt.strip())
    if not is_review or draft.reviewer_command.strip():
        return []
    others = " or ".join(f"a {who}" for who in draft.reviewed_by if who != "command")
    said = f"no command reviews, so only {others} can decide, and a stop is let go as blocked until then"
    return [f"{said}; --reviewer 'COMMAND' reviews by itself"]


def command_warnings(runtime: Runtime, workspace_path: str, command: str) -> list[str]:
    """Why the program that a command starts, or the script that it hands to one, will not run."""
    from omx_autoresearch.core.evaluators import program_of

    program, script = program_of(command)
    if not program:
        return []
    if "/" not in program:
        return [*_lookup_warnings(runtime, program), *_script_warnings(workspace_path, program, script)]
    path = os.path.join(workspace_path, program)
    if not os.path.exists(path):
        return [f"{program} does not exist in {workspace_path} yet"]
    if os.path.isdir(path):
        return [f"{program} is a folder"]
    if not os.access(path, os.X_OK):
        mode = os.stat(path).st_mode & 0o777
        return [f"{program} may not be executed (mode {mode:04o}): chmod +x {program}"]
    return _shebang_warnings(path, program)


def _lookup_warnings(runtime: Runtime, program: str) -> list[str]:
    if program in SHELL_WORDS or shutil.which(program, path=runtime.environ.get("PATH", os.defpath)):
        return []
    return [f"{program} is not found on your PATH"]


def _script_warnings(workspace_path: str, program: str, script: str) -> list[str]:
    if not script or os.path.exists(os.path.join(workspace_path, script)):
        return []
    return [f"{script}, which {program} shall run, does not exist in {workspace_path} yet"]


def _shebang_warnings(path: str, program: str) -> list[str]:
    try:
        with open(path, "rb") as stream:
            first = stream.readline(256)
    except OSError as error:
        return [f"{program} cannot be read: {error.strerror}"]
    if first.startswith(b"#!"):
        words = first[2:].split()
        interpreter = os.fsdecode(words[0]) if words else ""
        if first.rstrip(b"\n").endswith(b"\r"):
            return [f"{program} has Windows line ends: its first line names no interpreter"]
        if not os.path.exists(interpreter):
            return [f"{program} names the interpreter {interpreter!r}, which does not exist"]
        return []
    is_binary = first[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
    return (
        [] if is_binary else [f"{program} has no `#!` line, so /bin/sh will run it: begin it with #!/bin/sh"]
    )
