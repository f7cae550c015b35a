"""What is told of a command beyond its end: memory, processor, stdout alone; and how another thread ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.system import starting, supervisor
from omx_autoresearch.system.commands import CommandResult, run_command, shell_argv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[..., CommandResult]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")

MIB = 1024 * 1024


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run_it(command: str | Sequence[str], timeout_seconds: float = 20.0, **more: Any) -> CommandResult:
        argv = shell_argv(command) if isinstance(command, str) else command
        options: dict[str, Any] = {"env": {"PATH": os.environ["PATH"]}, "grace_seconds": 0.2}
        return run_command(
            argv,
            cwd=str(tmp_path),
            timeout_seconds=timeout_seconds,
            output_path=str(tmp_path / "output"),
            **(options | more),
        )

    return run_it


@pytest.fixture
def marker() -> str:
    """A number of seconds for `sleep` that no other process on the machine has in its arguments."""
    return f"60.{uuid.uuid4().int % 10**12:012}"


def living_with(marker: str) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as stream:
                line = stream.read()
        except OSError:
            continue
        if marker.encode() in line and int(name) != os.getpid():
            found.append(line.decode())
    return found


# --- Memory and processor --------------------------------------------------------------------------------------------


@linux_only
@pytest.mark.requirement("RUN-08")
def test_the_memory_of_a_child_of_the_command_is_measured(run: Run) -> None:
    program = f"x = bytearray({100 * MIB}); x[::4096] = b'1' * len(x[::4096])"
    result = run(f'"{sys.executable}" -I -S -c "{program}"; true', measures_memory=True)
    assert result.exit_status == 0
    assert 100 * MIB <= result.peak_bytes < 160 * MIB


@linux_only
@pytest.mark.requirement("RUN-08")
def test_the_memory_of_whoever_runs_the_command_is_none_of_its_own(run: Run) -> None:
    ours = bytearray(os.urandom(4096)) * (80 * 256)
    result = run("true", measures_memory=True)
    assert 0 < result.peak_bytes < 20 * MIB < len(ours)


@linux_only
def test_where_the_memory_cannot_be_told_from_ours_it_is_not_told(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_SETSID_PATHS", ())
    assert run("true", measures_memory=True).peak_bytes == 0


@linux_only
def test_a_setsid_of_another_make_is_no_obstacle(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "setsid"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setattr(starting, "_SETSID_PATHS", (str(other),))
    assert run("exit 3", measures_memory=True).exit_status == 3


def test_memory_is_measured_only_where_it_was_asked_for(run: Run) -> None:
    assert run("true").peak_bytes == 0


@linux_only
@pytest.mark.requirement("RUN-08")
def test_a_measured_command_is_as_any_other_to_itself(run: Run, tmp_path: Path) -> None:
    script = (
        "echo out; echo err >&2; cat; pwd; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OMX_AUTORESEARCH_RUN= | sort;"
        " grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; kill -9 $$"
    )
    plain = run(script)
    text = (tmp_path / "output").read_bytes()
    measured = run(script, measures_memory=True)
    assert (tmp_path / "output").read_bytes() == text
    assert (measured.outcome, measured.exit_status, measured.leaked) == ("exited", -signal.SIGKILL, ())
    assert (plain.outcome, plain.exit_status) == ("exited", -signal.SIGKILL)


@linux_only
@pytest.mark.requirement("RUN-08")
def test_a_measured_command_is_ended_as_wholly_as_any_other(run: Run, marker: str) -> None:
    result = run(
        f"trap '' TERM; setsid -f sleep {marker}; sleep {marker} & sleep {marker}", 0.3, measures_memory=True
    )
    assert (result.outcome, result.exit_status) == ("timed_out", -signal.SIGKILL)
    assert result.leaked == (f"sleep {marker}",)
    assert living_with(marker) == []


@linux_only
@pytest.mark.parametrize("child", ["", "setsid -f "])
def test_a_measured_command_that_kills_its_supervisor_is_a_fault_and_ends(
    run: Run, marker: str, child: str
) -> None:
    with pytest.raises(CommandFault, match="was killed"):
        run(f"kill -9 $PPID; {child}sleep {marker}", measures_memory=True)
    assert living_with(marker) == []


@linux_only
@pytest.mark.requirement("RUN-03")
def test_a_measured_command_ends_when_its_caller_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")  # held open by the command: its reader sees the end when all are gone
    command = "exec 3>held; echo up >&3; sleep 60; echo survived >&3"
    script = (
        "from omx_autoresearch.system.commands import run_command, shell_argv\n"
        f"run_command(shell_argv({command!r}), cwd={str(tmp_path)!r}, env={{'PATH': {os.defpath!r}}},\n"
        f"    timeout_seconds=60, output_path={str(tmp_path / 'output')!r}, measures_memory=True)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(starting.__file__))))
    environment = dict(os.environ) | {"PYTHONPATH": root}
    with (
        subprocess.Popen([sys.executable, "-c", script], env=environment) as caller,
        open(tmp_path / "held", encoding="utf-8") as held,
    ):
        assert held.readline() == "up\n"
        caller.kill()
        assert held.read() == ""


@linux_only
def test_a_measured_command_that_is_killed_with_its_parent_has_the_right_one(run: Run) -> None:
    # bwrap asks for that (PR_SET_PDEATHSIG); its parent must be the supervisor, whose parent we are, from the start
    program = "import os; print(*[line for line in open(f'/proc/{os.getppid()}/status') if 'PPid' in line])"
    result = run([sys.executable, "-I", "-S", "-c", program], measures_memory=True)
    assert (result.outcome, result.exit_status) == ("exited", 0)
    assert Path(result.output_path).read_text().split() == ["PPid:", str(os.getpid())]


@linux_only
def test_a_measured_command_has_the_session_of_no_terminal_and_can_be_cancelled(
    run: Run, marker: str
) -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        result = run(f"setsid -f sleep {marker}; sleep {marker}", cancel_fd=read_end, measures_memory=True)
    finally:
        os.close(read_end)
    assert result.outcome == "cancelled"
    assert living_with(marker) == []


def test_user_and_system_time_are_told_apart_and_together(run: Run) -> None:
    burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    result = run(f"sh -c '{burn}'; true")
    assert result.user_seconds > 0.01
    assert result.cpu_seconds == result.user_seconds + result.system_seconds


# --- Stdout alone ----------------------------------------------------------------------------------------------------


def test_stdout_alone_is_told_apart_and_the_output_has_both(run: Run, tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as stdout:
        result = run("echo one; echo two >&2; echo three", stdout_fd=stdout.fileno())
        stdout.seek(0)
        assert stdout.read() == b"one\nthree\n"
    assert sorted((tmp_path / "output").read_text().split()) == ["one", "three", "two"]
    assert (result.output_size_bytes, result.is_stdout_stored, result.is_truncated) == (14, True, False)


def test_a_flood_on_stderr_takes_no_room_from_stdout(run: Run, tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as stdout:
        result = run(
            "head -c 300000 /dev/zero >&2; echo METRIC", stdout_fd=stdout.fileno(), output_limit_bytes=1000
        )
        stdout.seek(0)
        assert stdout.read() == b"METRIC\n"
    assert (result.is_truncated, os.path.getsize(tmp_path / "output")) == (True, 1000)


@pytest.mark.requirement("RUN-05")
def test_200_megabytes_are_read_and_only_the_limit_is_stored(run: Run, tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as stdout:
        result = run(
            f"head -c {200 * MIB} /dev/zero", 60.0, stdout_fd=stdout.fileno(), output_limit_bytes=MIB
        )
        assert os.fstat(stdout.fileno()).st_size == MIB
    assert (result.exit_status, result.output_size_bytes) == (0, 200 * MIB)
    assert (result.is_truncated, os.path.getsize(tmp_path / "output")) == (True, MIB)


# --- Cancelling ------------------------------------------------------------------------------------------------------


@linux_only
@pytest.mark.case("PRC-02")
@pytest.mark.requirement("RUN-04")
def test_another_thread_ends_a_command_that_ignores_it_wholly(run: Run, tmp_path: Path, marker: str) -> None:
    os.mkfifo(tmp_path / "up")
    read_end, write_end = os.pipe()
    results: list[CommandResult] = []
    command = f"trap '' TERM; setsid -f sleep {marker}; sleep {marker} & echo > up; sleep {marker}"
    thread = threading.Thread(target=lambda: results.append(run(command, cancel_fd=read_end)))
    thread.start()
    try:
        with open(tmp_path / "up", "rb") as up:
            up.read()
        os.write(write_end, b"c")
        thread.join()
    finally:
        os.close(read_end)
        os.close(write_end)
    assert [(result.outcome, result.exit_status) for result in results] == [("cancelled", -signal.SIGKILL)]
    assert results[0].duration_seconds < 20
    assert living_with(marker) == []


@pytest.mark.requirement("RUN-04")
def test_a_closed_descriptor_cancels_as_well(run: Run) -> None:
    read_end, write_end = os.pipe()
    os.close(write_end)
    try:
        assert run("sleep 60", cancel_fd=read_end).outcome == "cancelled"
    finally:
        os.close(read_end)


def test_nobody_who_cancels_changes_nothing(run: Run) -> None:
    read_end, write_end = os.pipe()
    try:
        result = run("echo done; exit 4", cancel_fd=read_end)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert (result.outcome, result.exit_status) == ("exited", 4)


@linux_only
def test_a_command_that_ended_before_anybody_looked_has_ended(
    run: Run, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawn = supervisor._spawn

    def slow(*order: Any) -> Any:
        first = spawn(*order)
        os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        return first

    monkeypatch.setattr(supervisor, "_spawn", slow)
    result = run(f"sleep {marker} & exit 3", 5.0)  # the pipe stays open
    assert (result.outcome, result.exit_status) == ("exited", 3)
