"""Compiling a draft into the contract that a mission is held to: what runs, in which environment, with what pinned.

Done once, by ``start`` or ``amend``. From then on the contract in the journal counts; :func:`intake_drift` only tells
which of its source files were edited.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from omx_autoresearch.foundation import json_codec
from omx_autoresearch.foundation.errors import AutoresearchError, MissionInvalid
from omx_autoresearch.foundation.records import dataclass, field, replace, sha256, to_plain
from omx_autoresearch.foundation.text import head_and_tail
from omx_autoresearch.freezing import pins
from omx_autoresearch.freezing.evaluator_commands import SHELL_WORDS, only_reads
from omx_autoresearch.freezing.manifest import FileClasses
from omx_autoresearch.freezing.runners import runner_of
from omx_autoresearch.journal.safe_files import read_bounded
from omx_autoresearch.missions.own_imports import own_imports
from omx_autoresearch.missions.rules.intake import SCRIPT, TAKEN_OVER, limits_of, settled
from omx_autoresearch.missions.rules.mission import OPERATIONS, Contract
from omx_autoresearch.missions.rules.run_reports import is_report
from omx_autoresearch.missions.secrets import (
    WITHHELD,
    forms_of,
    is_secret,
    is_secret_name,
    masked,
    masked_bytes,
    masked_report,
    with_secrets,
)
from omx_autoresearch.missions.validation.named_tests import tests_of
from omx_autoresearch.missions.validation.output import last_object, read_output
from omx_autoresearch.missions.validation.reviewers import credentials_of
from omx_autoresearch.missions.validation.runs import report_of, run_validator, speaks_of_refusal
from omx_autoresearch.system.commands import shell_argv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omx_autoresearch.freezing.listings import End
    from omx_autoresearch.freezing.manifest import PinManifest
    from omx_autoresearch.journal.layout import Runtime
    from omx_autoresearch.missions.rules.intake import MissionDraft
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.rules.run_reports import RunReport
    from omx_autoresearch.system.watching import Watch


# --- Running a contract's validator once, outside any mission: for ``init --dry-run`` and the baseline of ``start``.

OUTPUT_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Tryout:
    """The result of one run of the validator.

    Attributes:
        report: the verdict that the runtime would take from it.
        has_reported: the last line of its output states a verdict.
        exit_status: None where a signal or the clock ended it, or it was never started.
        output: its output, trimmed and made harmless.
        duration_seconds: wall time.
        is_mounted: it saw the frozen copies that it was to see.
        mount_fault: why it could not see them.
        was_refused: its output speaks of a write or a right that the system refused.
        listed: the tests that its runner named, each with its end.
    """

    report: RunReport
    has_reported: bool
    exit_status: int | None
    output: str
    duration_seconds: float
    is_mounted: bool = False
    mount_fault: str = ""
    was_refused: bool = False
    listed: dict[str, End] = field(default_factory=dict)

    def has_same_end(self, other: Tryout) -> bool:
        """Whether two runs said the same, as far as a verdict depends on it."""
        mine, theirs = self.report, other.report
        return (self.exit_status, mine.verdict, mine.tests, mine.tests_passed) == (
            other.exit_status,
            theirs.verdict,
            theirs.tests,
            theirs.tests_passed,
        )


def try_validator(  # noqa: PLR0913  # what a run depends on
    contract: Contract,
    workspace_path: str,
    *,
    isolation: str = "none",
    mounts: tuple[tuple[str, str], ...] = (),
    shown_paths: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> Tryout:
    """Run a contract's validator as every validation runs it; the run leaves nothing behind.

    Args:
        contract: whose validator.
        workspace_path: where it runs.
        isolation: ``none``, or the box that it runs in.
        mounts: the frozen copies that it is to see, where the machine can mount them.
        shown_paths: folders that it can read in any box.
        watch: tells what happens meanwhile.

    Raises:
        CommandFault: it must run in a box, and there is none.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="omx-autoresearch-", ignore_cleanup_errors=True) as folder:
        argv, output_path = shell_argv(contract.validator_command), os.path.join(folder, "output")
        scratch_path = os.path.join(folder, "scratch")
        result = run_validator(
            argv,
            contract,
            workspace_path,
            output_path,
            scratch_path,
            isolation=isolation,
            mounts=mounts,
            shown_paths=shown_paths,
            watch=watch,
        )
        forms = forms_of(_secrets_in(contract))
        output = masked_bytes(read_output(result), forms)
        report = report_of(contract, workspace_path, result)
        has_reported = is_report(last_object(result)[0])
        listed = {masked(name, forms): end for name, end in tests_of(contract, result).items()}
    return Tryout(
        report=masked_report(report, forms),
        has_reported=has_reported,
        exit_status=result.exit_status if result.outcome == "exited" else None,
        output=head_and_tail(output, OUTPUT_CHARACTERS),
        duration_seconds=result.duration_seconds,
        is_mounted=result.is_mounted,
        mount_fault=result.mount_fault,
        was_refused=speaks_of_refusal(output),
        listed=listed,
    )


KEPT_NAMES = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ",
    "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOROOT", "JAVA_HOME",
)  # fmt: skip
"""Variables by which programs find themselves, their libraries and their user; taken without being declared."""
KEPT_PREFIXES = ("CONDA_", "CUDA_")
_SCRIPT_BYTES = 256 * 1024
_INTAKE_BYTES = 1024 * 1024


def compile_contract(
    runtime: Runtime, *, workspace_path: str, draft: MissionDraft, files: Sequence[str] = ()
) -> tuple[Contract, PinManifest]:
    """Return the contract of a draft and the manifest of what it pins; nothing is written.

    ``files`` are those of the project, where the caller has listed them already.

    The baseline (tests, score) is not in it: it comes from a run, which belongs to ``start``.

    Raises:
        MissionInvalid: the draft cannot stand, or a validator would have no pinned file and no reason is given.
        WorkspaceFault: too much to pin, or an evaluator file cannot be read.
    """
    from omx_autoresearch.freezing import discovery
    from omx_autoresearch.freezing.import_path import python_folders
    from omx_autoresearch.missions.intake import require_valid

    draft = settled(draft)
    require_valid(draft, next_step="fix sandbox.md or mission.md, or run init again")
    commands = [command for command in (draft.validator_command, draft.reviewer_command) if command]
    rules = [criterion.rule for criterion in draft.criteria]
    runner = _runner(workspace_path, draft.validator_command)
    environment = captured_environment(runtime, draft.environment_names)
    folders, foreign, install_notes = own_imports(environment, workspace_path, draft)
    own = [os.path.join(workspace_path, folder) for folder in folders]
    search = os.pathsep.join([*own, environment.get("PYTHONPATH", "")])
    manifest = discovery.find(
        workspace_path,
        commands=[*commands, *(shlex.join(rule.argv) for rule in rules if rule.argv)],
        protect=draft.protect,
        work=draft.work,
        runner=runner,
        exempt=(draft.output_artifact_path, *(rule.path for rule in rules)),
        search_path=environment.get("PATH", ""),
        python_folders=python_folders(search, workspace_path),
        files=files,
        goal=draft.goal,
        is_told_by_git=True,
    )
    _refuse_unfrozen(workspace_path, draft, manifest)
    manifest = replace(
        manifest, notes=(*manifest.notes, *install_notes, *_unfrozen_criteria(workspace_path, draft))
    )
    contract = Contract(
        **{name: getattr(draft, name) for name in TAKEN_OVER}
        | {"timeout_seconds": float(draft.timeout_seconds)},
        environment=_without_secrets(runtime, declared_names(draft)),
        pin_digest=manifest.digest,
        pinned_count=manifest.frozen_count,
        runner=runner,
        import_folders=folders,
        foreign_install=foreign,
        has_pytest_report=_may_report(workspace_path, draft.validator_command, runner),
        forbidden=tuple(name for name in OPERATIONS if name in draft.forbid),
        limits=limits_of(draft),
        intake_digests=dict(draft.intake_digests),
    )
    return contract, manifest


def _refuse_unfrozen(workspace_path: str, draft: MissionDraft, manifest: PinManifest) -> None:
    """Refuse a command without a single pinned file: the agent may rewrite what judges it.

    What only a criterion's command names freezes nothing of the validator. A command that only reads text is itself
    the whole check, and the contract has it. Where no command judges, a person does.
    """
    command = draft.validator_command or draft.reviewer_command
    if not command or draft.unfrozen_reason or only_reads(command):
        return
    is_shared = any(criterion.rule.argv for criterion in draft.criteria)
    own = _pins_of(workspace_path, draft, command) if is_shared else manifest
    if own.judging_count:
        return
    what = "validator" if draft.validator_command else "reviewer"
    told = "".join(f"\n  - {note}" for note in manifest.notes)
    if absent := _absent_file(workspace_path, command):
        raise MissionInvalid(
            f"{absent}, which the {what} `{command}` names, is not in {workspace_path}, so nothing"
            f" could be frozen{told}",
            next_step=f"create {absent}, or give the check's path as seen from {workspace_path}",
        )
    raise MissionInvalid(
        f"no file of the {what} `{command}` is in the workspace, so nothing could be frozen"
        f" and an agent could change what judges it{told}",
        next_step="name the check's files with --protect GLOB, or accept the risk: --unfrozen --reason 'WHY'",
    )


def _absent_file(workspace_path: str, command: str) -> str:
    """The program or script of the workspace that a command starts with and that is not there; empty otherwise."""
    from omx_autoresearch.freezing.evaluator_commands import program_of

    program, script = program_of(command)
    path = script or program
    is_absent = "/" in path or bool(script)
    return path if is_absent and not os.path.lexists(os.path.join(workspace_path, path)) else ""


def _unfrozen_criteria(workspace_path: str, draft: MissionDraft) -> list[str]:
    """Notes for the owner: commands of criteria that use no frozen file."""
    return [
        f"criterion {criterion.id}: no file of `{criterion.rule}` could be frozen, so an agent could change what"
        " judges it (--protect GLOB)"
        for criterion in draft.criteria
        if criterion.rule.argv
        and not only_reads(shlex.join(criterion.rule.argv))
        and not _pins_of(workspace_path, draft, shlex.join(criterion.rule.argv)).judging_count
    ]


def _pins_of(workspace_path: str, draft: MissionDraft, command: str) -> PinManifest:
    from omx_autoresearch.freezing import discovery

    runner = _runner(workspace_path, command)
    return discovery.find(
        workspace_path, commands=[command], protect=draft.protect, work=draft.work, runner=runner
    )


def _runner(workspace_path: str, command: str) -> str:
    """The known runner that a command calls itself, or that a short script which it names calls."""
    from omx_autoresearch.freezing import discovery

    if not command or (found := runner_of(command)):
        return found if command else ""
    for path in discovery.named_files(workspace_path, command):
        try:
            text = read_bounded(os.path.join(workspace_path, path), _SCRIPT_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError, AutoresearchError):
            continue
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        if found := runner_of("\n".join(lines)):
            return found
    return ""


_CALL_PYTEST = ("pytest", "make", "npm")
_PYTEST_SETTINGS = (
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
    "Makefile",
)


def _may_report(workspace_path: str, command: str, runner: str) -> bool:
    """Whether a pytest that the command calls may be asked for its report: not where the project has a use for it."""
    from omx_autoresearch.freezing import discovery

    if runner not in _CALL_PYTEST:
        return False
    texts = [command]
    for path in (*_PYTEST_SETTINGS, *discovery.named_files(workspace_path, command)):
        try:
            texts.append(
                read_bounded(os.path.join(workspace_path, path), _SCRIPT_BYTES).decode("utf-8", "replace")
            )
        except (OSError, AutoresearchError):
            continue
    return not any("junit" in text for text in texts)


# --- the owner's environment


def declared_names(draft: MissionDraft) -> tuple[str, ...]:
    """The variables that a draft declares, and those by which the agent CLI that it names as reviewer logs in."""
    return (*draft.environment_names, *credentials_of(draft.reviewer_command))


def captured_environment(runtime: Runtime, declared: Sequence[str]) -> dict[str, str]:
    """The environment that validators get: the owner's at this moment, as far as it is needed or declared.

    Marks of agents and secrets are left out unless they are declared; values that are not UTF-8 cannot be kept.
    """
    environ = runtime.environ
    kept = {name for name in environ if _is_kept(name)}
    kept = {name for name in kept if name not in runtime.shell_marks and not is_secret_name(name)}
    return _clean(environ, kept | {name for name in declared if name in environ})


def captured_secrets(runtime: Runtime, declared: Sequence[str]) -> dict[str, str]:
    """The declared variables of the owner's environment that are secrets."""
    captured = captured_environment(runtime, declared)
    return {name: captured[name] for name in declared if name in captured and is_secret(name, captured[name])}


def _secrets_in(contract: Contract) -> list[str]:
    """The secrets of a contract that has them for a run."""
    return [
        value for name, value in contract.environment.items() if not _is_kept(name) and is_secret(name, value)
    ]


def _is_kept(name: str) -> bool:
    return name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)


def _without_secrets(runtime: Runtime, declared: Sequence[str]) -> dict[str, str]:
    captured = captured_environment(runtime, declared)
    return captured | dict.fromkeys(captured_secrets(runtime, declared), WITHHELD)


def _clean(environ: Mapping[str, str], names: set[str]) -> dict[str, str]:
    found = {name: json_codec.without_surrogates(environ[name]) for name in sorted(names)}
    # A relative or empty folder means the workspace, where the agent could put its own programs.
    if "PATH" in found:
        found["PATH"] = ":".join(folder for folder in found["PATH"].split(":") if os.path.isabs(folder))
    return {name: value for name, value in found.items() if "\ufffd" not in value or name == "PATH"}


# --- digests


def contract_digest(contract: Contract) -> str:
    """The sha256 of a contract's canonical JSON without its limits, which change nothing of what is run."""
    import json

    plain = to_plain(contract)
    del plain["limits"]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return sha256(text.encode("ascii")).hexdigest()


def intake_drift(mission: Mission) -> tuple[str, ...]:
    """Names of intake files that are no longer what the contract was compiled from (edited, removed, unreadable)."""
    if mission.contract is None:
        return ()
    folder_path = os.path.join(mission.project_path, mission.specs_path)
    return tuple(
        name
        for name, digest in sorted(mission.contract.intake_digests.items())
        if _digest_of(os.path.join(folder_path, os.path.basename(name))) != digest
    )


def _digest_of(path: str) -> str:
    try:
        return sha256(read_bounded(path, _INTAKE_BYTES)).hexdigest()
    except (OSError, AutoresearchError):
        return ""


# --- ``init --dry-run``: what a mission would pin, and what its validator says today; nothing is written there.


@dataclass(frozen=True, slots=True)
class DryRun:
    """The effect that a start would have.

    Attributes:
        contract: as it would be compiled.
        pinned_paths: files that would be frozen.
        guarded_paths: paths at which nothing may appear.
        notes: what was named but is not pinned, and why.
        warnings: what will hardly work: a script that is missing or cannot be executed, an undeclared variable.
        tryout: of the validator; None in review mode.
        changed_by_run: pinned paths that the validator itself changes, so that it could never pass.
        classes: the project's files by what the mission would do with them.
        proposed_work: globs for ``--work`` by the shape of the project, where the owner named none.
    """

    contract: Contract
    pinned_paths: tuple[str, ...]
    guarded_paths: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    tryout: Tryout | None
    changed_by_run: tuple[str, ...] = ()
    classes: FileClasses = FileClasses()
    proposed_work: tuple[str, ...] = ()


def dry_run(runtime: Runtime, workspace_path: str, draft: MissionDraft) -> DryRun:
    """Compile a draft and run its validator once, in the environment of every later validation.

    Raises:
        MissionInvalid: the draft cannot stand, or nothing would be pinned.
        WorkspaceFault: the evaluator cannot be pinned.
    """
    from omx_autoresearch.freezing.discovery import with_opened
    from omx_autoresearch.freezing.opened import Opened
    from omx_autoresearch.freezing.work import Work, classes_of, project_files, proposed_work
    from omx_autoresearch.system.watching import Watch

    draft = settled(draft)
    files = project_files(workspace_path)
    contract, manifest = compile_contract(runtime, workspace_path=workspace_path, draft=draft, files=files)
    tryout = None
    changed: tuple[str, ...] = ()
    if contract.validation_mode == SCRIPT:
        secrets = captured_secrets(runtime, declared_names(draft))
        watch = Watch()
        opened = Opened(watch, workspace_path, files)
        tryout = try_validator(with_secrets(contract, secrets), workspace_path, watch=watch)
        manifest = with_opened(manifest, workspace_path, opened.paths(), work=draft.work, files=files)
        watch.close()
        check = pins.compare(manifest, workspace_path)
        changed = (*check.changed, *check.added)
    return DryRun(
        contract=contract,
        pinned_paths=tuple(pin.path for pin in manifest.pins if pin.kind != "absent-guard"),
        guarded_paths=tuple(pin.path for pin in manifest.pins if pin.kind == "absent-guard"),
        notes=manifest.notes,
        warnings=draft_warnings(runtime, workspace_path, draft),
        tryout=tryout,
        changed_by_run=changed,
        classes=classes_of(files, Work(draft.work), manifest),
        proposed_work=() if draft.work else proposed_work(files, manifest.runners),
    )


# --- warnings


def draft_warnings(runtime: Runtime, workspace_path: str, draft: MissionDraft) -> tuple[str, ...]:
    """Parts of a draft that will probably not work; none of them refuses it."""
    found = [
        f"env: {name} is not set in your environment, so the validator will not have it"
        for name in draft.environment_names
        if name not in runtime.environ
    ]
    for command in (draft.validator_command, draft.reviewer_command):
        found += command_warnings(runtime, workspace_path, command) if command.strip() else []
    return (*found, *_reviewer_warnings(draft))


def _reviewer_warnings(draft: MissionDraft) -> list[str]:
    """A warning that no command can give the review."""
    is_review = draft.validation_mode != SCRIPT and bool(draft.validator_prompt.strip())
    if not is_review or draft.reviewer_command.strip():
        return []
    others = " or ".join(f"a {who}" for who in draft.reviewed_by if who != "command")
    until = "until then a stop blocks the mission and lets the agent go"
    hint = "--reviewer 'COMMAND' adds a reviewer command"
    return [f"there is no reviewer command, so only {others} can decide; {until}; {hint}"]


def command_warnings(runtime: Runtime, workspace_path: str, command: str) -> list[str]:
    """The reasons why the program of a command, or its script, will not run."""
    from omx_autoresearch.freezing.evaluator_commands import program_of

    program, script = program_of(command)
    if not program:
        return []
    if "/" not in program:
        return _lookup_warnings(runtime, workspace_path, program, script)
    path = os.path.join(workspace_path, program)
    if not os.path.exists(path):
        return [f"{program} does not exist in {workspace_path} yet"]
    if os.path.isdir(path):
        return [f"{program} is a folder"]
    if not os.access(path, os.X_OK):
        mode = os.stat(path).st_mode & 0o777
        return [f"{program} is not executable (mode {mode:04o}): chmod +x {program}"]
    return _shebang_warnings(path, program)


def _lookup_warnings(runtime: Runtime, workspace_path: str, program: str, script: str) -> list[str]:
    import shutil

    found = []
    if program not in SHELL_WORDS and not shutil.which(program, path=runtime.environ.get("PATH", os.defpath)):
        found.append(f"{program} is not found on your PATH")
    if script and not os.path.exists(os.path.join(workspace_path, script)):
        found.append(f"{script}, which {program} should run, does not exist in {workspace_path} yet")
    return found


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
            return [f"{program} has Windows line ends, so its first line names no interpreter"]
        if not os.path.exists(interpreter):
            return [f"{program} names the interpreter {interpreter!r}, which does not exist"]
        return []
    is_binary = first[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
    return [] if is_binary else [f"{program} has no `#!` line; make #!/bin/sh its first line"]
