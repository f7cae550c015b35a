"""One controller a repository: the second is refused and told who holds it; the dead hold nothing."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from omx_autoresearch.experiments.store import Holder, Holds
from omx_autoresearch.foundation.errors import StepIllegal
from omx_autoresearch.journal.layout import StateHome
from omx_autoresearch.system.processes import ProcessIdentity, identify, is_alive

ROOT = Path(__file__).resolve().parents[2]
SINCE = "2026-01-02T03:04:05.000000Z"


def alive(pid: int, started: str) -> bool:
    return is_alive(ProcessIdentity(pid, started))


@pytest.fixture
def holds(tmp_path: Path) -> Holds:
    return Holds(StateHome(str(tmp_path / "home")), alive)


def me(tmp_path: Path, experiment_id: str = "e-1") -> Holder:
    identity = identify(os.getpid())
    assert identity is not None
    return Holder(identity.pid, identity.started, experiment_id, SINCE, str(tmp_path / "repo" / ".git"))


@pytest.mark.requirement("EXP-08")
def test_the_second_controller_is_refused_and_told_who_holds_the_repository(
    holds: Holds, tmp_path: Path
) -> None:
    with holds.take(me(tmp_path)), pytest.raises(StepIllegal) as caught:
        holds.take(me(tmp_path, "e-2"))
    assert f"process {os.getpid()}" in str(caught.value)
    assert SINCE in str(caught.value)
    assert "e-1" in str(caught.value)


def test_a_hold_that_was_let_go_is_free_again_and_says_nobody(holds: Holds, tmp_path: Path) -> None:
    holder = me(tmp_path)
    hold = holds.take(holder)
    assert holds.holder_of(holder.common_dir) == holder
    hold.release()
    hold.release()
    assert holds.holder_of(holder.common_dir) is None
    holds.take(me(tmp_path, "e-2")).release()


def test_another_repository_is_held_apart(holds: Holds, tmp_path: Path) -> None:
    other = replace(me(tmp_path, "e-2"), common_dir=str(tmp_path / "other" / ".git"))
    with holds.take(me(tmp_path)), holds.take(other):
        pass


@pytest.mark.requirement("EXP-08")
def test_a_killed_holder_holds_nothing(holds: Holds, tmp_path: Path) -> None:
    code = (
        "import os, sys; from omx_autoresearch.experiments.store import *\n"
        "from omx_autoresearch.journal.layout import StateHome\n"
        "holds = Holds(StateHome(sys.argv[1]), lambda pid, started: True)\n"
        "hold = holds.take(Holder(os.getpid(), 'x', 'e-0', 'now', sys.argv[2]))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "home"), me(tmp_path).common_dir],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert killed.returncode == -9
    holds.take(me(tmp_path)).release()


@pytest.mark.requirement("EXP-08")
def test_a_lock_that_a_child_of_a_dead_holder_keeps_is_no_hold(holds: Holds, tmp_path: Path) -> None:
    holder = me(tmp_path)
    holds.take(holder).release()
    path = Path(tmp_path, "home", "experiments", "holds")
    entry = next(path.glob("?" * 64))
    dead = {"pid": os.getpid(), "process_started": "another boot:1", "experiment_id": "e-0"}
    entry.write_text(json.dumps(dead | {"since": SINCE, "common_dir": holder.common_dir}))
    with open(entry, "r+b") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        assert holds.holder_of(holder.common_dir) is None
        with holds.take(holder):
            assert holds.holder_of(holder.common_dir) == holder


def test_a_lock_without_a_readable_name_is_respected(holds: Holds, tmp_path: Path) -> None:
    holds.take(me(tmp_path)).release()
    entry = next(Path(tmp_path, "home", "experiments", "holds").glob("?" * 64))
    with open(entry, "r+b") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        with pytest.raises(StepIllegal, match="another process"):
            holds.take(me(tmp_path))
