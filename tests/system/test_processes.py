"""Who a process is, whether it lives, and the marks of an agent around it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.system import processes
from omx_autoresearch.system.processes import (
    ProcessIdentity,
    agent_marks,
    ancestors,
    child_pids,
    command_line,
    command_name,
    descendant_pids,
    identify,
    is_alive,
    parent_pid,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until the test has ended."""
    with running("cat", "-") as process:
        yield process


@contextmanager
def running(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """A copy of `cat` that has come to run its own code, ended afterwards."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"up\n")
        process.stdin.flush()
        try:
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()
            process.stdin.close()


def identity_of(pid: int) -> ProcessIdentity:
    identity = identify(pid)
    assert identity is not None
    return identity


def test_an_identity_is_the_same_at_every_look(child: subprocess.Popen[bytes]) -> None:
    assert identity_of(child.pid) == identity_of(child.pid)
    assert is_alive(identity_of(child.pid))


def test_a_pid_taken_over_by_another_process_is_not_the_first_one(child: subprocess.Popen[bytes]) -> None:
    earlier = ProcessIdentity(child.pid, identity_of(child.pid).started + "0")
    assert not is_alive(earlier)


def test_a_zombie_is_not_alive(child: subprocess.Popen[bytes]) -> None:
    identity = identity_of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None
    assert not is_alive(identity)


def test_a_pid_that_nobody_has_is_no_process() -> None:
    assert identify(2**31 - 1) is None
    assert ancestors(2**31 - 1) == ()
    assert command_name(2**31 - 1) == ""
    assert command_line(2**31 - 1) == ""
    assert child_pids(2**31 - 1) == ()


def test_the_ancestors_are_told_nearest_first(child: subprocess.Popen[bytes]) -> None:
    chain = ancestors(child.pid)
    assert chain[0] == identity_of(os.getpid())
    assert [process.pid for process in chain[1:]][:1] in ([os.getppid()], [])
    assert child.pid not in [process.pid for process in chain]


def test_children_and_what_is_below_them_are_found() -> None:
    script = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        try:
            assert shell.pid in child_pids(os.getpid())
            assert child_pids(shell.pid) == (grandchild,)
            below = descendant_pids(os.getpid())
            assert below.index(shell.pid) < below.index(grandchild)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_name_that_the_kernel_cut_is_completed(tmp_path: Path) -> None:
    program = tmp_path / "codex-linux-sandbox"
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    with running(str(program)) as process:
        assert command_name(process.pid) == "codex-linux-sandbox"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("cat") or "/bin/cat", program)
    with running(str(program)) as process:
        assert parent_pid(process.pid) == os.getpid()
        assert is_alive(identity_of(process.pid))


def test_a_command_line_is_readable(child: subprocess.Popen[bytes]) -> None:
    assert command_line(child.pid) == "cat -"


def test_other_systems_are_read_through_psutil(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "ON_LINUX", False)
    assert is_alive(identity_of(child.pid))
    assert ancestors(child.pid)[0] == identity_of(os.getpid())
    assert child.pid in child_pids(os.getpid())
    assert (command_name(child.pid), command_line(child.pid)) == ("cat", "cat -")
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identify(child.pid) is None


CLIENT = ProcessIdentity(41, "boot:7")


def test_an_owner_at_a_terminal_has_no_marks() -> None:
    reasons = agent_marks(
        {"HOME": "/home/u"}, marks=("CLAUDECODE",), ancestors=(CLIENT,), bound=(), pid1_name="systemd"
    )
    assert reasons == ()


def test_a_mark_is_told_by_name_and_never_by_value() -> None:
    (reason,) = agent_marks(
        {"CLAUDECODE": "secret"}, marks=("CLAUDECODE", "GEMINI_CLI"), ancestors=(), bound=(), pid1_name="init"
    )
    assert "CLAUDECODE" in reason
    assert "secret" not in reason


def test_an_empty_mark_is_still_a_mark() -> None:
    assert agent_marks({"CLAUDECODE": ""}, marks=("CLAUDECODE",), ancestors=(), bound=(), pid1_name="init")


def test_a_bound_client_among_the_ancestors_is_a_mark() -> None:
    reasons = agent_marks({}, marks=(), ancestors=(CLIENT,), bound=(CLIENT,), pid1_name="init")
    assert "41" in reasons[0]


def test_a_later_process_with_the_pid_of_a_client_is_no_mark() -> None:
    later = ProcessIdentity(CLIENT.pid, "boot:8")
    assert agent_marks({}, marks=(), ancestors=(later,), bound=(CLIENT,), pid1_name="init") == ()


@pytest.mark.parametrize("name", ["bwrap", "codex-linux-sandbox", "codex-linux-san", "/usr/bin/bwrap"])
def test_a_clients_sandbox_as_pid_1_is_a_mark(name: str) -> None:
    assert agent_marks({}, marks=(), ancestors=(), bound=(), pid1_name=name)


@pytest.mark.parametrize("name", ["systemd", "tini", "docker-init", "sh", "", "bwrapped"])
def test_another_container_is_no_sandbox_of_an_agent(name: str) -> None:
    assert agent_marks({}, marks=(), ancestors=(), bound=(), pid1_name=name) == ()


def test_every_reason_is_told() -> None:
    reasons = agent_marks({"A": "1"}, marks=("A",), ancestors=(CLIENT,), bound=(CLIENT,), pid1_name="bwrap")
    assert len(reasons) == 3
