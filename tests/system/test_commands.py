"""Commands end when they should, wholly, and what they did is told as it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.foundation.errors import CommandFault, StorageFailed
from omx_autoresearch.system import commands
from omx_autoresearch.system.clock import SystemClock
from omx_autoresearch.system.commands import (
    CommandResult,
    explain_shell_status,
    fork_detached,
    run_command,
    shell_argv,
)
from omx_autoresearch.system.processes import RUN_MARK
from omx_autoresearch.system.supervisor import CUT_MARK
from tests.support.clocks import ClockUntil
from tests.support.pipes import let_go, opened, word_from, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[..., CommandResult]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a shell line, or an argument list, in tmp_path."""

    def run_it(command: str | Sequence[str], timeout_seconds: float = 20.0, **more: Any) -> CommandResult:
        argv = shell_argv(command) if isinstance(command, str) else command
        options: dict[str, Any] = {"env": {"PATH": os.defpath}, "cwd": str(tmp_path), "grace_seconds": 0.2}
        output_path = str(tmp_path / "output")
        return run_command(argv, timeout_seconds=timeout_seconds, output_path=output_path, **(options | more))

    return run_it


@pytest.fixture
def marker() -> str:
    """A number of seconds for `sleep` that no other process on the machine has in its arguments."""
    return f"60.{uuid.uuid4().int % 10**12:012}"


def living_with(marker: str) -> list[str]:
    """The command lines of all processes that have the marker among their arguments."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as stream:
                    line = stream.read()
            except OSError:
                continue
            if marker.encode() in line:
                found.append(line.decode())
    return found


def escape(marker: str) -> str:
    """A shell line that returns when a child of it stands in a session of its own.

    The child waits by itself and executes nothing more: a process has no command line at the moment of an exec.
    """
    child = f"echo > away; read line < never; : {marker}"
    return f"mkfifo away never; setsid -f sh -c '{child}'; read line < away"


def output_of(result: CommandResult) -> str:
    with open(result.output_path, encoding="utf-8") as stream:
        return stream.read()


# --- Exits -----------------------------------------------------------------------------------------------------------


def test_an_exit_status_and_both_streams_are_told(run: Run) -> None:
    result = run("echo out; echo err >&2; exit 3")
    assert (result.outcome, result.exit_status, result.error) == ("exited", 3, "")
    assert output_of(result) == "out\nerr\n"
    assert (result.output_size_bytes, result.is_truncated, result.leaked) == (8, False, ())
    assert result.cpu_seconds >= 0
    assert result.argv == ("/bin/sh", "-c", "echo out; echo err >&2; exit 3")


def test_a_signal_is_a_negative_exit_status(run: Run) -> None:
    result = run("kill -9 $$")
    assert (result.outcome, result.exit_status) == ("exited", -signal.SIGKILL)


def test_the_processor_time_of_grandchildren_counts(run: Run) -> None:
    burn = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"
    assert run(f"sh -c '{burn}'; true").cpu_seconds > 0.01


def test_the_command_has_exactly_the_environment_and_folder_named_and_the_mark_of_a_run(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    result = run("env; pwd", env={"PATH": os.defpath, "ONLY": "this"}, cwd=str(tmp_path / "in"))
    lines = set(output_of(result).splitlines()) - {"_=/usr/bin/env"}
    marks = {line for line in lines if line.startswith(f"{RUN_MARK}=")}
    assert len(marks) == 1
    assert lines - marks == {
        f"PATH={os.defpath}",
        "ONLY=this",
        f"PWD={tmp_path / 'in'}",
        str(tmp_path / "in"),
    }


def test_a_program_is_looked_up_in_the_path_of_the_command_not_ours(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "only-here"
    program.write_text("#!/bin/sh\necho found\n")
    program.chmod(0o755)
    assert output_of(run(["only-here"], env={"PATH": str(tmp_path / "bin")})) == "found\n"


@pytest.mark.case("PRC-04")
def test_stdin_is_empty(run: Run) -> None:
    result = run("cat; read x; echo read said $?")
    assert (result.outcome, output_of(result)) == ("exited", "read said 1\n")


@linux_only
def test_signals_are_as_a_fresh_program_expects_them(run: Run) -> None:
    libc_own = 1 << 31 | 1 << 32  # signals 32 and 33 belong to the C library
    result = run("grep -E '^Sig(Blk|Ign)' /proc/self/status")
    masks = [int(line.split()[1], 16) & ~libc_own for line in output_of(result).splitlines()]
    assert masks == [0, 0]


@linux_only
def test_no_descriptor_of_ours_reaches_the_command(run: Run, tmp_path: Path) -> None:
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(lock, True)
    try:
        result = run("readlink /proc/self/fd/*")
    finally:
        os.close(lock)
    assert str(tmp_path / "lock") not in output_of(result)
    assert str(tmp_path / "output") not in output_of(result)


# --- Output ----------------------------------------------------------------------------------------------------------


def test_of_an_output_past_the_limit_the_beginning_and_the_end_are_stored(run: Run) -> None:
    result = run("echo first; head -c 300000 /dev/zero; echo; echo last; exit 4", output_limit_bytes=1000)
    assert (result.outcome, result.exit_status) == ("exited", 4)
    assert (result.output_size_bytes, result.is_truncated) == (300012, True)
    kept = Path(result.output_path).read_bytes()
    assert (len(kept), kept[:6], kept[-6:]) == (1000, b"first\n", b"\nlast\n")
    assert kept.split(b"\n")[2].startswith(CUT_MARK.strip())


@pytest.mark.parametrize("length", [1, 70, 3000, 70_000])
def test_lines_that_count_are_kept_whole_of_an_output_of_any_length(
    run: Run, tmp_path: Path, length: int
) -> None:
    wanted = [f"{number} COUNTS" for number in range(250)]
    printed = tmp_path / "printed"
    printed.write_text("x" * length + "\n" + "".join(line + "\n" + "another\r\n" * 50 for line in wanted))
    result = run(f"cat {printed}", output_limit_bytes=4000, line_words=(b"COUNTS",))
    lines = output_of(result).replace("\r", "").split("\n")
    assert result.is_truncated
    assert [line for line in lines if line.endswith("COUNTS")] == wanted
    assert lines.count("another") < 600
    assert not result.error


def test_more_lines_that_count_than_can_be_kept_are_a_fault_that_is_named(run: Run) -> None:
    result = run("yes COUNTS | head -n 9999", output_limit_bytes=1000, line_words=(b"COUNTS",))
    assert (result.exit_status, result.is_truncated) == (0, True)
    assert "more than can be kept" in result.error


@linux_only
def test_a_program_that_does_not_wait_for_its_output_loses_none_of_a_megabyte(run: Run) -> None:
    program = (
        "import os, sys; os.set_blocking(1, False); sys.exit(os.write(1, b'x' * 1_000_000) != 1_000_000)"
    )
    result = run(f'{sys.executable} -c "{program}"')
    assert (result.exit_status, result.output_size_bytes) == (0, 1_000_000)


def test_output_of_exactly_the_limit_is_whole(run: Run) -> None:
    result = run("head -c 1000 /dev/zero", output_limit_bytes=1000)
    assert (result.output_size_bytes, result.is_truncated) == (1000, False)


def test_a_command_that_never_stops_writing_still_meets_its_deadline(run: Run) -> None:
    result = run("yes", 0.3, output_limit_bytes=1000)
    assert (result.outcome, result.is_truncated) == ("timed_out", True)


def test_an_output_file_that_cannot_be_written_is_a_fault_with_a_cure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    with pytest.raises(StorageFailed, match="cannot be written") as caught:
        run("true")
    assert caught.value.next_step


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_loses_output_not_the_verdict(run: Run, tmp_path: Path) -> None:
    (tmp_path / "output").symlink_to("/dev/full")
    result = run("echo lost; exit 5")
    assert (result.outcome, result.exit_status, result.is_truncated) == ("exited", 5, True)
    assert "could not be stored" in result.error


# --- Deadlines and trees ---------------------------------------------------------------------------------------------


@linux_only
@pytest.mark.case("PRC-01")
def test_a_time_out_ends_the_whole_tree(run: Run, marker: str) -> None:
    result = run(f"sleep {marker} & sleep {marker}", 0.3)
    assert (result.outcome, result.exit_status) == ("timed_out", -signal.SIGTERM)
    assert result.duration_seconds >= 0.3
    assert living_with(marker) == []


@linux_only
@pytest.mark.case("PRC-02")
def test_what_ignores_sigterm_is_killed_after_the_grace(run: Run, marker: str, tmp_path: Path) -> None:
    result = run(f"trap '' TERM; touch up; echo up; sleep {marker}", clock=ClockUntil(tmp_path / "up"))
    assert (result.outcome, result.exit_status) == ("timed_out", -signal.SIGKILL)
    assert output_of(result) == "up\n"
    assert living_with(marker) == []


@linux_only
@pytest.mark.case("VAL-04")
def test_a_command_that_exits_0_when_told_to_stop_has_timed_out(
    run: Run, marker: str, tmp_path: Path
) -> None:
    command = f"trap 'exit 0' TERM; sleep {marker} & touch up; echo up; wait"
    result = run(command, clock=ClockUntil(tmp_path / "up"))
    assert (result.outcome, result.exit_status) == ("timed_out", 0)
    assert living_with(marker) == []


def test_the_clock_decides_what_timed_out(run: Run) -> None:
    class JumpingClock(SystemClock):
        hours = 0

        def monotonic(self) -> float:
            self.hours += 1
            return self.hours * 3600.0

    assert run("exit 0", 20.0, clock=JumpingClock()).outcome == "timed_out"


@linux_only
@pytest.mark.case("PRC-06")
def test_nothing_of_a_timed_out_command_writes_afterwards(run: Run, marker: str, tmp_path: Path) -> None:
    survivor = f"trap '' TERM; while :; do echo METRIC v=1 | tee -a late; : {marker}; done"
    result = run(f"setsid sh -c '{survivor}' & sleep {marker}", clock=ClockUntil(tmp_path / "late"))
    assert result.outcome == "timed_out"
    size = (tmp_path / "late").stat().st_size
    assert living_with(marker) == []
    assert (tmp_path / "late").stat().st_size == size


@linux_only
def test_a_child_in_another_session_is_found_told_and_ended(run: Run, marker: str) -> None:
    result = run(escape(marker) + "; exit 0")
    assert (result.outcome, result.exit_status) == ("exited", 0)
    assert [marker in line for line in result.leaked] == [True]
    assert living_with(marker) == []


@linux_only
def test_a_double_forked_child_without_environment_is_found_too(run: Run, marker: str) -> None:
    script = (
        "import os,sys\n"
        "r, w = os.pipe()\n"
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid(); os.write(w, b'1')\n"
        f"    os.execve('/bin/sleep', ['sleep', '{marker}'], {{}})\n"
        "os.read(r, 1)\n"
    )
    result = run([sys.executable, "-I", "-S", "-c", script])
    assert (result.outcome, len(result.leaked)) == ("exited", 1)
    assert living_with(marker) == []


@linux_only
def test_a_child_in_the_background_neither_delays_the_answer_nor_stays(run: Run, marker: str) -> None:
    result = run(f"sleep {marker} & echo done")
    assert (result.outcome, result.exit_status, result.leaked) == ("exited", 0, ())
    assert result.duration_seconds < 15
    assert output_of(result) == "done\n"
    assert living_with(marker) == []


@linux_only
def test_a_stopped_child_is_ended(run: Run, marker: str) -> None:
    assert run(f"sleep {marker} & kill -STOP $!; echo stopped").outcome == "exited"
    assert living_with(marker) == []


@linux_only
def test_children_of_others_are_left_alone(run: Run, marker: str) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True) as other:
        run(escape(marker))
        assert other.poll() is None


@linux_only
def test_commands_in_two_threads_do_not_end_each_other(run: Run, tmp_path: Path, marker: str) -> None:
    os.mkfifo(tmp_path / "gate")
    results: dict[str, CommandResult] = {}

    def waiting() -> None:
        argv = shell_argv("cat gate; exit 7")
        env = {"PATH": os.defpath}
        output_path = str(tmp_path / "other")
        results["waiting"] = run_command(
            argv, cwd=str(tmp_path), env=env, timeout_seconds=20, output_path=output_path
        )

    thread = threading.Thread(target=waiting)
    thread.start()
    with opened(tmp_path / "gate"):  # once the other command reads
        assert run(escape(marker)).exit_status == 0
    thread.join()
    assert (results["waiting"].outcome, results["waiting"].exit_status) == ("exited", 7)


@linux_only
def test_when_the_caller_is_killed_the_command_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")  # held open by the command: its reader sees the end when all are gone
    command = "exec 3>held; echo up >&3; sleep 5; echo survived >&3"
    script = (
        "from omx_autoresearch.system.commands import run_command, shell_argv\n"
        f"run_command(shell_argv({command!r}), cwd={str(tmp_path)!r}, env={{'PATH': {os.defpath!r}}},\n"
        f"    timeout_seconds=60, output_path={str(tmp_path / 'output')!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], env=import_env()) as caller:
        try:
            with written(tmp_path / "held") as held:
                assert held.readline() == "up\n"
                caller.kill()
                assert held.read() == ""
        finally:
            caller.kill()


def import_env() -> dict[str, str]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(commands.__file__))))
    return dict(os.environ) | {"PYTHONPATH": root}


@linux_only
def test_a_command_that_kills_its_supervisor_is_a_fault_and_ends(run: Run, marker: str) -> None:
    with pytest.raises(CommandFault, match="was killed"):
        run(f"kill -9 $PPID; sleep {marker}")
    assert living_with(marker) == []


# --- Not started -----------------------------------------------------------------------------------------------------


def script(path: Path, text: str, mode: int) -> None:
    path.write_text(text)
    path.chmod(mode)


@pytest.mark.case("VAL-01")
def test_a_script_that_is_not_executable_is_not_started_and_the_cure_is_told(
    run: Run, tmp_path: Path
) -> None:
    script(tmp_path / "check.sh", "#!/bin/sh\nexit 0\n", 0o644)
    result = run(["./check.sh"])
    assert (result.outcome, result.exit_status) == ("not_started", None)
    assert "./check.sh" in result.error
    assert "mode 0644, EACCES" in result.error
    assert "chmod +x ./check.sh" in result.error


@pytest.mark.case("VAL-01")
def test_a_script_without_shebang_is_not_started_and_the_cure_is_told(run: Run, tmp_path: Path) -> None:
    script(tmp_path / "check.sh", "exit 0\n", 0o755)
    result = run(["./check.sh"])
    assert result.outcome == "not_started"
    assert "ENOEXEC" in result.error
    assert "#!/bin/sh" in result.error


@pytest.mark.case("VAL-01")
@pytest.mark.parametrize("program", ["./check.sh", "no-such-program"])
def test_a_missing_program_is_not_started(run: Run, program: str) -> None:
    result = run([program])
    assert result.outcome == "not_started"
    assert program in result.error
    assert "ENOENT" in result.error


def test_a_missing_interpreter_is_told_apart_from_a_missing_script(run: Run, tmp_path: Path) -> None:
    script(tmp_path / "check.sh", "#!/no/such/interpreter -x\nexit 0\n", 0o755)
    assert "/no/such/interpreter" in run(["./check.sh"]).error


def test_windows_line_ends_are_named(run: Run, tmp_path: Path) -> None:
    script(tmp_path / "check.sh", "#!/bin/sh\r\nexit 0\r\n", 0o755)
    assert "sed -i" in run(["./check.sh"]).error


def test_a_folder_and_a_missing_working_folder_are_named(run: Run, tmp_path: Path) -> None:
    assert "folder" in run([str(tmp_path)]).error
    assert str(tmp_path / "gone") in run("true", cwd=str(tmp_path / "gone")).error
    assert run(["nul\0byte"]).outcome == "not_started"


@pytest.mark.case("VAL-01")
def test_the_shell_status_of_a_script_that_is_not_executable_is_explained(run: Run, tmp_path: Path) -> None:
    script(tmp_path / "check.sh", "#!/bin/sh\nexit 0\n", 0o644)
    result = run("./check.sh")
    assert result.exit_status == 126
    assert "chmod +x ./check.sh" in explain_shell_status("./check.sh", 126, str(tmp_path))
    assert "chmod +x" in explain_shell_status("MODE=a ./check.sh --all", 126, str(tmp_path))


def test_the_shell_status_of_what_is_missing_is_explained(tmp_path: Path) -> None:
    script(tmp_path / "check.sh", "#!/no/such/interpreter\n", 0o755)
    assert "no such file" in explain_shell_status("./gone.sh", 127, str(tmp_path))
    assert "/no/such/interpreter" in explain_shell_status("./check.sh", 127, str(tmp_path))
    assert "not found" in explain_shell_status("pytset -q", 127, str(tmp_path))
    assert "not found" in explain_shell_status("echo 'open", 127, str(tmp_path))


@pytest.mark.parametrize("status", [0, 1, 2, 125, 128, -9, None])
def test_any_other_status_needs_no_explanation(status: int | None, tmp_path: Path) -> None:
    assert explain_shell_status("./gone.sh", status, str(tmp_path)) == ""


def test_a_script_without_shebang_runs_through_the_shell(run: Run, tmp_path: Path) -> None:
    script(tmp_path / "check.sh", "exit 6\n", 0o755)
    assert run("./check.sh").exit_status == 6


# --- Detached --------------------------------------------------------------------------------------------------------


def test_work_that_ends_in_time_is_waited_for(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "done").write_text("yes")

    child = fork_detached(work)
    assert child.wait(20)
    assert (tmp_path / "done").read_text() == "yes"
    assert child.wait(0)


def test_work_that_is_slower_goes_on_after_we_stopped_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")

    def work() -> None:
        (tmp_path / "gate").read_text()
        (tmp_path / "done").write_text("yes")

    child = fork_detached(work)
    assert not child.wait(0.01)
    let_go(tmp_path / "gate")
    assert child.wait(20)
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("fault", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_fault_of_the_work_does_not_fall_back_into_our_code(fault: type[BaseException]) -> None:
    before = os.getpid()

    def work() -> None:
        raise fault

    try:
        child = fork_detached(work)
    finally:
        if os.getpid() != before:
            os._exit(70)  # the child fell through: the wait below would pass, the status says it
    assert child.wait(20)
    assert os.getpid() == before


@linux_only
def test_detached_work_has_its_own_session_and_none_of_our_descriptors(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    with open(tmp_path / "lock") as lock:
        os.set_inheritable(lock.fileno(), True)

        def work() -> None:
            links = [os.readlink(f"/proc/self/fd/{number}") for number in (0, 1, 2)]
            held = [name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]
            links += [os.readlink(f"/proc/self/fd/{name}") for name in held]
            own_session = os.getsid(0) == os.getpid()
            (tmp_path / "seen").write_text("\n".join([str(own_session), *links]))

        assert fork_detached(work).wait(20)
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen[:4] == ["True", os.devnull, os.devnull, os.devnull]
    assert str(tmp_path / "lock") not in seen


@linux_only
def test_detached_work_can_run_a_command(run: Run, tmp_path: Path, marker: str) -> None:
    def work() -> None:
        result = run(escape(marker) + "; exit 3")
        (tmp_path / "status").write_text(f"{result.exit_status} {len(result.leaked)}")

    assert fork_detached(work).wait(20)
    assert (tmp_path / "status").read_text() == "3 1"
    assert living_with(marker) == []


def test_detached_work_outlives_who_started_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    os.mkfifo(tmp_path / "answer")
    script = (
        "from omx_autoresearch.system.commands import fork_detached\n"
        "def work():\n"
        f"    open({str(tmp_path / 'gate')!r}).read()\n"
        f"    open({str(tmp_path / 'answer')!r}, 'w').write('alive')\n"
        "print(fork_detached(work).wait(0))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], env=import_env(), capture_output=True, check=True)
    assert done.stdout == b"False\n"
    let_go(tmp_path / "gate")
    assert word_from(tmp_path / "answer") == "alive"
