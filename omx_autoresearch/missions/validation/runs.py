"""Running the validator or the reviewer: by the runtime, in the workspace, attested, never twice at once.

A run is conducted by a forked child of its own session (no second interpreter has to start), which looks, runs, looks
again and records what it saw. The caller waits as long as it may; a slower run goes on by itself and the mission
knows of it (``running_validation``). No lock is held while a command runs.
"""

from __future__ import annotations

import os
import time

from omx_autoresearch.foundation.errors import (
    AutoresearchError,
    StateUntrusted,
)
from omx_autoresearch.foundation.records import dataclass, replace, sha256, to_plain
from omx_autoresearch.foundation.text import head_and_tail
from omx_autoresearch.missions import secrets
from omx_autoresearch.missions.claims import write_changed
from omx_autoresearch.missions.records.work import ValidationFinished, ValidationLost, ValidationStarted
from omx_autoresearch.missions.rules.evidence import has_moved, is_passing
from omx_autoresearch.missions.rules.mission import (
    FINAL_PHASES,
    Attestation,
    Contract,
    RunningValidation,
)
from omx_autoresearch.missions.rules.run_reports import RunReport, normalized_output, report_of_run
from omx_autoresearch.missions.store import MissionStore
from omx_autoresearch.missions.validation.approvals import is_approved, mission_key
from omx_autoresearch.missions.validation.output import (
    last_object,
    line_words_of,
    read_output,
    runner_output,
)
from omx_autoresearch.missions.workspace import PinnedRun, begins_light, snapshot_workspace
from omx_autoresearch.system.commands import (
    CommandResult,
    end_commands_of,
    explain_shell_status,
    fork_detached,
    shell_argv,
)
from omx_autoresearch.system.git import find_root
from omx_autoresearch.system.processes import ProcessIdentity, identify, is_alive, wait_for
from omx_autoresearch.system.sandbox import Limits, box, can_isolate, no_box, run_limited

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from omx_autoresearch.journal.layout import MissionFolder, Runtime
    from omx_autoresearch.missions.rules.criteria import WorkspaceSnapshot
    from omx_autoresearch.missions.rules.mission import Mission
    from omx_autoresearch.missions.store import Transaction
    from omx_autoresearch.system.watching import Watch

    Waits = Callable[[Callable[[float], bool], float], bool]
    """Waits for so many seconds by a function that takes seconds and tells whether the end has come."""

# --- The verdict on a run of the contract's command: from its exit status, its last line, or why it did not start.


def report_of(contract: Contract, workspace_path: str, result: CommandResult, nonce: str = "") -> RunReport:
    """The verdict on a run of the contract's command that ended; ``nonce`` is empty for a validator."""
    if result.outcome == "not_started":
        return RunReport("error", "not-started", result.error)
    if result.outcome == "timed_out":
        return RunReport("error", "timed-out", f"ended after its limit of {contract.timeout_seconds:g} s")
    if result.box_fault:
        return RunReport("error", "sandbox-failed", result.box_fault)
    if result.exit_status in (126, 127):
        return _unstartable(contract, workspace_path, result.exit_status)
    if contract.is_review:
        from omx_autoresearch.missions.validation.reviewers import report_of_reviewer

        return report_of_reviewer(result, read_output(result), nonce)
    last, fault = last_object(result)
    return report_of_run(
        result.exit_status,
        runner_output(result, contract.runner) if contract.runner else "",
        last_object=last,
        fault=fault,
        contract=contract,
    )


def _unstartable(contract: Contract, workspace_path: str, exit_status: int) -> RunReport:
    """The shell could not run a program of the command: ``not-started`` where only the owner can fix it.

    What the agent may still build (a program inside the workspace, one that a running script asked for) is
    ``program-missing``.
    """
    command = contract.validator_command or contract.reviewer_command
    is_owners = _is_for_the_owner(command, workspace_path, contract.environment.get("PATH", os.defpath))
    why = explain_shell_status(command, exit_status, workspace_path)
    return RunReport("error", "not-started" if is_owners else "program-missing", why)


def _is_for_the_owner(command: str, workspace_path: str, search_path: str) -> bool:
    from omx_autoresearch.freezing.evaluator_commands import SHELL_WORDS, program_of

    program = program_of(command)[0]
    if not program or program in SHELL_WORDS:
        return False
    if "/" not in program:
        import shutil

        return shutil.which(program, path=search_path) is None
    path = os.path.join(workspace_path, program)
    if os.path.lexists(path):
        from omx_autoresearch.system.supervisor import shebang

        return not os.access(path, os.X_OK) or not os.access(shebang(path) or path, os.X_OK)
    inside = os.path.realpath(workspace_path) + os.sep
    return not os.path.realpath(path).startswith(inside)


REPORT_NAME = "tests.xml"
"""The pipe in the scratch folder to which pytest reports its tests by name."""
REUSED_FROM_SECONDS = 1.0
"""A failure of a run that took at least this long is reused while nothing moved; a shorter one is run anew."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether a mission's commands may run now: the isolation, or the reason against it and the owner's command."""

    isolation: str = "none"
    why: str = ""
    command: str = ""

    @property
    def may_run(self) -> bool:
        """False when only the owner can let them run."""
        return not self.why


def permission(runtime: Runtime, mission: Mission, *, is_sandboxed: bool = False) -> Permission:
    """Whether the commands of the contract may run, and how isolated.

    Approved ones run as the owner. Without an approval of exactly this contract and these pins, and always for a
    client in a sandbox unless the owner approved that too, they run with no wider rights than the agent has. (Beside
    changed pins nothing runs at all, approved or not.)
    """
    approval = is_approved(runtime.home, mission_key(mission))
    is_free = approval is not None and (approval.is_unsandboxed or not is_sandboxed)
    forbidden = mission.contract.forbidden if mission.contract else ()
    narrowed = [name for name in forbidden if name != "publish"]
    if is_free and not narrowed:
        return Permission()
    if can_isolate():
        return Permission("none" if is_free else box().backend)
    if is_free:
        why = f"the mission forbids {' and '.join(narrowed)}, and {no_box()}"
        allow = " ".join(f"--allow {name}" for name in narrowed)
        cure = f"omx-autoresearch amend {mission.task_id} {allow} --reason '...'"
        return Permission(why=why, command=cure)
    why = "the client is sandboxed" if approval else "the owner has not approved the contract's commands"
    return Permission(
        why=f"{why}, and {no_box()}",
        command=f"omx-autoresearch approve {mission.task_id}{' --unsandboxed' if is_sandboxed else ''}",
    )


def is_narrowed(contract: Contract) -> bool:
    """The contract takes rights away that only a sandbox can take, approved or not."""
    return "network" in contract.forbidden or "write" in contract.forbidden


@dataclass(frozen=True, slots=True)
class Ask:
    """The order for a run.

    Attributes:
        isolation: of the run.
        look: taken a moment ago by the caller; None: the run looks itself.
        since: when the caller began, ISO 8601 UTC; a run of that workspace that began later is taken instead of
            a new one. Empty: always run.
        runs_command: run the contract's command; False to call ``then`` alone.
        is_whole: compare every pinned file from the start, however many there are.
        then: called after a pass, without a lock, to check the criteria; its result records the outcome.
    """

    isolation: str
    look: WorkspaceSnapshot | None = None
    since: str = ""
    runs_command: bool = True
    is_whole: bool = False
    then: Callable[[Mission, str], Callable[[Transaction], None]] | None = None


ANNOUNCE_SECONDS = 2.0
"""A caller that does not wait for a run waits this long for the record of its start; usually a few ms."""


def wait_here(wait: Callable[[float], bool], seconds: float) -> bool:
    """Wait for at most so many seconds."""
    return wait(seconds)


def validate(
    runtime: Runtime, task_id: str, ask: Ask, *, wait_seconds: float, waits: Waits = wait_here
) -> bool:
    """Run the validator (or reviewer) of a mission, or join the run that is under way; ``waits`` does the waiting.

    Returns:
        True when the run has ended within ``wait_seconds``; its attestation is in the mission. False: it goes on.

    Raises:
        CommandFault: no process could be started.
    """
    deadline = time.monotonic() + wait_seconds
    running = running_validation(runtime, MissionStore(runtime.home).load(task_id))
    if running is None:
        child = fork_detached(lambda: _conduct_apart(runtime, task_id, ask))
        has_ended = waits(child.wait, wait_seconds)
        announced_by = time.monotonic() + ANNOUNCE_SECONDS
        while not has_ended and MissionStore(runtime.home).load(task_id).running_validation is None:
            if time.monotonic() > announced_by:
                break
            has_ended = child.wait(0.01)  # so that the next caller finds the run under way
        if not has_ended:
            child.leave()
            return False
        running = running_validation(runtime, MissionStore(runtime.home).load(task_id))
    left_seconds = deadline - time.monotonic()
    return running is None or waits(lambda seconds: wait_for(running, seconds), left_seconds)


def running_validation(runtime: Runtime, mission: Mission) -> ProcessIdentity | None:
    """The supervisor of the run under way; without one the run is recorded as lost, and what is left of it is ended."""
    run = mission.running_validation
    if run is None or is_under_way(run):
        return ProcessIdentity(run.pid, run.pid_started) if run else None
    end_commands_of(ProcessIdentity(run.pid, run.pid_started))
    with MissionStore(runtime.home).transaction(mission.task_id, runtime.now()) as transaction:
        newest = transaction.mission.running_validation
        if newest is not None and newest.run_id == run.run_id:
            transaction.record(ValidationLost(run.run_id))
    return None


def is_under_way(run: RunningValidation) -> bool:
    """True while the supervisor of a run lives; without it the run ended and left no verdict."""
    return is_alive(ProcessIdentity(run.pid, run.pid_started))


def _conduct_apart(runtime: Runtime, task_id: str, ask: Ask) -> None:
    """Conduct a run in a child, which may outlive its caller."""
    conduct(runtime, task_id, ask)
    write_changed(runtime)


def conduct(runtime: Runtime, task_id: str, ask: Ask) -> None:
    """Conduct one run from start to record; a fault on our side becomes an ``error`` verdict."""
    store = MissionStore(runtime.home)
    run_id = f"r-{runtime.new_id()}"
    started_at = runtime.now()
    me = identify(os.getpid())
    ask = _looked(runtime, store.load(task_id), ask)
    with store.transaction(task_id, started_at) as transaction:
        mission = transaction.mission
        if mission.phase in FINAL_PHASES:
            return
        if _is_answered(mission, ask) or _is_settled(mission, ask):
            return
        other = mission.running_validation
        if other is not None and is_under_way(other):
            return
        tree_digest = ask.look.tree_digest if ask.look else ""
        started = me.started if me else ""
        transaction.announce(
            ValidationStarted(
                RunningValidation(run_id, os.getpid(), started, started_at, tree_digest),
                is_review=_calls_reviewer(mission, ask),
            )
        )
    run = None
    if ask.runs_command:
        run = _attested_or_error(runtime, mission, run_id, ask, started_at)
    record_rest = None
    if ask.then is not None and (run is None or run.verdict == "passed"):
        try:
            record_rest = ask.then(replace(mission, attestation=run or mission.attestation), run_id)
        except (AutoresearchError, OSError):
            record_rest = None  # what was asked for stays open
    with store.transaction(task_id, runtime.now()) as transaction:
        if run is not None or record_rest is None:
            transaction.record(ValidationFinished(run) if run else ValidationLost(run_id))
        if record_rest is not None:
            record_rest(transaction)
        from omx_autoresearch.missions.upkeep import bound_outputs

        bound_outputs(runtime.home.mission(task_id), transaction.mission)


def _is_answered(mission: Mission, ask: Ask) -> bool:
    """True when another process ran meanwhile what is asked for: one stop, seen twice, runs the validator once."""
    run, look = mission.attestation, ask.look
    return (
        run is not None
        and look is not None
        and bool(ask.since)
        and run.started_at > ask.since
        and run.contract_digest == mission.contract_digest
        and (run.head, run.tree_digest, run.pin_digest) == (look.head, look.tree_digest, look.pin_digest)
        and run.output_artifact_digest == look.output_artifact_digest
    )


def _attested_or_error(
    runtime: Runtime, mission: Mission, run_id: str, ask: Ask, started_at: str
) -> Attestation:
    """The attestation of the run; of a reviewed artifact the content is kept, for the person who reviews the next."""
    try:
        run = _attested(runtime, mission, run_id, ask, started_at)
    except (AutoresearchError, OSError) as error:
        why = error.message if isinstance(error, AutoresearchError) else str(error)
        report = RunReport("error", "runtime-fault", why)
        return attestation_of(mission, run_id, (started_at, runtime.now()), report)
    if ask.look is not None and _calls_reviewer(mission, ask) and run.verdict in ("passed", "failed"):
        from omx_autoresearch.missions.validation.exhibits import keep_reviewed

        keep_reviewed(runtime.home.mission(mission.task_id), mission, ask.look)
    return run


def _calls_reviewer(mission: Mission, ask: Ask) -> bool:
    return ask.runs_command and mission.contract is not None and mission.contract.is_review


def _looked(runtime: Runtime, mission: Mission, ask: Ask) -> Ask:
    """The order with a look, where the reviewer would be called: that depends on the artifact."""
    if ask.look is not None or not _calls_reviewer(mission, ask):
        return ask
    return replace(ask, look=snapshot_workspace(runtime.home.mission(mission.task_id), mission))


def _is_settled(mission: Mission, ask: Ask) -> bool:
    """True when the reviewer would be called and is not: this content has its verdict, or no review is left."""
    if ask.look is None or not _calls_reviewer(mission, ask):
        return False
    from omx_autoresearch.missions.rules.reviews import are_reviews_spent, rejection_of

    has_verdict = rejection_of(mission, ask.look) is not None or is_passing(mission, ask.look)
    return has_verdict or are_reviews_spent(mission)


def _attested(runtime: Runtime, mission: Mission, run_id: str, ask: Ask, started_at: str) -> Attestation:
    contract = mission.contract
    if contract is None:
        raise StateUntrusted(f"mission {mission.task_id} has no contract")
    folder = runtime.home.mission(mission.task_id)
    before = ask.look or snapshot_workspace(folder, mission)
    pins = PinnedRun(folder, mission, contract, is_light=not ask.is_whole and begins_light(mission, contract))
    if changed := before.changed_pins or pins.changed:
        return _tampered(mission, run_id, (started_at, runtime.now()), changed)
    output_path = folder.output_path(run_id)
    filled, forms = secrets.for_run(folder, contract)

    def run(argv: tuple[str, ...], path: str, **more: Any) -> CommandResult:
        return run_validator(
            argv,
            filled,
            path,
            output_path,
            os.path.join(folder.root_path, "scratch", run_id),
            isolation=ask.isolation,
            hidden_paths=runtime.home.record_paths,
            watch=pins.watch,
            **more,
        )

    if contract.is_review:
        from omx_autoresearch.missions.validation.reviewers import reviewed

        result, report = reviewed(
            runtime,
            mission,
            contract,
            copies=pins.whole_copies(),
            expected_digest=before.output_artifact_digest,
            run=lambda argv, path: run(argv, path, shown_paths=(os.path.dirname(path),)),
            judge=lambda path, ended, nonce: report_of(contract, path, ended, nonce),
        )
    else:
        result, report = _validated(runtime, mission, filled, pins, run, ask.isolation)
    if pins.is_light and report.verdict == "passed":
        pins.close()
        return _attested(runtime, mission, run_id, replace(ask, is_whole=True), started_at)
    output = read_output(result)
    report, output = secrets.masked_report(report, forms), secrets.masked_output(output, output_path, forms)
    has_passed = report.verdict == "passed"
    if changed := pins.changes(result, has_passed=has_passed):
        cause = "pins-changed" if pins.has_stayed_changed else "pins-moved"
        return _tampered(mission, run_id, (started_at, runtime.now()), changed, cause)
    if has_passed and pins.unseen:
        report = replace(report, summary=f"{report.summary}; {pins.unseen}")
    report = replace(
        report, summary=head_and_tail(report.summary.encode("utf-8", "replace"), 500).replace("\n", " ")
    )
    if result.isolation.backend != "none":
        from omx_autoresearch.missions.validation.newcomers import judged

        report = judged(report, result, mission.workspace_path, run_id)
    if report.verdict == "tampered":
        return attestation_of(mission, run_id, (started_at, runtime.now()), report)
    # A quick failure is run anew at the next stop, which costs less than the look that would let it be reused.
    is_worth_knowing = has_passed or result.duration_seconds >= REUSED_FROM_SECONDS
    is_fresh = is_worth_knowing and not has_moved(
        before, snapshot_workspace(folder, mission, reads_files=has_passed), mission
    )
    return replace(
        attestation_of(mission, run_id, (started_at, runtime.now()), report, before, is_fresh=is_fresh),
        exit_status=result.exit_status if result.outcome == "exited" else None,
        output_digest=sha256(output).hexdigest(),
        output_mark=sha256(normalized_output(output.decode("utf-8", "replace")).encode()).hexdigest()[:16],
        isolation=result.isolation.backend,
        duration_seconds=round(result.duration_seconds, 3),
        leaked=result.leaked,
        is_mounted=result.is_mounted,
        imports_from=contract.foreign_install or (mission.workspace_path if contract.import_folders else ""),
    )


def _validated(  # noqa: PLR0913, PLR0917  # what a run depends on
    runtime: Runtime,
    mission: Mission,
    contract: Contract,
    pins: PinnedRun,
    run: Callable[..., CommandResult],
    isolation: str,
) -> tuple[CommandResult, RunReport]:
    """A run of the validator, and one more in a clean copy where the contract wants that."""
    with pins.in_place():
        result = run(shell_argv(contract.validator_command), mission.workspace_path, mounts=pins.mounts)
    judge = _judge(runtime.home.mission(mission.task_id), mission, contract)
    report = judge(mission.workspace_path, result)
    if result.is_mounted and report.verdict == "failed" and speaks_of_refusal(read_output(result)):
        report = replace(report, summary=f"{report.summary}; {_MAY_BE_MOUNT.format(task=mission.task_id)}")
    if report.verdict != "passed" or not contract.confirm or pins.is_light:
        return result, report
    from omx_autoresearch.missions.validation.confirming import confirmed

    failed = confirmed(
        contract,
        pins,
        result,
        run=run_validator,
        judge=judge,
        isolation=isolation,
        hidden_paths=runtime.home.record_paths,
    )
    return failed or (result, report)


def _judge(
    folder: MissionFolder, mission: Mission, contract: Contract
) -> Callable[[str, CommandResult], RunReport]:
    """What gives the report on a run of the validator in a folder, the names of its tests included."""

    def judge(path: str, result: CommandResult) -> RunReport:
        report = report_of(contract, path, result)
        if report.verdict != "passed" or not contract.named_tests_digest:
            return report
        from omx_autoresearch.missions.validation.named_tests import held_to_names

        return held_to_names(report, folder, contract, result, mission.task_id)

    return judge


def _remove_scratch(scratch_path: str) -> None:
    try:
        os.rmdir(os.path.join(scratch_path, "tmp"))
        os.rmdir(scratch_path)
    except OSError:
        import shutil  # only where the run left something behind: the import costs more than the rest of this

        shutil.rmtree(scratch_path, ignore_errors=True)


def run_validator(  # noqa: PLR0913  # what a run depends on, and nothing else
    argv: tuple[str, ...],
    contract: Contract,
    workspace_path: str,
    output_file_path: str,
    scratch_path: str,
    *,
    isolation: str = "none",
    mounts: tuple[tuple[str, str], ...] = (),
    hidden_paths: tuple[str, ...] = (),
    shown_paths: tuple[str, ...] = (),
    watch: Watch | None = None,
) -> CommandResult:
    """Run one command in the owner's environment, with the hygiene of every validation; the scratch folder goes after.

    ``mounts`` are frozen copies that it is to see, if the machine can mount them; ``hidden_paths`` no box shows it;
    ``shown_paths`` every box does (without any, the repository around the workspace); ``watch`` tells what happens
    meanwhile.

    Raises:
        CommandFault: it must run in a box, and there is none.
    """
    os.makedirs(os.path.dirname(output_file_path), mode=0o700, exist_ok=True)
    os.makedirs(os.path.join(scratch_path, "tmp"), mode=0o700, exist_ok=True)
    limits = Limits(
        workspace_path,
        scratch_path,
        network=isolation == "none" and "network" not in contract.forbidden,
        is_read_only="write" in contract.forbidden,
        hidden_paths=hidden_paths,
        shown_paths=shown_paths or tuple(filter(None, [find_root(workspace_path)])),
    )

    def run(copies: tuple[tuple[str, str], ...]) -> CommandResult:
        return run_limited(
            argv,
            limits if isolation != "none" or is_narrowed(contract) else None,
            cwd=workspace_path,
            env=validator_environment(contract, scratch_path, workspace_path),
            timeout_seconds=contract.timeout_seconds,
            output_path=output_file_path,
            output_limit_bytes=contract.output_limit_bytes,
            line_words=line_words_of(contract.runner),
            report_path=os.path.join(scratch_path, REPORT_NAME) if contract.has_pytest_report else "",
            mounts=copies,
            watch=watch,
        )

    try:
        result = run(mounts)
        return replace(run(()), mount_fault=result.mount_fault) if result.mount_fault else result
    finally:
        _remove_scratch(scratch_path)


_REFUSED = (
    *(
        b"ead-only file system",
        b"EROFS",
        b"esource busy",
        b"EBUSY",
        b"not permitted",
        b"EPERM",
        b"ermission denied",
    ),
    *(b"ross-device link", b"EXDEV", b"nvalid argument", b"EINVAL"),
)
"""What programs say where they may not write, rename or link, or lack a right (errno(3))."""


_MAY_BE_MOUNT = (
    "its output speaks of a refused write or right, and no run can write its frozen files or use rights of root: "
    "if that is why, the owner types omx-autoresearch amend {task} --no-mounts"
)


def speaks_of_refusal(output: bytes) -> bool:
    """Whether an output says that the system refused a write or a right, as it may where frozen files are mounted."""
    return any(word in output for word in _REFUSED)


def validator_environment(contract: Contract, scratch_path: str, workspace_path: str) -> dict[str, str]:
    """The owner's environment at launch, with private scratch folders and one locale; never the agent's.

    Python searches the workspace's own folders before an installation that leads to another checkout.
    """
    environment = dict(contract.environment)
    environment.setdefault("PATH", os.defpath)
    environment["LC_ALL"] = "C.UTF-8"
    environment["TMPDIR"] = os.path.join(scratch_path, "tmp")
    environment["PYTHONPYCACHEPREFIX"] = os.path.join(scratch_path, "pycache")
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["PYTEST_ADDOPTS"] = f"{environment.get('PYTEST_ADDOPTS', '')} -p no:cacheprovider".strip()
    if contract.import_folders:
        own = [os.path.normpath(os.path.join(workspace_path, each)) for each in contract.import_folders]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (*own, environment.get("PYTHONPATH"))))
    if contract.has_pytest_report:
        environment["PYTEST_ADDOPTS"] += f" --junitxml='{os.path.join(scratch_path, REPORT_NAME)}'"
    if contract.isolate_home:
        environment["HOME"] = scratch_path
    return environment


def output_tail(runtime: Runtime, mission: Mission, limit: int = 1500) -> str:
    """The end of the newest run's output, harmless, for a refusal; empty for a run that left no verdict."""
    if mission.attestation is None or mission.lost_run_id:
        return ""
    path = runtime.home.mission(mission.task_id).output_path(mission.attestation.run_id)
    try:
        with open(path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4 * limit))
            return head_and_tail(stream.read(), limit)
    except OSError:
        return ""


def _tampered(
    mission: Mission,
    run_id: str,
    times: tuple[str, str],
    paths: tuple[str, ...],
    cause: str = "pins-changed",
) -> Attestation:
    report = RunReport("tampered", cause, ", ".join(paths[:5]))
    return attestation_of(mission, run_id, times, report)


def attestation_of(  # noqa: PLR0913 - the facts that every attestation has
    mission: Mission,
    run_id: str,
    times: tuple[str, str],
    report: RunReport,
    look: WorkspaceSnapshot | None = None,
    *,
    is_fresh: bool = False,
) -> Attestation:
    """The attestation of a report on the workspace at ``look``; there is no look where the run reached no verdict."""
    return Attestation(
        **to_plain(report),
        run_id=run_id,
        contract_digest=mission.contract_digest,
        pin_digest=look.pin_digest if look else "",
        head=look.head if look else "",
        tree_digest=look.tree_digest if look else "",
        output_artifact_digest=look.output_artifact_digest if look else "",
        output_artifact_mark=look.output_artifact_mark if look else "",
        is_fresh=is_fresh,
        started_at=times[0],
        finished_at=times[1],
    )
