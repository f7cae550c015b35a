"""Processes that a command left running, although nobody answers for them any more."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.system.processes import (
    ON_LINUX,
    ProcessIdentity,
    end_strays,
    end_tree,
    identify,
    is_alive,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not ON_LINUX, reason="needs /proc")


def marked(
    mark: str, code: str = "import time; print(flush=True); time.sleep(600)"
) -> subprocess.Popen[bytes]:
    """A process of its own session that runs with a private temporary folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd="/",
        env={**os.environ, "TMPDIR": mark},
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.case("PRC-06")
def test_what_a_command_left_running_is_ended_wherever_it_works_and_nothing_else(tmp_path: Path) -> None:
    ours = marked(f"{tmp_path}/scratch/ab12/tmp")
    theirs = [marked(f"{tmp_path}/scratch-too/tmp"), marked(f"{tmp_path}/scratch")]
    try:
        assert end_strays(f"{tmp_path}/scratch", grace_seconds=0.0) == (ours.pid,)
        assert ours.wait() == -9
        assert [process.poll() for process in theirs] == [None, None]
    finally:
        for process in (ours, *theirs):
            process.kill()
            process.communicate()


def test_what_ends_by_itself_in_time_is_not_killed(tmp_path: Path) -> None:
    process = marked(f"{tmp_path}/scratch/ab12/tmp")
    process.kill()  # a supervisor's command, a moment before it is gone
    assert end_strays(f"{tmp_path}/scratch", grace_seconds=600.0) == ()
    process.communicate()


def test_whoever_asks_and_what_is_above_stay(tmp_path: Path) -> None:
    """An agent that one of the commands started may itself resume the experiment."""
    code = (
        "import subprocess, sys\n"
        "inner = 'import sys; from omx_autoresearch.system import processes'\n"
        "inner += '; print(processes.end_strays(sys.argv[1]))'\n"
        "print(subprocess.run([sys.executable, '-c', inner, sys.argv[1]], capture_output=True, text=True).stdout)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, f"{tmp_path}/scratch"],
        env={**os.environ, "TMPDIR": f"{tmp_path}/scratch/ab12/tmp", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.strip() == "()", said.stderr


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
