"""What runs in bubblewrap can do no more than is said, and what ran without it is not called isolated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.system import sandbox
from omx_autoresearch.system.commands import CommandResult, run_command, shell_argv
from omx_autoresearch.system.sandbox import NOT_ISOLATED, bubblewrap_argv, bubblewrap_fault, isolation_of
from tests.support.needs import needs_bubblewrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., CommandResult]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / ".git").mkdir(parents=True)
    return path


@pytest.fixture
def run(tmp_path: Path, workspace: Path) -> Run:
    """Run a shell line in the sandbox, with the workspace as the place."""

    def run_it(command: str, *, timeout_seconds: float = 20.0, **options: object) -> CommandResult:
        argv = bubblewrap_argv(shell_argv(command), workspace_path=str(workspace), **options)  # type: ignore[arg-type]
        return run_command(
            argv,
            cwd=str(workspace),
            env={"PATH": os.environ["PATH"]},
            timeout_seconds=timeout_seconds,
            output_path=str(tmp_path / "output"),
            grace_seconds=0.2,
        )

    return run_it


def output_of(result: CommandResult) -> str:
    with open(result.output_path, encoding="utf-8") as stream:
        return stream.read()


@needs_bubblewrap
def test_the_workspace_can_be_written_and_the_exit_status_comes_through(run: Run, workspace: Path) -> None:
    result = run("pwd; echo new > made; exit 7")
    assert (result.outcome, result.exit_status) == ("exited", 7)
    assert output_of(result) == f"{workspace}\n"
    assert (workspace / "made").read_text() == "new\n"


@needs_bubblewrap
def test_everything_else_is_read_only(run: Run, workspace: Path) -> None:
    result = run(
        "echo x > /etc/omx-test; echo x > /var/omx-test; echo x > .git/config; mount -o remount,rw /"
    )
    assert result.exit_status != 0
    assert not os.path.lexists("/etc/omx-test")
    assert not os.path.lexists("/var/omx-test")
    assert list((workspace / ".git").iterdir()) == []


@needs_bubblewrap
def test_tmp_is_private_and_folders_named_stay_writable(run: Run, tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "other").write_text("x")
    result = run(
        f"echo x > {tmp_path}/named/made; echo x > /tmp/omx-sandbox-test; cat {tmp_path}/other 2>/dev/null",
        writable_paths=[str(tmp_path / "named")],
    )
    assert (tmp_path / "named" / "made").exists()
    assert not os.path.lexists("/tmp/omx-sandbox-test")
    assert str(tmp_path).startswith("/tmp") is (result.exit_status != 0)


@needs_bubblewrap
def test_the_sockets_of_services_are_out_of_sight(run: Run) -> None:
    assert output_of(run("find /run ! -type d ! -path '/run/current-system*'")) == ""


@needs_bubblewrap
def test_there_is_no_network_and_no_process_of_the_machine(run: Run) -> None:
    result = run(
        "ls -d /proc/[0-9]* | wc -l; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /proc/1/comm"
    )
    processes, *devices, first = output_of(result).split()
    assert int(processes) < 8
    assert devices == ["lo"]
    assert first == "bwrap"


@needs_bubblewrap
def test_the_network_stays_where_it_is_asked_for(run: Run) -> None:
    result = run("readlink /proc/self/ns/net", network=True)
    assert output_of(result).strip() == os.readlink("/proc/self/ns/net")
    assert isolation_of(result).has_network


@needs_bubblewrap
def test_a_time_out_ends_what_runs_inside(run: Run) -> None:
    assert run("trap '' TERM; setsid -f sleep 60; sleep 60", timeout_seconds=0.5).outcome == "timed_out"


@needs_bubblewrap
def test_what_ran_in_bubblewrap_is_said_so(run: Run) -> None:
    isolation = isolation_of(run("exit 1"))
    assert (isolation.backend, isolation.has_network) == ("bubblewrap", False)


@needs_bubblewrap
def test_a_sandbox_that_could_not_be_set_up_is_no_isolation_and_no_verdict(run: Run, tmp_path: Path) -> None:
    result = run("exit 0", writable_paths=[str(tmp_path / "gone")])
    assert "gone" in bubblewrap_fault(result)
    assert isolation_of(result) == NOT_ISOLATED


@needs_bubblewrap
def test_a_failing_command_is_no_fault_of_the_sandbox(run: Run) -> None:
    assert bubblewrap_fault(run("echo failed; exit 1")) == ""


def test_what_ran_without_bubblewrap_is_never_called_isolated(tmp_path: Path) -> None:
    result = run_command(
        ["/bin/echo", "bwrap", "--unshare-net", "--"],
        cwd=str(tmp_path),
        env={},
        timeout_seconds=20,
        output_path=str(tmp_path / "output"),
    )
    assert isolation_of(result) == NOT_ISOLATED


def test_without_bubblewrap_nothing_is_isolated_and_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "bubblewrap_path", lambda: None)
    assert not sandbox._isolates()
    with pytest.raises(CommandFault, match="not installed") as caught:
        bubblewrap_argv(["true"], workspace_path="/")
    assert "bubblewrap" in caught.value.next_step


@needs_bubblewrap
@pytest.mark.requirement("RUN-06")
def test_what_is_hidden_looks_empty_and_what_is_shown_in_it_can_be_read(run: Run, tmp_path: Path) -> None:
    hidden = tmp_path / "session"
    (hidden / "shown").mkdir(parents=True)
    (hidden / "shown" / "check").write_text("shown\n")
    (hidden / "secret").write_text("secret\n")
    (tmp_path / "file").write_text("secret\n")
    command = (
        f"ls {hidden}; cat {hidden}/shown/check; cat {hidden}/secret; cat {tmp_path}/file;"
        f" echo > {hidden}/mine; echo > {hidden}/shown/check"
    )
    result = run(
        command, hidden_paths=(str(hidden), str(tmp_path / "file")), shown_paths=(str(hidden / "shown"),)
    )
    lines = output_of(result).splitlines()
    assert lines[:2] == ["shown", "shown"]
    assert "secret" not in lines
    assert not (hidden / "mine").exists()
    assert (hidden / "shown" / "check").read_text() == "shown\n"


@needs_bubblewrap
def test_a_workspace_below_what_is_hidden_stays(run: Run, tmp_path: Path, workspace: Path) -> None:
    result = run("echo here > made; cat made", hidden_paths=(str(tmp_path),))
    assert output_of(result) == "here\n"
    assert (workspace / "made").read_text() == "here\n"


@needs_bubblewrap
@pytest.mark.requirement("RUN-06")
def test_the_sandboxs_own_process_is_not_told_as_one_left_behind(run: Run) -> None:
    assert {run("exit 0").leaked for _ in range(12)} == {()}
