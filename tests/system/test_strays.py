"""Processes that work in a folder although nobody answers for them any more."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.system.processes import ON_LINUX, ProcessIdentity, has_terminal, identify, is_alive
from omx_autoresearch.system.strays import end_strays, end_tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not ON_LINUX, reason="needs /proc")


def works_in(
    folder: Path, code: str = "import time; print(flush=True); time.sleep(600)"
) -> subprocess.Popen[bytes]:
    """A process of its own session that has begun to work in a folder."""
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, start_new_session=True, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.case("PRC-06")
def test_what_works_in_the_folder_is_ended_and_nothing_else(tmp_path: Path) -> None:
    inside, beside = works_in(tmp_path / "work"), works_in(tmp_path / "work-too")
    try:
        assert end_strays([str(tmp_path / "work")], grace_seconds=0.0) == (inside.pid,)
        assert inside.wait() == -9
        assert beside.poll() is None
    finally:
        for process in (inside, beside):
            process.kill()
            process.communicate()


def test_a_folder_that_is_gone_still_tells_who_works_in_it(tmp_path: Path) -> None:
    process = works_in(tmp_path / "work")
    (tmp_path / "work").rmdir()
    try:
        assert end_strays([str(tmp_path / "work")], grace_seconds=0.0) == (process.pid,)
    finally:
        process.kill()
        process.communicate()


def test_what_ends_by_itself_in_time_is_not_killed(tmp_path: Path) -> None:
    process = works_in(tmp_path / "work", "import sys; print(flush=True); sys.stdin.readline()")
    process.kill()  # a supervisor's command, a moment before it is gone
    assert end_strays([str(tmp_path / "work")], grace_seconds=600.0) == ()
    process.communicate()


def test_a_person_at_a_terminal_stays(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path / "work")
        os.execv("/bin/sh", ["sh", "-c", "echo here; read x"])
    try:
        os.read(terminal, 100)
        assert has_terminal(pid)
        assert end_strays([str(tmp_path / "work")], grace_seconds=0.0) == ()
        assert identify(pid) is not None
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_a_tree_is_ended_with_everything_below_it_and_only_the_process_that_is_meant(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child = identify(int(process.stdout.readline()))
    identity = identify(process.pid)
    assert child is not None
    assert identity is not None
    try:
        assert end_tree(ProcessIdentity(process.pid, "another boot:1")) == ()
        assert is_alive(identity)
        assert end_tree(identity) == (process.pid, child.pid)
        assert not is_alive(child)
        assert end_tree(identity) == ()
    finally:
        process.kill()
        process.communicate()
