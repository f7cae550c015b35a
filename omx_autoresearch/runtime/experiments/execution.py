"""Executing one command of an experiment with the hygiene of all of them.

It gets the owner's environment of the start and the experiment's ``env``, a locale with decimal points, an empty stdin,
a temporary folder of its own, no ``GIT_*`` variable, and writes no Python bytecode into the tree. It runs in its
worktree, plainly or in bubblewrap, until its first process ends, its time is over or somebody cancels; then no process
of it is left. Its whole output is a file; its stdout alone goes to a file without a name, which nobody else can write.

In bubblewrap there is no network, and only the worktree and the temporary folder can be written. The experiment's
folder (frozen copies, log, held-out check, outputs), the original of the held-out check and the other worktree look
empty.
"""

from __future__ import annotations

import os
import tempfile
import threading
from typing import TYPE_CHECKING, Literal, Protocol

from omx_autoresearch.core.digests import sha256
from omx_autoresearch.core.json_path import parse_json_path
from omx_autoresearch.core.metrics import PEAK_BYTES, MetricSpec
from omx_autoresearch.core.values import dataclass
from omx_autoresearch.errors import CommandFault, WorkspaceFault
from omx_autoresearch.runtime.experiments.held_out import CHECK_NAME
from omx_autoresearch.storage.atomic import ensure_folder, storage_failed
from omx_autoresearch.storage.inside import open_folder, open_inside, read_chunks
from omx_autoresearch.system.commands import run_command, shell_argv
from omx_autoresearch.system.sandbox import bubblewrap_argv, bubblewrap_path, can_isolate

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from omx_autoresearch.runtime.experiments.evaluators import Bench
    from omx_autoresearch.system.commands import CommandResult

RunKind = Literal["measure", "check", "setup", "held_out"]

GRACE_SECONDS = 0.5
"""Between SIGTERM and SIGKILL, at a deadline or a cancellation."""
DOCUMENT_LIMIT_BYTES = 16 * 1024 * 1024


class Cancels(Protocol):
    """What can tell that the work is to end (``AutoresearchCancellation``)."""

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` once when it is to end, at once where it is already; returns what takes it back."""
        ...


@dataclass(frozen=True, slots=True)
class Job:
    """One command to execute: of which bench, where, under which id, what for."""

    bench: Bench
    worktree_path: str
    run_id: str
    kind: RunKind
    command: str
    cancellation: Cancels | None

    @property
    def argv(self) -> tuple[str, ...]:
        """What is run, before any sandbox."""
        if self.kind == "held_out":
            return (os.path.join(self.bench.folder.held_out_path, CHECK_NAME),)
        return shell_argv(self.command)

    @property
    def spec(self) -> MetricSpec:
        """What is read: a command that measures nothing is judged by its exit status and prints what it likes."""
        return self.bench.config.metric if self.kind == "measure" else MetricSpec("-", source="wall")

    @property
    def document_path(self) -> str:
        """The JSON file that the metric is read from, relative to the worktree; empty for none."""
        return parse_json_path(self.spec.json_path).file_path if self.spec.source == "json" else ""

    @property
    def needs_memory(self) -> bool:
        """True where the peak of the memory is the metric, or guarded."""
        guards = self.bench.config.guards
        return self.kind == "measure" and (
            self.spec.source == "memory" or any(guard.name == PEAK_BYTES for guard in guards)
        )


def backend_for(wish: str) -> tuple[str, str]:
    """What isolates a run (``none`` or ``bubblewrap``), and a note where that is less than was wished.

    Raises:
        CommandFault: bubblewrap is demanded and does not work.
    """
    if wish == "none" or (wish == "auto" and not can_isolate()):
        note = (
            "" if wish == "none" else "no sandbox: bubblewrap is missing or the system does not let it work"
        )
        return "none", note
    if bubblewrap_path() is None:
        raise CommandFault(
            "the experiment demands bubblewrap, which is not installed",
            next_step="install the package bubblewrap, or start the experiment with --sandbox auto",
        )
    if not can_isolate():
        raise CommandFault(
            "the experiment demands bubblewrap, which this system does not let work (user namespaces)",
            next_step="allow unprivileged user namespaces, or start the experiment with --sandbox auto",
        )
    return "bubblewrap", ""


@dataclass(frozen=True, slots=True)
class Execution:
    """What an executed command left: its result, its stdout as text, the JSON file of the metric (None for none)."""

    result: CommandResult
    stdout: str
    document: str | None


def execute(job: Job, backend: str) -> Execution:
    """Execute a command to its end, with ``backend`` as `backend_for` gave it.

    Raises:
        CommandFault: no process could be started, or the supervising one was killed.
        StorageFailed: the output or the temporary folder cannot be written.
    """
    folder = job.bench.folder
    ensure_folder(folder.outputs_path)
    # Names of one length: the size of the environment moves the stack, and with it what is measured.
    scratch_path = os.path.join(folder.scratch_path, sha256(job.run_id.encode()).hexdigest()[:16])
    if job.document_path:
        _remove_document(job.worktree_path, job.document_path)
    _make_scratch(scratch_path)
    try:
        with (
            _CancelPipe(job.cancellation) as cancel,
            tempfile.TemporaryFile(dir=folder.outputs_path) as stdout,
        ):
            result = run_command(
                _argv(job, backend, scratch_path),
                cwd=job.worktree_path,
                env=_environment(job, scratch_path),
                timeout_seconds=job.bench.config.measure_timeout_seconds,
                output_path=os.path.join(folder.outputs_path, f"{job.run_id}.txt"),
                grace_seconds=GRACE_SECONDS,
                stdout_fd=stdout.fileno(),
                cancel_fd=cancel.fileno(),
                measures_memory=job.needs_memory,
                is_stdout_sealed=job.kind == "measure",
            )
            return Execution(result, _text_of(stdout, result), _document(job))
    finally:
        _remove_scratch(scratch_path)


def _argv(job: Job, backend: str, scratch_path: str) -> tuple[str, ...]:
    if backend == "none":
        return job.argv
    folder = job.bench.folder
    others = [path for path in job.bench.worktree_paths if path != job.worktree_path]
    return bubblewrap_argv(
        job.argv,
        workspace_path=job.worktree_path,
        writable_paths=(scratch_path,),
        hidden_paths=(folder.root_path, *_hidden_source(job.bench), *others),
        shown_paths=(folder.held_out_path,) if job.kind == "held_out" else (),
    )


def _hidden_source(bench: Bench) -> tuple[str, ...]:
    """Where the owner keeps the original of the held-out check."""
    held_out = bench.config.held_out
    return (os.path.join(bench.project_path, os.path.expanduser(held_out)),) if held_out else ()


def _environment(job: Job, scratch_path: str) -> dict[str, str]:
    environment = job.bench.environment_in(job.worktree_path)
    environment.setdefault("PATH", os.defpath)
    environment["LC_ALL"] = "C.UTF-8"  # numbers as in C, texts in UTF-8
    environment["TMPDIR"] = os.path.join(scratch_path, "tmp")
    # Bytecode may be read: without that of the libraries their compilation would be measured.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["PYTEST_ADDOPTS"] = f"{environment.get('PYTEST_ADDOPTS', '')} -p no:cacheprovider".strip()
    environment |= job.bench.config.env
    return {name: value for name, value in environment.items() if not name.startswith("GIT_")}


class _CancelPipe:
    """A descriptor that becomes readable when the cancellation speaks, from whatever thread."""

    def __init__(self, cancellation: Cancels | None) -> None:
        self._cancellation = cancellation
        self._lock = threading.Lock()
        self._read_end = self._write_end = -1
        self._unwatch: Callable[[], None] = lambda: None

    def fileno(self) -> int:
        return self._read_end

    def __enter__(self) -> _CancelPipe:
        if self._cancellation is not None:
            self._read_end, self._write_end = os.pipe()
            self._unwatch = self._cancellation.watch(self._tell)
        return self

    def _tell(self) -> None:
        with self._lock:  # a late word must not go into a descriptor that is somebody else's by then
            if self._write_end >= 0:
                os.write(self._write_end, b"c")

    def __exit__(self, *_: object) -> None:
        self._unwatch()
        with self._lock:
            for descriptor in (self._read_end, self._write_end):
                if descriptor >= 0:
                    os.close(descriptor)
            self._read_end = self._write_end = -1


def _text_of(stdout: BinaryIO, result: CommandResult) -> str:
    """The stdout of a command; a last line that was cut is left out, since half a number is one as well."""
    stdout.seek(0)
    data = stdout.read()
    if len(data) < result.stdout_size_bytes:
        data = data[: data.rfind(b"\n") + 1]
    return data.decode("utf-8", "replace")


def _document(job: Job) -> str | None:
    if not job.document_path:
        return None
    try:
        descriptor = open_inside(job.worktree_path, job.document_path)
    except (OSError, WorkspaceFault):
        return None
    try:
        return b"".join(read_chunks(descriptor, DOCUMENT_LIMIT_BYTES)).decode("utf-8", "replace")
    except (OSError, WorkspaceFault):
        return None
    finally:
        os.close(descriptor)


def _remove_document(worktree_path: str, path: str) -> None:
    """Take away what an earlier run, or the candidate, left in the place of the document."""
    folder_path, _, name = path.rpartition("/")
    try:
        folder = open_folder(worktree_path, folder_path)
    except (OSError, WorkspaceFault):
        return
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise storage_failed("remove the old document", os.path.join(worktree_path, path), error) from error
    finally:
        os.close(folder)


# --- the private folder of a run


def _make_scratch(path: str) -> None:
    _remove_scratch(path)  # of a controller that was killed
    try:
        os.makedirs(os.path.join(path, "tmp"), mode=0o700)
    except OSError as error:
        raise storage_failed("make the temporary folder", path, error) from error


def _remove_scratch(path: str) -> None:
    import shutil

    if not os.path.lexists(path):
        return
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):  # a folder in it that may not be entered
        for folder, names, _ in os.walk(path):
            for name in names:
                if not os.path.islink(os.path.join(folder, name)):
                    os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(path, ignore_errors=True)
