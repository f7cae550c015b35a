"""One run of an experiment's commands: measured, checked, set up, or held out.

The pinned files are put back before it and looked at after it (:mod:`.evaluators`); the command is executed with the
same hygiene each time; what it said is read by one grammar (`judge.metrics`).

What is left to the owner: hash randomisation of Python, address layout and processor frequency stay as they are. A
fixed seed would let one accidental layout decide every pair; drawn anew each run, it is noise that the judge sees.

A run that did not measure is a value with a ``fault``; an exception means that nothing could be decided.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import BinaryIO, Literal

from omx_autoresearch.experiments.context import AutoresearchCancellation
from omx_autoresearch.experiments.evaluators import CHECK_NAME, FrozenEvaluators
from omx_autoresearch.experiments.judge.metrics import (
    METRIC_WORDS,
    PEAK_BYTES,
    Measured,
    MetricSpec,
    Reading,
    parse_json_path,
    read_metrics,
    without_tail,
)
from omx_autoresearch.foundation.errors import CommandFault, UsageError, WorkspaceFault
from omx_autoresearch.foundation.text import harmless, head_and_tail, redacted
from omx_autoresearch.foundation.types import Outcome
from omx_autoresearch.journal import safe_files
from omx_autoresearch.journal.layout import is_safe_task_id
from omx_autoresearch.missions.secrets import WITHHELD, masked, masked_output
from omx_autoresearch.system import sandbox
from omx_autoresearch.system.commands import (
    OUTPUT_LIMIT_BYTES,
    CommandResult,
    explain_shell_status,
    shell_argv,
)
from omx_autoresearch.system.files import remove

SHOWN_LENGTH = 1500
_REOPENED = re.compile(rb"/(?:dev/stdout|fd/1)\b.*No such device or address")


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run.

    Attributes:
        run_id: names its output.
        kind: what it was for.
        fault: empty where it did what it should; ``tampered``, ``reset_failed``, or the
            `judge.metrics.Reading.fault` of its output.
        detail: the fault for people, with the last lines of the output; harmless to show.
        metric: the primary metric; None where there is a fault, and where nothing was to be measured.
        others: secondary metrics, ``wall_seconds cpu_seconds peak_bytes`` among them.
        tampered_paths: pinned paths found touched before the run (which then did not take place) or after it.
        outcome: how the command ended.
        exit_status: of its first process; negative for a signal; None where it did not end by itself.
        wall_seconds: by the monotonic clock.
        leaked: command lines of processes that had left its session and were ended.
        has_left_running: processes of it still worked when its first one had ended.
        output_path: its whole output, up to a limit.
        isolation: what really isolated it, for records: ``none``, ``bubblewrap``, ``landlock`` or ``fenced``.
    """

    run_id: str
    kind: RunKind
    fault: str = ""
    detail: str = ""
    metric: float | None = None
    others: dict[str, float] = field(default_factory=dict)
    tampered_paths: tuple[str, ...] = ()
    outcome: Outcome = "not_started"
    exit_status: int | None = None
    wall_seconds: float = 0.0
    leaked: tuple[str, ...] = ()
    has_left_running: bool = False
    output_path: str = ""
    isolation: str = "none"

    @property
    def is_tampered(self) -> bool:
        """True when something frozen was touched."""
        return bool(self.tampered_paths)


def run_once(
    kind: RunKind,
    evaluators: FrozenEvaluators,
    worktree_path: str,
    run_id: str,
    cancellation: AutoresearchCancellation | None = None,
) -> Run:
    """Run one command of an experiment once; before a measured run the caches are reset.

    Args:
        kind: which command; all but ``measure`` pass with exit status 0.
        evaluators: of the experiment.
        worktree_path: the folder it runs in.
        run_id: a safe file name, never used before.
        cancellation: ends the run from another thread, at once and wholly.

    Raises:
        CommandFault: bubblewrap is demanded and does not work, or no process could be started.
        StateUntrusted: a frozen copy, or that of the held-out check, is not what it was.
        WorkspaceFault: the worktree is gone.
        StorageFailed: the output cannot be written.
    """
    if kind == "held_out":
        evaluators.check_held_out()
    run = _guarded(Job(kind, evaluators, worktree_path, run_id, cancellation))
    if kind == "held_out":
        evaluators.check_held_out()
    return run


def _guarded(job: Job) -> Run:
    """The run between two looks at the frozen files."""
    evaluators, worktree_path = job.evaluators, job.worktree_path
    if not is_safe_task_id(job.run_id):
        raise UsageError(
            f"{job.run_id[:80]!r} cannot be the name of a run's output", next_step="use letters, digits and -"
        )
    backend = backend_for(evaluators.config.sandbox)
    if restored := evaluators.restore(worktree_path):
        return _tampered(Run(job.run_id, job.kind), restored, "before the run, which did not start")
    stamps = evaluators.stamps(worktree_path)
    run = _reset(job, backend) or _execute(job, backend)
    if touched := evaluators.touched_since(worktree_path, stamps):
        own = f"during the run (if the command itself writes them: --protect '!{touched[0]}')"
        return _tampered(run, touched, own)
    return run


def _reset(job: Job, backend: str) -> Run | None:
    """Reset the caches before a measured run; the run as it failed where that failed."""
    if job.kind != "measure" or not job.evaluators.config.reset_caches:
        return None
    done = _execute(replace(job, run_id=f"{job.run_id}-reset", kind="reset"), backend)
    if not done.fault:
        return None
    fault = done.fault if done.fault == "cancelled" else "reset_failed"
    detail = f"resetting the caches: {done.detail}"
    return replace(done, run_id=job.run_id, kind=job.kind, fault=fault, detail=detail)


def _tampered(run: Run, paths: Sequence[str], when: str) -> Run:
    shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return replace(
        run,
        fault="tampered",
        detail=f"frozen files were touched {when}: {harmless(shown)}",
        metric=None,
        others={},
        tampered_paths=tuple(paths),
    )


# --- what it said


def _run_of(job: Job, result: CommandResult, stdout: str, document: str | None) -> Run:
    """The run that an executed command was."""
    status = result.exit_status if result.outcome == "exited" else None
    measured = Measured(
        result.duration_seconds, result.cpu_seconds, result.peak_bytes, status, result.outcome
    )
    reading = read_metrics(stdout, job.spec, measured, document)
    is_measured = job.kind == "measure"
    return Run(
        run_id=job.run_id,
        kind=job.kind,
        fault=_fault(job, reading.fault),
        detail=_detail(job, result, reading) if reading.fault else "",
        metric=reading.primary if is_measured else None,
        others=reading.others if is_measured else {},
        outcome=result.outcome,
        exit_status=status,
        wall_seconds=result.duration_seconds,
        leaked=tuple(redacted(harmless(line)) for line in result.leaked),
        has_left_running=result.has_left_running,
        output_path=result.output_path,
        isolation=result.isolation.backend,
    )


_COMMANDS = {
    "measure": "the measure command",
    "check": "the check",
    "held_out": "the held-out check",
    "setup": "the set-up",
    "reset": "the reset of the caches",
}


def _fault(job: Job, fault: str) -> str:
    if fault == "command_failed" and job.kind in ("check", "held_out"):
        return f"{job.kind}_failed"
    return fault


def _detail(job: Job, result: CommandResult, reading: Reading) -> str:
    """The fault in a sentence, and below it the end of the command's output."""
    why = result.error or result.box_fault
    if not why and job.kind != "held_out":
        why = explain_shell_status(job.command, result.exit_status, job.worktree_path)
    if not why and job.kind == "measure" and _REOPENED.search(_end_of(result)):
        why = "the stdout of a measured run is a socket, so it cannot be opened by path; print to stdout directly"
    limit = f"{OUTPUT_LIMIT_BYTES // 1024**2} MiB"
    cut = f"its output was cut at the limit of {limit}; METRIC lines are read all the same"
    cut = cut if result.is_truncated else ""
    first, _, rest = reading.detail.partition("\n")
    sentence = first.replace("the command", _COMMANDS[job.kind])
    if job.kind == "measure":
        if reading.fault != "command_failed":
            return redacted(harmless("\n".join(part for part in (sentence, rest, why, cut) if part)))
        sentence = without_tail(f"{sentence}\n{rest}")
    if job.kind == "held_out":
        shown = "the output of the held-out check is in its own file"
    else:
        shown = head_and_tail(_end_of(result), SHOWN_LENGTH)
    return "\n".join(part for part in (redacted(harmless(sentence)), why, cut, shown) if part)


def _end_of(result: CommandResult) -> bytes:
    """The end of both streams; where a command failed, stderr says why."""
    try:
        with open(result.output_path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4 * SHOWN_LENGTH))
            return stream.read()
    except OSError:
        return b""


# --- executing one command

# Every command of an experiment runs in the same way. It gets the owner's environment from the start of the
# experiment, the experiment's ``env``, a locale with decimal points, an empty stdin and a private temporary folder.
# Of the ``GIT_*`` variables it gets one alone: the one that keeps git from finding a repository above a worktree
# whose ``.git`` is gone. It writes no Python bytecode into the tree. It runs in its worktree, plainly or in
# a box, until its first process ends, its time is over, or it is cancelled; its remaining processes are then
# killed. Its whole output goes to a file. Its stdout also goes to a file without a name, so that no other process can
# write there.
#
# In a box there is no network, and only the worktree and the temporary folder are writable. The state of all missions
# and experiments (frozen copies, logs, held-out checks, outputs), the original of the held-out check and the other
# worktree cannot be read.


RunKind = Literal["measure", "check", "setup", "held_out", "reset"]

GRACE_SECONDS = 0.5
"""Between SIGTERM and SIGKILL, at a deadline or a cancellation."""
DOCUMENT_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Job:
    """One command to execute: what for, with what judges, where, and under which id."""

    kind: RunKind
    evaluators: FrozenEvaluators
    worktree_path: str
    run_id: str
    cancellation: AutoresearchCancellation | None

    @property
    def command(self) -> str:
        """The owner's line for the shell; empty for the held-out check, which is a file."""
        config = self.evaluators.config
        return {
            "measure": config.measure,
            "check": config.check,
            "setup": config.setup,
            "reset": config.reset_caches,
        }.get(self.kind, "")

    @property
    def argv(self) -> tuple[str, ...]:
        """The command's arguments, before any sandbox."""
        if self.kind == "held_out":
            return (os.path.join(self.evaluators.folder.held_out_path, CHECK_NAME),)
        return shell_argv(self.command)

    @property
    def timeout_seconds(self) -> float:
        """Checks and set-ups may have a time of their own."""
        config = self.evaluators.config
        own = 0.0 if self.kind in ("measure", "reset") else config.check_timeout_seconds
        return own or config.measure_timeout_seconds

    @property
    def spec(self) -> MetricSpec:
        """The metric to read; a command that measures nothing is judged by its exit status alone."""
        return self.evaluators.config.metric if self.kind == "measure" else MetricSpec("-", source="wall")

    @property
    def document_path(self) -> str:
        """The JSON file that the metric is read from, relative to the worktree; empty for none."""
        return parse_json_path(self.spec.json_path).file_path if self.spec.source == "json" else ""

    @property
    def needs_memory(self) -> bool:
        """True where the peak of the memory is the metric, or guarded."""
        guards = self.evaluators.config.guards
        return self.kind == "measure" and (
            self.spec.source == "memory" or any(guard.name == PEAK_BYTES for guard in guards)
        )


def backend_for(wish: str) -> str:
    """How a run is isolated; ``auto`` takes the box that the machine has, or the fence.

    Raises:
        CommandFault: bubblewrap is demanded and does not work.
    """
    found = sandbox.box()
    if wish == "auto":
        return found.backend
    if wish == "bubblewrap" and found.backend != wish:
        raise CommandFault(
            f"the experiment requires bubblewrap: {found.what}",
            next_step=f"{found.cure}, or start the experiment with --sandbox auto",
        )
    return wish


def _execute(job: Job, backend: str) -> Run:
    """Execute a command to its end, with ``backend`` as `backend_for` gave it.

    Raises:
        CommandFault: no process could be started, or the supervising one was killed.
        StorageFailed: the output or the temporary folder cannot be written.
    """
    folder = job.evaluators.folder
    safe_files.ensure_folder(folder.outputs_path)
    # Names of one length: the size of the environment moves the stack, and with it what is measured.
    scratch_path = os.path.join(folder.scratch_path, sha256(job.run_id.encode()).hexdigest()[:16])
    if job.document_path:
        _remove_document(job.worktree_path, job.document_path)
    _make_scratch(scratch_path)
    try:
        with tempfile.TemporaryFile(dir=folder.outputs_path) as stdout:
            result = sandbox.run_limited(
                job.argv,
                None if backend == "none" else _limits(job, scratch_path),
                cwd=job.worktree_path,
                env=_environment(job, scratch_path),
                timeout_seconds=job.timeout_seconds,
                output_path=os.path.join(folder.outputs_path, f"{job.run_id}.txt"),
                grace_seconds=GRACE_SECONDS,
                stdout_fd=stdout.fileno(),
                cancel_fd=job.cancellation.fileno() if job.cancellation else -1,
                line_words=METRIC_WORDS,
                measures_memory=job.needs_memory,
                is_stdout_sealed=job.kind == "measure",
            )
            forms = job.evaluators.secret_forms
            masked_output(b"", result.output_path, forms)
            run = _run_of(job, result, _text_of(stdout, result), _document(job))
            return replace(run, detail=masked(run.detail, forms))
    finally:
        _remove_scratch(scratch_path)


def _limits(job: Job, scratch_path: str) -> sandbox.Limits:
    """In a box a run sees its worktree and nothing else of ours: no other mission's, experiment's or arm's."""
    folder = job.evaluators.folder
    others = [path for path in job.evaluators.worktree_paths if path != job.worktree_path]
    return sandbox.Limits(
        job.worktree_path,
        scratch_path,
        hidden_paths=(*folder.private_paths, *_hidden_source(job.evaluators), *others),
        shown_paths=(folder.held_out_path,) if job.kind == "held_out" else (),
    )


def _hidden_source(evaluators: FrozenEvaluators) -> tuple[str, ...]:
    """The path of the original of the held-out check."""
    held_out = evaluators.config.held_out
    return (os.path.join(evaluators.project_path, os.path.expanduser(held_out)),) if held_out else ()


def _environment(job: Job, scratch_path: str) -> dict[str, str]:
    environment = job.evaluators.environment_in(job.worktree_path)
    environment.setdefault("PATH", os.defpath)
    environment["LC_ALL"] = "C.UTF-8"  # numbers as in C, texts in UTF-8
    environment["TMPDIR"] = os.path.join(scratch_path, "tmp")
    # Bytecode may be read: without that of the libraries their compilation would be measured.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["PYTEST_ADDOPTS"] = f"{environment.get('PYTEST_ADDOPTS', '')} -p no:cacheprovider".strip()
    declared = job.evaluators.config.env
    environment |= {name: value for name, value in declared.items() if value != WITHHELD}
    plain = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    return plain | {"GIT_CEILING_DIRECTORIES": os.path.dirname(job.worktree_path)}


def _text_of(stdout: BinaryIO, result: CommandResult) -> str:
    """The stdout of a command; empty where a part of it that counts is missing, which may contradict the rest."""
    if not result.is_stdout_stored:
        return ""
    stdout.seek(0)
    return stdout.read().decode("utf-8", "replace")


def _document(job: Job) -> str | None:
    if not job.document_path:
        return None
    try:
        data = safe_files.read_inside(job.worktree_path, job.document_path, DOCUMENT_LIMIT_BYTES)
    except (OSError, WorkspaceFault):
        return None
    return data.decode("utf-8", "replace")


def _remove_document(worktree_path: str, path: str) -> None:
    """Take away what an earlier run, or the candidate, left in the place of the document."""
    folder_path, _, name = path.rpartition("/")
    try:
        folder = safe_files.open_folder(worktree_path, folder_path)
    except (OSError, WorkspaceFault):
        return
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise safe_files.storage_failed(
            "remove the old document", os.path.join(worktree_path, path), error
        ) from error
    finally:
        os.close(folder)


def _make_scratch(path: str) -> None:
    _remove_scratch(path)  # of a controller that was killed
    try:
        os.makedirs(os.path.join(path, "tmp"), mode=0o700)
    except OSError as error:
        raise safe_files.storage_failed("make the temporary folder", path, error) from error


def _remove_scratch(path: str) -> None:
    with contextlib.suppress(WorkspaceFault):  # a leftover does no harm; its name is never used again
        remove(path)
