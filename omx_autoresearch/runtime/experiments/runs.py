"""One run of an experiment's commands: measured, checked, set up, or held out.

The pinned files are put back before it and looked at after it (:mod:`.evaluators`); the command is executed with the
same hygiene each time (:mod:`.execution`); what it said is read by one grammar (:mod:`core.metrics`).

What is left to the owner: hash randomisation of Python, address layout and processor frequency stay as they are. A
fixed seed would let one accidental layout decide every pair; drawn anew each run, it is noise that the judge sees.

A run that did not measure is a value with a ``fault``; an exception means that nothing could be decided.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from omx_autoresearch.core.metrics import Measured, read_metrics, without_tail
from omx_autoresearch.core.values import dataclass, field, replace
from omx_autoresearch.errors import UsageError
from omx_autoresearch.runtime.experiments.evaluators import restore_evaluators, stamps_of, touched_since
from omx_autoresearch.runtime.experiments.execution import Job, backend_for, execute
from omx_autoresearch.runtime.experiments.held_out import check_held_out
from omx_autoresearch.storage.layout import is_safe_task_id
from omx_autoresearch.storage.outputs import harmless, masked, trim_for_person
from omx_autoresearch.system.commands import explain_shell_status
from omx_autoresearch.system.sandbox import bubblewrap_fault, isolation_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omx_autoresearch.core.words import Outcome
    from omx_autoresearch.runtime.experiments.evaluators import Bench
    from omx_autoresearch.runtime.experiments.execution import Cancels, Execution, RunKind
    from omx_autoresearch.system.commands import CommandResult

SHOWN_LENGTH = 1500
_REOPENED = re.compile(rb"/(?:dev/stdout|fd/1)\b.*No such device or address")

_TAMPERED = "tampered"


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one run.

    Attributes:
        run_id: names its output.
        kind: what it was for.
        fault: empty where it did what it should; ``tampered``, a fault of :data:`core.metrics.FAULTS`, or
            ``reset_failed``.
        detail: the fault for people, with the last lines of the output; harmless to show.
        metric: the primary metric; None where there is a fault, and where nothing was to be measured.
        others: secondary metrics, ``wall_seconds cpu_seconds peak_bytes`` among them.
        notes: what was left out of the metrics and why; how the isolation differs from what was wished.
        tampered_paths: pinned paths found touched before the run (which then did not take place) or after it.
        outcome: how the command ended.
        exit_status: of its first process; negative for a signal; None where it did not end by itself.
        wall_seconds: by the monotonic clock.
        cpu_seconds: user and system, of all its processes.
        peak_bytes: of its largest process; 0 where it was not needed.
        leaked: command lines of processes that had left its session and were ended.
        has_left_running: processes of it still worked when its first one had ended.
        output_path: its whole output, up to a limit.
        output_size_bytes: how much it wrote.
        isolation: what really isolated it, for records: ``none`` or ``bubblewrap``.
        isolated: the same for people, a phrase.
    """

    run_id: str
    kind: RunKind
    fault: str = ""
    detail: str = ""
    metric: float | None = None
    others: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tampered_paths: tuple[str, ...] = ()
    outcome: Outcome = "not_started"
    exit_status: int | None = None
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    leaked: tuple[str, ...] = ()
    has_left_running: bool = False
    output_path: str = ""
    output_size_bytes: int = 0
    isolation: str = "none"
    isolated: str = ""

    @property
    def is_passed(self) -> bool:
        """True when the command did what it should and touched nothing that is frozen."""
        return not self.fault

    @property
    def is_tampered(self) -> bool:
        """True when something frozen was touched."""
        return bool(self.tampered_paths)


def measure_once(bench: Bench, worktree_path: str, run_id: str, cancellation: Cancels | None = None) -> Run:
    """Reset the caches, run the measure command once, and read its metrics.

    Args:
        bench: of the experiment.
        worktree_path: the folder it runs in.
        run_id: a safe file name, never used before.
        cancellation: ends the run from another thread, at once and wholly.

    Raises:
        CommandFault: bubblewrap is demanded and does not work, or no process could be started.
        StateUntrusted: a frozen copy is not what it was.
        WorkspaceFault: the worktree is gone.
        StorageFailed: the output cannot be written.
    """
    return _guarded(Job(bench, worktree_path, run_id, "measure", bench.config.measure, cancellation))


def check_once(bench: Bench, worktree_path: str, run_id: str, cancellation: Cancels | None = None) -> Run:
    """Run the check command once; it passes with exit status 0. Arguments and errors as `measure_once`."""
    return _guarded(Job(bench, worktree_path, run_id, "check", bench.config.check, cancellation))


def setup_once(bench: Bench, worktree_path: str, run_id: str, cancellation: Cancels | None = None) -> Run:
    """Run the set-up command once; it passes with exit status 0. Arguments and errors as `measure_once`."""
    return _guarded(Job(bench, worktree_path, run_id, "setup", bench.config.setup, cancellation))


def held_out_once(bench: Bench, worktree_path: str, run_id: str, cancellation: Cancels | None = None) -> Run:
    """Run the private copy of the held-out check once. Arguments and errors as `measure_once`.

    Raises:
        StateUntrusted: the copy is not what it was at the start, before the run or after it.
    """
    check_held_out(bench.folder.held_out_path, bench.held_out_digest)
    run = _guarded(Job(bench, worktree_path, run_id, "held_out", "", cancellation))
    check_held_out(bench.folder.held_out_path, bench.held_out_digest)
    return run


def _guarded(job: Job) -> Run:
    """The run between two looks at the frozen files."""
    bench, worktree_path = job.bench, job.worktree_path
    if not is_safe_task_id(job.run_id):
        raise UsageError(
            f"{job.run_id[:80]!r} cannot name the output of a run", next_step="use letters, digits and -"
        )
    backend, note = backend_for(bench.config.sandbox)
    if restored := restore_evaluators(bench, worktree_path):
        return _tampered(Run(job.run_id, job.kind), restored, "before the run, which did not take place")
    stamps = stamps_of(bench, worktree_path)
    run = _run(job, backend)
    if touched := touched_since(bench, worktree_path, stamps):
        own = f"while it ran (if the command itself writes them: --protect '!{touched[0]}')"
        run = _tampered(run, touched, own)
    return replace(run, notes=(*run.notes, note)) if note else run


def _run(job: Job, backend: str) -> Run:
    if job.kind == "measure" and job.bench.config.reset_caches:
        reset = replace(
            job, run_id=f"{job.run_id}-reset", kind="setup", command=job.bench.config.reset_caches
        )
        done = _told(reset, execute(reset, backend))
        if done.fault:
            fault = done.fault if done.fault == "cancelled" else "reset_failed"
            return replace(
                done,
                run_id=job.run_id,
                kind=job.kind,
                fault=fault,
                detail=f"resetting the caches: {done.detail}",
            )
    return _told(job, execute(job, backend))


def _tampered(run: Run, paths: Sequence[str], when: str) -> Run:
    shown = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return replace(
        run,
        fault=_TAMPERED,
        detail=f"frozen files were touched {when}: {harmless(shown)}",
        metric=None,
        others={},
        tampered_paths=tuple(paths),
    )


# --- what it said


def _told(job: Job, execution: Execution) -> Run:
    """The run that an executed command was."""
    result = execution.result
    status = result.exit_status if result.outcome == "exited" else None
    measured = Measured(
        result.duration_seconds, result.cpu_seconds, result.peak_bytes, status, result.outcome
    )
    reading = read_metrics(execution.stdout, job.spec, measured, execution.document)
    isolation = isolation_of(result)
    is_measured = job.kind == "measure"
    return Run(
        run_id=job.run_id,
        kind=job.kind,
        fault=_fault(job, reading.fault),
        detail=_detail(job, result, reading.fault, reading.detail) if reading.fault else "",
        metric=reading.primary if is_measured else None,
        others=reading.others if is_measured else {},
        notes=tuple(masked(harmless(note)) for note in reading.notes) if is_measured else (),
        outcome=result.outcome,
        exit_status=status,
        wall_seconds=result.duration_seconds,
        cpu_seconds=result.cpu_seconds,
        peak_bytes=result.peak_bytes,
        leaked=tuple(masked(harmless(line)) for line in result.leaked),
        has_left_running=result.has_left_running,
        output_path=result.output_path,
        output_size_bytes=result.output_size_bytes,
        isolation=isolation.backend,
        isolated=isolation.describe(),
    )


_COMMANDS = {
    "measure": "the measure command",
    "check": "the check",
    "held_out": "the held-out check",
    "setup": "the set-up",
}


def _fault(job: Job, fault: str) -> str:
    if fault == "command_failed" and job.kind == "check":
        return "check_failed"
    if fault == "command_failed" and job.kind == "held_out":
        return "held_out_failed"
    return fault


def _detail(job: Job, result: CommandResult, fault: str, detail: str) -> str:
    """What is wrong, in a sentence, and below it what helps to mend it: the end of what the command printed."""
    why = result.error or bubblewrap_fault(result)
    if not why and job.kind != "held_out":
        why = explain_shell_status(job.command, result.exit_status, job.worktree_path)
    if not why and job.kind == "measure" and _REOPENED.search(_end_of(result)):
        why = "the stdout of a measured run is a socket, which cannot be opened by a path; print to stdout itself"
    cut = "its output was cut at the limit" if result.is_truncated else ""
    first, _, rest = detail.partition("\n")
    sentence = first.replace("the command", _COMMANDS[job.kind])
    if job.kind == "measure":
        if fault != "command_failed":
            return masked(harmless("\n".join(part for part in (sentence, rest, why, cut) if part)))
        sentence = without_tail(f"{sentence}\n{rest}")
    shown = (
        "the output of the held-out check is in its file" if job.kind == "held_out" else _shown_output(result)
    )
    return "\n".join(part for part in (masked(harmless(sentence)), why, cut, shown) if part)


def _shown_output(result: CommandResult) -> str:
    """The end of both streams; where a command failed, stderr says why."""
    return trim_for_person(_end_of(result), SHOWN_LENGTH)


def _end_of(result: CommandResult) -> bytes:
    try:
        with open(result.output_path, "rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - 4 * SHOWN_LENGTH))
            return stream.read()
    except OSError:
        return b""
