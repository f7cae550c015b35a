"""kill -9 at any instant, then a resume: nothing is lost, nothing counted twice, nothing accepted that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, ExperimentState
from omx_autoresearch.foundation.errors import JournalBroken, StepIllegal, UsageError
from omx_autoresearch.system.processes import identify
from tests.experiments import story
from tests.experiments.toys import begun, checkout, git, h, toy, works_at

if TYPE_CHECKING:
    from collections.abc import Iterator


ROOT = Path(__file__).resolve().parents[2]
ENDS = {
    "good": ("accepted", "improved"),
    "worse": ("rejected", "not_better"),
    "cheat": ("rejected", "tampered"),
    "better": ("accepted", "improved"),
}
"""How each hypothesis of the story ends, killed or not."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return toy(tmp_path / "repo")


def play(root: Path, when: str, number: int) -> int:
    """The story until it kills itself; its exit status."""
    return subprocess.run(
        [sys.executable, story.__file__, str(root), when, str(number)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=300,
    ).returncode


def hold(state: ExperimentState, root: Path) -> None:
    """What must be true at the end, whatever happened on the way."""
    rows = [row for row in state.rows if row.reason_code != "interrupted"]
    assert {row.hypothesis_id: (row.status, row.reason_code) for row in rows} == ENDS
    assert len(rows) == len(ENDS)
    assert [row.iteration for row in state.rows] == list(range(1, len(state.rows) + 1))
    assert len(state.rows) - len(rows) <= 1
    assert state.usage.trials == len(state.rows)
    assert (state.phase, state.completed_reason) == ("completed", "explicit")
    assert state.checkpoints == tuple(row.candidate_commit for row in rows if row.status == "accepted")
    entries = list(story.store().read(state.experiment_id))
    measured = [entry.data for entry in entries if entry.kind == "measured"]
    metric_runs = [run for run in measured if run["stage"] not in ("check", "setup", "held_out")]
    assert state.usage.runs == len(metric_runs)
    assert len({run["run_id"] for run in measured}) == len(measured)
    folder = story.store().folder(state.experiment_id).root_path
    checkpoints = os.path.join(folder, "work", "checkpoints")
    assert git(root, "--git-dir", checkpoints, "show", f"{state.incumbent_commit}:work.sh").endswith(
        "echo 80"
    )
    assert len(story.store().list_ids()) == 1


def points() -> Iterator[tuple[str, int]]:
    """Events after or before which the state differs most; the slow test has every event."""
    kinds = [
        "started",
        "resumed",
        *["measured"] * 7,
        "baseline",
        "iteration",
        "made",
        *["measured"] * 12,
        "accepted",
    ]
    for when, kind in (
        ("after", "resumed"),
        ("before", "baseline"),
        ("after", "iteration"),
        ("after", "made"),
        ("before", "accepted"),
        ("after", "accepted"),
    ):
        yield when, kinds.index(kind) + 1


@pytest.mark.slow
@pytest.mark.requirement("EXP-07")
@pytest.mark.parametrize(("when", "number"), list(points()))
def test_killed_at_an_event_it_comes_to_the_same_end(root: Path, when: str, number: int) -> None:
    before = checkout(root)
    assert play(root, when, number) == -signal.SIGKILL
    assert checkout(root) == before
    hold(story.told(root), root)
    assert checkout(root) == before


@pytest.mark.slow
@pytest.mark.requirement("EXP-07")
@pytest.mark.parametrize("when", ["before", "after", "git"])
def test_killed_at_every_event_and_every_start_of_git_it_comes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    number, step, status = 0, 3 if when == "git" else 1, -signal.SIGKILL
    while status == -signal.SIGKILL:
        number += step
        monkeypatch.setenv("OMX_AUTORESEARCH_HOME", str(tmp_path / f"home-{number}"))
        root = toy(tmp_path / f"repo-{number}")
        status = play(root, when, number)
        hold(story.told(root), root)
    assert number > 30


@pytest.mark.requirement("EXP-07")
def test_killed_before_its_first_event_an_experiment_leaves_nothing_for_long(root: Path) -> None:
    assert play(root, "before", 1) == -signal.SIGKILL
    references = ("for-each-ref", "--format=%(refname)", "refs/omx-autoresearch")
    left = git(root, *references)
    assert left.endswith("/base")
    assert story.store().list_ids() == ()
    with begun(root) as controller:
        assert git(root, *references) == f"refs/omx-autoresearch/{controller.experiment_id}/base"
        home = Path(controller.session_dir()).parent
        assert sorted(path.name for path in home.iterdir()) == [controller.experiment_id, "holds"]


@pytest.mark.requirement("EXP-07")
def test_a_commit_without_its_event_is_not_taken(root: Path) -> None:
    """Killed right before `accepted` is written: the commit is there, the gain is not."""
    kinds = 2 + 7 + 1 + 2 + 12
    assert play(root, "before", kinds + 1) == -signal.SIGKILL
    name = story.store().list_ids()[0]
    with AutoresearchController.resume(name) as controller:
        state = controller.state
        assert [row.reason_code for row in state.rows] == ["interrupted"]
        assert (state.incumbent_commit, state.checkpoints) == (state.base_commit, ())
        for arm in ("incumbent", "candidate"):
            path = Path(controller.session_dir(), "work", arm, "work.sh")
            assert path.read_bytes() == (root / "work.sh").read_bytes()


def _killed_while(root: Path, code: str) -> str:
    """Run a program that begins an experiment and is killed; what it printed before."""
    head = (
        "import os, subprocess, sys\nfrom pathlib import Path\n"
        "from tests.experiments.toys import *\nroot = Path(sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + code, str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


@pytest.mark.requirement("EXP-07")
def test_an_agent_that_outlived_its_controller_is_ended_before_the_next_trial(root: Path) -> None:
    code = (
        "def play(workspace):\n"
        "    agent = subprocess.Popen(['sleep', '600'], cwd='/', start_new_session=True, stdout=-3, stderr=-3)\n"
        "    workspace.note_process(agent.pid)\n"
        "    print(agent.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "begun(root).run_iteration(h(1), play)\n"
    )
    pid = int(_killed_while(root, code))
    agent = identify(pid)
    assert agent is not None
    name = story.store().list_ids()[0]
    assert story.store().load(name).agent_pid == pid
    with AutoresearchController.resume(name) as controller:
        assert identify(pid) != agent
        assert controller.state.agent_pid == 0
        assert controller.state.rows[-1].reason_code == "interrupted"


@pytest.mark.requirement("EXP-07")
def test_a_process_that_took_over_an_agents_pid_is_left_alone(root: Path) -> None:
    code = (
        "def play(workspace):\n"
        "    workspace.note_process(os.getppid())\n"
        "    os.kill(os.getpid(), 9)\n"
        "from omx_autoresearch.experiments import trial as c\n"
        "from omx_autoresearch.system.processes import ProcessIdentity\n"
        "c.identify = lambda pid: ProcessIdentity(pid, 'another boot:1')\n"
        "begun(root).run_iteration(h(1), play)\n"
    )
    _killed_while(root, code)
    name = story.store().list_ids()[0]
    assert story.store().load(name).agent_pid == os.getpid()
    AutoresearchController.resume(name).close()  # this very process would be gone


@pytest.mark.case("PRC-06")
@pytest.mark.requirement("EXP-07")
def test_a_run_that_outlived_its_controller_is_over_before_anything_else_begins(
    root: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "running"
    os.mkfifo(mark)
    code = (
        "import threading\n"
        f"def kill():\n    print(open({str(mark)!r}).read(), flush=True)\n    os.kill(os.getpid(), 9)\n"
        "controller = begun(root, measure_timeout_seconds=600.0)\n"
        "threading.Thread(target=kill).start()\n"
        f"program = '#!/bin/sh\\ntrap \"\" TERM\\necho $$ > {mark}\\nsleep 600\\n'\n"
        "controller.run_iteration(h(1), writes('work.sh', program))\n"
    )
    pid = int(_killed_while(root, code))
    with AutoresearchController.resume(story.store().list_ids()[0]) as controller:
        assert identify(pid) is None
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"


@pytest.mark.requirement("EXP-08")
def test_a_resume_of_what_is_at_work_is_refused(root: Path) -> None:
    with begun(root) as controller, pytest.raises(StepIllegal, match=f"process {os.getpid()}"):
        AutoresearchController.resume(controller.experiment_id)


@pytest.mark.requirement("EXP-07")
def test_numbers_and_incumbent_go_on_after_an_orderly_close(root: Path) -> None:
    with begun(root) as controller:
        controller.run_iteration(h(1), works_at(90))
        name = controller.experiment_id
    with AutoresearchController.resume(name) as again:
        row = again.run_iteration(ExperimentHypothesis("h-2"), works_at(85))
        assert (row.iteration, row.incumbent_samples[0]) == (2, 90.0)
        again.complete()
    with AutoresearchController.resume(name) as over:
        assert over.state.phase == "completed"
        assert over.final_patch().changed_paths == ("work.sh",)
        assert over.verify_claim().final == 85.0
        assert over.accept_final_patch().is_applied
    assert (root / "work.sh").read_text(encoding="utf-8") == "#!/bin/sh\necho 85\n"


@pytest.mark.requirement("EXP-07")
def test_both_worktrees_may_be_gone(root: Path) -> None:
    import shutil

    with begun(root) as controller:
        controller.run_iteration(h(1), works_at(90))
        name, folder = controller.experiment_id, controller.session_dir()
    for arm in ("incumbent", "candidate"):
        shutil.rmtree(os.path.join(folder, "work", arm))
    with AutoresearchController.resume(name) as again:
        assert again.run_iteration(h(2), works_at(85)).status == "accepted"


@pytest.mark.requirement("EXP-02")
def test_a_log_that_cannot_be_believed_is_not_resumed_and_holds_nothing(root: Path) -> None:
    with begun(root) as controller:
        name, path = controller.experiment_id, Path(controller.session_dir(), "events.jsonl")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"baseline"', b'"baselime"', 1))
    with pytest.raises(JournalBroken, match=r"events\.jsonl line"):
        AutoresearchController.resume(name)
    path.write_bytes(data)
    AutoresearchController.resume(name).close()
    with pytest.raises(UsageError, match="no experiment"):
        AutoresearchController.resume("20200101-000000-nothing")
