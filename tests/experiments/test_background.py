"""Trials in a process of their own: what stands in the worktree or a patch is tried, and nobody's end loses any."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.background import TrialAsk, TrialView, start_trial, wait_for_trial
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.state import ExperimentHypothesis
from omx_autoresearch.experiments.views import view as view_of
from omx_autoresearch.foundation.errors import StepIllegal, UsageError, WorkspaceFault
from omx_autoresearch.system.processes import ProcessIdentity, wait_for
from tests.support.experiments import Quiet
from tests.support.scratch import Scratch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def quiet(tmp_path: Path) -> Quiet:
    return Quiet.begin(Scratch.make(tmp_path))


def attempt(quiet: Quiet, patch: str = "", *, wait_seconds: float = 60, tell: object = None) -> TrialView:
    runtime = quiet.scratch.runtime()
    ask = TrialAsk(ExperimentHypothesis("h", "a try"), patch.encode(), runtime.new_id())
    return start_trial(
        runtime,
        quiet.experiment_id,
        ask,
        wait_seconds=wait_seconds,
        tell=tell,  # type: ignore[arg-type]
    )


def awaited(quiet: Quiet, wait_seconds: float = 60) -> TrialView:
    return wait_for_trial(quiet.scratch.runtime(), quiet.experiment_id, wait_seconds=wait_seconds)


def ended(view: TrialView) -> tuple[int, str, str]:
    assert view.row is not None, view
    assert not view.is_running
    return view.row.iteration, view.row.status, view.row.reason_code


@pytest.mark.requirement("MCP-08")
def test_what_stands_in_the_worktree_is_tried_and_kept_only_where_it_is_better(quiet: Quiet) -> None:
    quiet.change(90)
    assert ended(attempt(quiet)) == (1, "accepted", "improved")
    quiet.change(95)
    assert ended(attempt(quiet))[:2] == (2, "rejected")
    assert (quiet.candidate / "value.txt").read_text() == "90\n"
    assert quiet.scratch.read("value.txt") == "100\n"
    assert quiet.state.controller_pid == 0


@pytest.mark.requirement("MCP-08")
def test_new_binary_renamed_and_executable_files_are_carried_over(quiet: Quiet) -> None:
    (quiet.candidate / "data.bin").write_bytes(bytes(range(256)))
    (quiet.candidate / "README.txt").write_text("text\n")
    script = quiet.candidate / "tool.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    quiet.change(90)
    view = attempt(quiet)
    assert ended(view)[1] == "accepted"
    assert view.row is not None
    assert set(view.row.changed_paths) == {"data.bin", "README.txt", "tool.sh", "value.txt"}
    assert (quiet.candidate / "data.bin").read_bytes() == bytes(range(256))
    assert os.access(script, os.X_OK)


@pytest.mark.requirement("MCP-08")
def test_a_patch_is_tried_against_the_incumbent(quiet: Quiet) -> None:
    assert ended(attempt(quiet, quiet.patch(100, 90)))[1] == "accepted"
    assert ended(attempt(quiet, quiet.patch(90, 80)))[1] == "accepted"
    assert not list(quiet.folder.glob("candidate-*"))
    assert ended(attempt(quiet, quiet.patch(80, 99)))[1] == "rejected"
    (kept,) = quiet.folder.glob("candidate-*")
    assert kept.read_text() == quiet.patch(80, 99)


@pytest.mark.requirement("MCP-08")
def test_a_patch_that_does_not_fit_spends_no_trial_and_is_kept(quiet: Quiet) -> None:
    view = attempt(quiet, quiet.patch(7, 6))
    assert view.row is None
    assert "does not fit the incumbent" in view.fault
    (kept,) = quiet.folder.glob("candidate-*.patch")
    assert kept.read_text() == quiet.patch(7, 6)
    assert str(kept) in view.next_step
    assert quiet.state.usage.trials == 0


@pytest.mark.requirement("MCP-08")
@pytest.mark.parametrize("path", ["../outside.txt", ".git/hooks/post-checkout", "/etc/outside.txt"])
def test_a_patch_writes_nothing_outside_of_the_worktree(quiet: Quiet, path: str) -> None:
    patch = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    view = attempt(quiet, patch)
    assert view.row is None
    assert not (quiet.folder / "work" / "outside.txt").exists()
    assert not (quiet.candidate / ".git" / "hooks" / "post-checkout").exists()


@pytest.mark.requirement("MCP-08")
def test_a_change_and_a_patch_at_once_are_refused_and_both_stay(quiet: Quiet) -> None:
    quiet.change(90)
    with pytest.raises(StepIllegal, match="already holds changes"):
        attempt(quiet, quiet.patch(100, 80))
    assert (quiet.candidate / "value.txt").read_text() == "90\n"


@pytest.mark.requirement("MCP-08")
def test_without_a_change_there_is_nothing_to_try(quiet: Quiet) -> None:
    with pytest.raises(UsageError, match="nothing was changed"):
        attempt(quiet)
    assert quiet.state.rows == ()


@pytest.mark.requirement("MCP-08")
def test_what_no_patch_can_carry_is_named_before_a_trial_is_spent(quiet: Quiet) -> None:
    quiet.scratch.git("init", "-q", str(quiet.candidate / "nested"))
    quiet.scratch.git(
        "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x",
        cwd=quiet.candidate / "nested",
    )  # fmt: skip
    with pytest.raises(WorkspaceFault, match="cannot be tried"):
        attempt(quiet)
    assert quiet.state.rows == ()


@pytest.mark.requirement("MCP-08")
def test_a_frozen_file_is_tampered_with_by_a_patch_as_by_an_edit(quiet: Quiet) -> None:
    (quiet.candidate / "measure.sh").write_text("#!/bin/sh\necho METRIC total_ms=1\n")
    assert ended(attempt(quiet)) == (1, "rejected", "tampered")
    patch = (
        "--- a/measure.sh\n+++ b/measure.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n"
        "-echo METRIC total_ms=$(cat value.txt)\n+echo METRIC total_ms=1\n"
    )
    assert ended(attempt(quiet, patch)) == (2, "rejected", "tampered")


@pytest.mark.requirement("MCP-08")
def test_nothing_that_is_planted_in_the_worktrees_git_runs(quiet: Quiet) -> None:
    marker = quiet.scratch.root / "ran"
    git = quiet.candidate / ".git"
    assert git.is_dir()
    with (git / "config").open("a") as stream:
        stream.write(
            f'[filter "evil"]\n\tclean = touch {marker} && cat\n\tsmudge = touch {marker} && cat\n'
            f"[core]\n\tfsmonitor = touch {marker}\n"
        )
    (quiet.candidate / ".gitattributes").write_text("value.txt filter=evil\n")
    quiet.change(90)
    assert ended(attempt(quiet))[1] == "accepted"
    assert not marker.exists()


@pytest.mark.requirement("MCP-09")
def test_a_long_trial_goes_on_by_itself_and_is_waited_for(quiet: Quiet) -> None:
    quiet.change(90)
    with quiet.gate() as gate:
        first = attempt(quiet, wait_seconds=0)
        assert first.is_running
        with pytest.raises(StepIllegal, match="a trial has been under way"):
            attempt(quiet)
        assert awaited(quiet, 0).is_running
        gate.open()
    assert ended(awaited(quiet)) == (1, "accepted", "improved")
    assert ended(awaited(quiet)) == (1, "accepted", "improved")


@pytest.mark.requirement("MCP-09")
def test_whoever_waits_is_told_how_far_it_is(quiet: Quiet) -> None:
    told: list[TrialView] = []
    quiet.change(90)
    with quiet.gate() as gate:

        def tell(view: TrialView) -> None:
            told.append(view)
            if view.row is not None and len(told) == 1:
                gate.open()

        view = attempt(quiet, tell=tell)
        if view.is_running or not told:
            gate.open()
            view = awaited(quiet)
    assert ended(view)[1] == "accepted"
    assert told
    assert all(view.is_running for view in told)


@pytest.mark.requirement("MCP-09")
def test_a_trial_whose_process_was_killed_is_interrupted_and_its_number_stays_used(quiet: Quiet) -> None:
    quiet.change(90)
    with quiet.gate():
        view = attempt(quiet, wait_seconds=0)
        while view.row is None:
            view = awaited(quiet, 0.05)
        process = ProcessIdentity(view.state.controller_pid, view.state.controller_started)
        os.kill(process.pid, signal.SIGKILL)
        assert wait_for(process, 60)
        lost = awaited(quiet)
        assert not lost.is_running
        (kept,) = quiet.folder.glob("candidate-*.patch")
        assert f"trial 1 was interrupted: its process was killed; its change is kept in {kept}" in lost.fault
        assert str(kept) in view_of(quiet.scratch.runtime(), quiet.state).warnings[-1]
    with pytest.raises(
        UsageError, match=f"the last trial was killed; its change is kept in {kept}"
    ) as caught:
        attempt(quiet)  # what it left is not taken for a new candidate, but its patch can be tried
    assert caught.value.next_step.endswith(f"--patch {kept}")
    assert ended(attempt(quiet, kept.read_text())) == (2, "accepted", "improved")
    assert [row.reason_code for row in quiet.state.rows] == ["interrupted", "improved"]
    assert quiet.state.rows[0].reason == f"its controller was killed; its change is kept in {kept}"


@pytest.mark.requirement("MCP-08")
def test_an_agent_that_works_in_the_worktree_outlives_its_own_trial(quiet: Quiet) -> None:
    quiet.change(90)
    with subprocess.Popen(
        ["cat"], cwd=quiet.candidate, stdin=subprocess.PIPE, start_new_session=True
    ) as agent:
        assert ended(attempt(quiet))[1] == "accepted"
        assert agent.poll() is None
        agent.communicate()
    assert agent.returncode == 0


@pytest.mark.requirement("MCP-09")
def test_beside_another_controller_nothing_is_tried_and_the_change_stays(quiet: Quiet) -> None:
    runtime = quiet.scratch.runtime()
    with AutoresearchController.resume(quiet.experiment_id, runtime=runtime):
        quiet.change(90)
        with pytest.raises(StepIllegal, match="has held this repository"):
            attempt(quiet)
        assert (quiet.candidate / "value.txt").read_text() == "90\n"


@pytest.mark.requirement("MCP-09")
def test_a_completed_experiment_takes_no_trial(quiet: Quiet) -> None:
    with AutoresearchController.resume(quiet.experiment_id, runtime=quiet.scratch.runtime()) as controller:
        controller.complete()
    with pytest.raises(StepIllegal, match="completed: explicit"):
        attempt(quiet, quiet.patch(100, 90))
