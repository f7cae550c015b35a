"""What runs in a box can do no more than is said, and what ran without one is not called isolated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.foundation.clients import KEPT_NAMES, WATCHED_NAMES
from omx_autoresearch.foundation.errors import CommandFault
from omx_autoresearch.system import sandbox
from omx_autoresearch.system.commands import NOT_ISOLATED, CommandResult, Isolation, run_command, shell_argv
from omx_autoresearch.system.sandbox import Limits, run_limited
from tests.support.boxes import BOXES, take_box
from tests.support.needs import PYTHON, needs_bubblewrap, needs_environment_in_the_box, needs_user_namespaces

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., CommandResult]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / ".git").mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    return path


@pytest.fixture(params=BOXES)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test runs in each of the boxes."""
    take_box(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def run(tmp_path: Path, workspace: Path) -> Run:
    """Run a shell line in the box of the machine, with the workspace as the place."""

    def run_it(command: str, *, timeout_seconds: float = 20.0, **limits: object) -> CommandResult:
        scratch = str(tmp_path / "scratch")
        return run_limited(
            shell_argv(command),
            Limits(str(workspace), scratch, **limits),  # type: ignore[arg-type]
            cwd=str(workspace),
            env={"PATH": os.environ["PATH"], "TMPDIR": scratch},
            timeout_seconds=timeout_seconds,
            output_path=str(tmp_path / "output"),
            grace_seconds=0.2,
        )

    return run_it


def output_of(result: CommandResult) -> str:
    return Path(result.output_path).read_text(encoding="utf-8")


def test_the_workspace_can_be_written_and_the_exit_status_comes_through(
    kind: str, run: Run, workspace: Path
) -> None:
    result = run("pwd; echo new > made; exit 7")

    assert (result.outcome, result.exit_status) == ("exited", 7)
    assert output_of(result) == f"{workspace}\n"
    assert (workspace / "made").read_text() == "new\n"
    assert result.isolation == Isolation(kind, has_network=False)  # type: ignore[arg-type]


def test_everything_else_is_read_only(kind: str, run: Run, workspace: Path) -> None:
    result = run(
        "echo x > /etc/omx-test; echo x > /var/omx-test; echo x > .git/config; mount -o remount,rw /"
    )

    assert result.exit_status != 0
    assert not os.path.lexists("/etc/omx-test")
    assert not os.path.lexists("/var/omx-test")
    assert list((workspace / ".git").iterdir()) == []


def test_tmp_is_private_and_the_scratch_folder_stays_writable(kind: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")

    result = run(f"echo x > $TMPDIR/made; echo x > /tmp/omx-sandbox-test; cat {tmp_path}/other 2>/dev/null")

    assert (tmp_path / "scratch" / "made").exists()
    assert not os.path.lexists("/tmp/omx-sandbox-test")
    assert str(tmp_path).startswith("/tmp") is (result.exit_status != 0)


def test_the_sockets_of_services_are_out_of_sight(kind: str, run: Run) -> None:
    assert output_of(run("find /run ! -type d ! -path '/run/current-system*'")) == ""


@needs_bubblewrap
def test_bubblewrap_shows_no_network_and_no_process_of_the_machine(run: Run) -> None:
    result = run(
        "ls -d /proc/[0-9]* | wc -l; tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /proc/1/comm"
    )
    processes, *devices, first = output_of(result).split()
    assert int(processes) < 8
    assert devices == ["lo"]
    assert first == "bwrap"


def test_the_network_stays_where_it_is_asked_for(kind: str, run: Run) -> None:
    result = run("readlink /proc/self/ns/net", network=True)

    assert output_of(result).strip() == os.readlink("/proc/self/ns/net")
    assert result.isolation.has_network


def test_a_workspace_that_is_read_only_cannot_be_written(kind: str, run: Run, workspace: Path) -> None:
    run("echo x > made; mkdir folder", is_read_only=True)

    assert [entry.name for entry in workspace.iterdir()] == [".git"]


def test_a_time_out_ends_what_runs_inside(kind: str, run: Run) -> None:
    assert run("trap '' TERM; setsid -f sleep 60; sleep 60", timeout_seconds=0.5).outcome == "timed_out"


@needs_bubblewrap
def test_a_sandbox_that_could_not_be_set_up_is_no_isolation_and_no_verdict(run: Run, tmp_path: Path) -> None:
    result = run("exit 0", shown_paths=(str(tmp_path / "gone"),))

    assert "gone" in result.box_fault
    assert result.isolation == NOT_ISOLATED


def test_a_failing_command_is_no_fault_of_the_sandbox(kind: str, run: Run) -> None:
    assert run("echo failed; exit 1").box_fault == ""


def test_what_could_not_be_started_is_not_called_isolated(kind: str, workspace: Path, tmp_path: Path) -> None:
    result = run_limited(
        [str(tmp_path / "gone")],
        Limits(str(workspace), str(tmp_path / "scratch")),
        cwd=str(workspace),
        env={},
        timeout_seconds=20,
        output_path=str(tmp_path / "output"),
    )
    assert result.exit_status != 0
    assert result.isolation == NOT_ISOLATED


def test_what_ran_without_a_box_is_never_called_isolated(tmp_path: Path) -> None:
    result = run_command(
        ["/bin/echo", "bwrap", "--unshare-net", "--"],
        cwd=str(tmp_path),
        env={},
        timeout_seconds=20,
        output_path=str(tmp_path / "output"),
    )
    assert result.isolation == NOT_ISOLATED


def test_without_any_box_nothing_is_isolated_and_the_cure_is_told(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "none")

    assert not sandbox.can_isolate()
    with pytest.raises(CommandFault, match="bubblewrap is missing") as caught:
        run("true")
    assert "install the package bubblewrap" in caught.value.next_step


def test_landlock_alone_is_a_fence_and_stands_for_no_sandbox(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "fenced")

    result = run("echo x > /var/tmp/omx-test; echo x > made")

    assert not sandbox.can_isolate()
    assert result.isolation == Isolation("fenced", has_network=True)
    assert (workspace / "made").exists()
    assert not os.path.lexists("/var/tmp/omx-test")


@pytest.mark.requirement("RUN-06")
def test_what_is_hidden_cannot_be_read_and_what_is_shown_in_it_can(
    kind: str, run: Run, tmp_path: Path
) -> None:
    hidden = tmp_path / "session"
    (hidden / "shown").mkdir(parents=True)
    (hidden / "shown" / "check").write_text("shown\n")
    (hidden / "secret").write_text("secret\n")
    (tmp_path / "file").write_text("secret\n")
    command = (
        f"cat {hidden}/shown/check; cat {hidden}/secret; cat {tmp_path}/file;"
        f" echo > {hidden}/mine; echo > {hidden}/shown/check"
    )

    result = run(
        command, hidden_paths=(str(hidden), str(tmp_path / "file")), shown_paths=(str(hidden / "shown"),)
    )

    lines = output_of(result).splitlines()
    assert "secret" not in lines
    assert not (hidden / "mine").exists()
    assert (hidden / "shown" / "check").read_text() == "shown\n"
    if not str(tmp_path).startswith("/tmp") or kind == "bubblewrap":
        assert lines[0] == "shown"


def test_a_workspace_below_what_is_hidden_stays(kind: str, run: Run, tmp_path: Path, workspace: Path) -> None:
    result = run("echo here > made; cat made", hidden_paths=(str(tmp_path),))

    assert output_of(result) == "here\n"
    assert (workspace / "made").read_text() == "here\n"


@pytest.mark.requirement("RUN-06")
def test_the_sandboxs_own_process_is_not_told_as_one_left_behind(kind: str, run: Run) -> None:
    assert {run("exit 0").leaked for _ in range(6)} == {()}


# --- names that other programs load


@needs_user_namespaces
def test_a_name_that_other_programs_load_can_neither_be_made_nor_changed(
    kind: str, run: Run, workspace: Path
) -> None:
    ways = "echo x > $n; mkdir $n; echo x > $n/x; ln -s /etc $n; echo x > y; mv y $n; chmod 777 $n; rmdir $n; mv $n z"

    result = run(f"for n in {' '.join(KEPT_NAMES)}; do {ways}; done; rm -f y; true")

    assert [entry.name for entry in workspace.iterdir()] == [".git"]
    assert list((workspace / ".git").iterdir()) == []
    assert result.newcomers == ()


@needs_user_namespaces
def test_git_sees_nothing_of_what_keeps_the_names(kind: str, run: Run, workspace: Path) -> None:
    shutil.rmtree(workspace / ".git")
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)

    assert output_of(run("git status --porcelain --ignored --untracked-files=all")) == ""


@needs_user_namespaces
def test_a_folder_with_them_can_be_copied(kind: str, run: Run, tmp_path: Path) -> None:
    result = run('cp -r . "$TMPDIR/copy"')

    assert (result.exit_status, output_of(result)) == (0, "")


def test_a_name_that_an_empty_folder_would_spoil_is_looked_for_afterwards(
    kind: str, run: Run, workspace: Path
) -> None:
    assert "lefthook.yml" in WATCHED_NAMES
    assert run("echo x > lefthook.yml").newcomers == ("lefthook.yml",)
    assert run("echo y > lefthook.yml; rm -f lefthook.yml; exit 0").newcomers == ()
    assert (workspace / "lefthook.yml").read_text() == "x\n"


@needs_bubblewrap
def test_where_the_system_has_no_such_mounts_what_was_made_is_told(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "bubblewrap without mounts")

    result = run("mkdir .vscode; echo x > made")

    assert result.newcomers == (".vscode",)
    assert (workspace / "made").exists()


def test_landlock_without_mounts_makes_nothing_beside_kept_names(
    run: Run, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_box(monkeypatch, "landlock without mounts")
    (workspace / "build").mkdir()
    (workspace / "notes").write_text("old\n")

    run("mkdir .vscode; echo x > .git/config; echo x > build/made; echo new > notes")

    assert sorted(entry.name for entry in workspace.iterdir()) == [".git", "build", "notes"]
    assert (workspace / "build" / "made").exists()
    assert (workspace / "notes").read_text() == "new\n"


# --- honest programs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "printed"),
    [
        ("import multiprocessing as m; print(m.Pool(2).map(abs, [-1, 2]))", "[1, 2]"),
        ("import concurrent.futures as f; print(list(f.ProcessPoolExecutor(2).map(abs, [-3])))", "[3]"),
        ("import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))", "b'x'"),
        ("import asyncio; print(asyncio.run(asyncio.sleep(0, 'done')))", "done"),
        ("import subprocess; print(subprocess.run(['true']).returncode)", "0"),
        (
            "import os, pty; pid, fd = pty.fork(); os._exit(0) if not pid else print(os.waitpid(pid, 0)[1])",
            "0",
        ),
        ("import tempfile; print(tempfile.TemporaryFile().write(b'xy'))", "2"),
        ("import mmap; print(len(mmap.mmap(-1, 4096)))", "4096"),
        ("import sqlite3; print(sqlite3.connect('db').execute('create table t(x)').rowcount)", "-1"),
        ("import threading; t = threading.Thread(target=print, args=('ran',)); t.start(); t.join()", "ran"),
        ("import os; os.mkfifo('pipe'); print(os.path.exists('pipe'))", "True"),
        ("import os; print(os.getpgid(0) > 0, os.nice(0))", "True 0"),
    ],
)
def test_an_honest_python_program_goes_on_working(kind: str, run: Run, program: str, printed: str) -> None:
    result = run(f'{PYTHON} -c "{program}"')

    assert output_of(result).strip() == printed


@needs_environment_in_the_box
def test_a_test_runner_and_a_build_go_on_working(kind: str, run: Run, workspace: Path) -> None:
    (workspace / "Makefile").write_text("prog: prog.txt\n\tcp prog.txt prog\n")
    (workspace / "prog.txt").write_text("built\n")
    (workspace / "test_it.py").write_text(
        "def test_it(tmp_path): assert (tmp_path / 'x').write_text('x') == 1\n"
    )

    assert output_of(run("make -s && cat prog")) == "built\n"
    assert "1 passed" in output_of(run(f"{sys.executable} -m pytest -q -p no:cacheprovider test_it.py"))


@needs_bubblewrap
def test_a_server_of_the_run_itself_answers_in_bubblewrap(run: Run) -> None:
    program = (
        "import socket, threading\n"
        "for family, place in ((socket.AF_INET, ('127.0.0.1', 0)), (socket.AF_UNIX, 'sock')):\n"
        "    server = socket.socket(family); server.bind(place); server.listen()\n"
        "    client = socket.socket(family); client.connect(server.getsockname())\n"
        "    server.accept()[0].send(b'answer'); print(client.recv(6).decode())\n"
    )
    assert output_of(run(f'{PYTHON} -c "{program}"')).split() == ["answer", "answer"]


# --- which bubblewrap


def test_a_bubblewrap_that_others_than_root_can_write_is_named_and_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "bwrap"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o777)
    monkeypatch.setattr(sandbox, "_PLACES", ())
    monkeypatch.setattr(sandbox, "_found", [])
    monkeypatch.setenv("PATH", str(tmp_path))

    assert sandbox.bubblewrap_path() is None
    assert f"bubblewrap ({mine}) is not used, since others than root can write it" in sandbox.box().what


@needs_bubblewrap
def test_a_bubblewrap_elsewhere_on_path_is_found_where_just_root_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = sandbox.bubblewrap_path()
    assert found is not None
    monkeypatch.setattr(sandbox, "_PLACES", ())
    monkeypatch.setenv("PATH", os.path.dirname(found))

    assert sandbox.bubblewrap_path() == os.path.realpath(found)


@pytest.mark.skipif(not str(tempfile.gettempdir()).startswith("/tmp"), reason="temporary files lie elsewhere")
def test_a_folder_around_the_workspace_is_shown_read_only_and_nothing_hidden_with_it(
    kind: str, run: Run, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "beside").write_text("shown\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "secret").write_text("secret\n")
    result = run(
        "cat ../beside; cat ../state/secret; echo x > ../beside; echo made > here; cat here",
        shown_paths=(str(tmp_path),),
        hidden_paths=(str(tmp_path / "state"),),
    )
    said = output_of(result).splitlines()
    assert {"shown", "made"} <= set(said)
    assert "secret" not in said
    assert (tmp_path / "beside").read_text() == "shown\n"


@pytest.mark.parametrize("around", ["/", "/tmp"])
def test_a_folder_around_all_that_a_box_empties_is_not_shown(
    kind: str, run: Run, tmp_path: Path, around: str
) -> None:
    (tmp_path / "beside").write_text("shown\n")
    result = run(f"cat {tmp_path}/beside; ls /tmp; echo made > here; cat here", shown_paths=(around,))
    assert "shown" not in output_of(result).splitlines()
    assert "made" in output_of(result).splitlines()
