"""What ends a step, a trial or the experiment: budgets, deadlines, cancels, interruptions, requests from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omx_autoresearch.experiments import controller as controller_module
from omx_autoresearch.experiments import trial
from omx_autoresearch.experiments.context import pending_request, put_request
from omx_autoresearch.experiments.controller import (
    AutoresearchController,
    controller_at_work,
    request_cancel,
    request_stop,
)
from omx_autoresearch.experiments.judge.state import ExperimentLimits, HypothesisOutcome
from omx_autoresearch.experiments.store import ExperimentFolder
from omx_autoresearch.foundation.errors import StepIllegal, UsageError
from omx_autoresearch.journal.layout import Runtime
from omx_autoresearch.system.clock import SystemClock
from tests.experiments.toys import begun, configured, h, put, toy, works_at, writes

if TYPE_CHECKING:
    from omx_autoresearch.experiments.trial import ExperimentWorkspace

FOREVER = 600.0
"""Longer than any test may take: what waits that long is ended by what is tested."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return toy(tmp_path / "repo")


class MovedClock(SystemClock):
    """The machine's clock, moved on by hand: a budget of hours is spent without waiting."""

    __slots__ = ("ahead_seconds",)

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_seconds


class SleptClock(SystemClock):
    """The clock of a machine that slept: the calendar moved on, the monotonic clock stood still."""

    __slots__ = ("slept",)

    def __init__(self) -> None:
        self.slept = timedelta()

    def now(self) -> datetime:
        return super().now() + self.slept


def moved_world(clock: MovedClock) -> Runtime:
    return replace(Runtime.of_process(), clock=clock)


def ended(controller: AutoresearchController) -> tuple[str, str]:
    return controller.state.phase, controller.state.completed_reason


def clean(controller: AutoresearchController, root: Path) -> bool:
    """Both worktrees are what the checkout is, where nothing was accepted."""
    return all(
        Path(controller.session_dir(), "work", arm, "work.sh").read_bytes() == (root / "work.sh").read_bytes()
        for arm in ("incumbent", "candidate")
    )


# --- budgets


@pytest.mark.requirement("EXP-09")
def test_the_last_trial_that_a_budget_allows_completes_the_experiment(root: Path) -> None:
    with begun(root, limits=ExperimentLimits(trials=2)) as controller:
        controller.run_iteration(h(1), works_at(95))
        assert ended(controller) == ("ready", "")
        row = controller.run_iteration(h(2), works_at(90))
        assert row.status == "accepted"
        assert ended(controller) == ("completed", "budget_trials")
        with pytest.raises(StepIllegal, match="budget_trials"):
            controller.run_iteration(h(3), works_at(80))
        assert controller.verify_claim().final == 90.0


@pytest.mark.case("BUD-01")
@pytest.mark.requirement("EXP-09")
def test_a_spent_cost_ends_the_loop_after_the_trial_that_was_paid_for(root: Path) -> None:
    with begun(root, limits=ExperimentLimits(cost_usd=10.0)) as controller:

        def dear(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            works_at(90)(workspace)
            return HypothesisOutcome(cost_usd=1e308)

        assert controller.run_iteration(h(1), dear).status == "accepted"
        assert ended(controller) == ("completed", "budget_cost")


@pytest.mark.requirement("EXP-09")
def test_a_spent_budget_of_runs_ends_the_trial_before_its_next_run(root: Path) -> None:
    with begun(root, limits=ExperimentLimits(runs=8)) as controller:
        assert controller.state.usage.runs == 6
        row = controller.run_iteration(h(1), works_at(90))
        assert (row.status, row.reason_code) == ("failed", "budget_runs")
        assert controller.state.usage.runs == 8
        assert ended(controller) == ("completed", "budget_runs")
        assert clean(controller, root)


@pytest.mark.requirement("EXP-09")
def test_a_budget_that_the_baseline_spends_ends_the_experiment_without_an_error(root: Path) -> None:
    with AutoresearchController(str(root), configured(limits=ExperimentLimits(runs=3))) as controller:
        controller.establish_baseline()
        assert ended(controller) == ("completed", "budget_runs")


@pytest.mark.requirement("EXP-09")
def test_the_size_of_the_folder_is_a_budget_too(root: Path) -> None:
    with begun(root, limits=ExperimentLimits(disk_bytes=2_000_000)) as controller:
        row = controller.run_iteration(h(1), writes("big.bin", "x" * 3_000_000))
        assert (row.status, row.reason_code) == ("failed", "budget_disk")
        assert ended(controller) == ("completed", "budget_disk")


@pytest.mark.case("BUD-02")
@pytest.mark.requirement("EXP-09")
def test_the_wall_clock_ends_a_run_that_is_under_way(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo")
    limits = ExperimentLimits(wall_seconds=3600.0)
    clock = MovedClock()
    config = configured(limits=limits, measure_timeout_seconds=FOREVER)
    with AutoresearchController(str(root), config, runtime=moved_world(clock)) as controller:
        controller.establish_baseline()
        clock.ahead_seconds = 3599.0 - controller.state.usage.wall_seconds
        row = controller.run_iteration(h(1), works_at(f"$(sleep {FOREVER})"))
        assert (row.status, row.reason_code) == ("failed", "budget_wall")
        assert ended(controller) == ("completed", "budget_wall")
        assert clean(controller, root)


@pytest.mark.case("BUD-02")
@pytest.mark.requirement("EXP-09")
def test_the_wall_clock_ends_a_callback_that_is_under_way_and_its_handle_is_set(root: Path) -> None:
    seen: list[bool] = []
    clock = MovedClock()
    config = configured(limits=ExperimentLimits(wall_seconds=3600.0))
    with AutoresearchController(str(root), config, runtime=moved_world(clock)) as controller:
        controller.establish_baseline()

        def wait(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            put(workspace, "work.sh", "half")
            seen.append(workspace.cancellation.wait(FOREVER))
            return HypothesisOutcome()

        clock.ahead_seconds = 3599.5 - controller.state.usage.wall_seconds
        row = controller.run_iteration(h(1), wait)
        assert seen == [True]
        assert (row.status, row.reason_code) == ("failed", "budget_wall")
        assert ended(controller) == ("completed", "budget_wall")
        assert clean(controller, root)


def test_a_wall_clock_spent_between_two_trials_admits_no_third(root: Path) -> None:
    clock = MovedClock()
    config = configured(limits=ExperimentLimits(wall_seconds=3600.0))
    with AutoresearchController(str(root), config, runtime=moved_world(clock)) as controller:
        controller.establish_baseline()
        clock.ahead_seconds = 3601.0
        with pytest.raises(StepIllegal, match="wall-clock budget is spent"):
            controller.run_iteration(h(1), works_at(90))
        assert ended(controller) == ("completed", "budget_wall")
        assert controller.state.rows == ()


@pytest.mark.requirement("EXP-09")
def test_a_night_that_the_machine_slept_through_is_not_charged(root: Path) -> None:
    clock = SleptClock()
    world = replace(Runtime.of_process(), clock=clock)
    config = configured(limits=ExperimentLimits(wall_seconds=3600.0))

    def sleeps(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        clock.slept = timedelta(hours=8)
        return works_at(90)(workspace)

    with AutoresearchController(str(root), config, runtime=world) as controller:
        controller.establish_baseline()
        row = controller.run_iteration(h(1), sleeps)
        assert row.status == "accepted"
        assert row.duration_seconds < 3600.0
        assert controller.state.usage.wall_seconds < 3600.0
        name = controller.experiment_id
    with AutoresearchController.resume(name, runtime=world) as again:
        assert again.run_iteration(h(2), works_at(80)).status == "accepted"


@pytest.mark.requirement("EXP-07")
def test_what_was_used_survives_a_resume_and_more_budget_reopens_the_experiment(root: Path) -> None:
    with begun(root, limits=ExperimentLimits(trials=1)) as controller:
        controller.run_iteration(h(1), lambda _: HypothesisOutcome(cost_usd=2.0))
        used = controller.state.usage
        name = controller.experiment_id
    with AutoresearchController.resume(name) as again:
        assert ended(again) == ("completed", "budget_trials")
    with pytest.raises(UsageError, match=r"limits\.trials"):
        AutoresearchController.resume(name, limits=replace(ExperimentLimits(), trials=-1))
    with AutoresearchController.resume(name, limits=ExperimentLimits(trials=2)) as again:
        assert again.state.usage.trials == used.trials
        assert again.state.usage.cost_usd == 2.0
        assert again.state.usage.wall_seconds >= used.wall_seconds
        row = again.run_iteration(h(2), works_at(90))
        assert (row.iteration, row.status) == (2, "accepted")
        assert ended(again) == ("completed", "budget_trials")


# --- deadlines


@pytest.mark.requirement("EXP-06")
def test_a_callback_that_is_not_ready_in_time_fails_its_trial(root: Path) -> None:
    def wait(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        workspace.cancellation.wait(FOREVER)
        return HypothesisOutcome()

    with begun(root, hypothesis_timeout_seconds=0.2) as controller:
        row = controller.run_iteration(h(1), wait)
        assert (row.status, row.reason_code) == ("failed", "timed_out")
        assert ended(controller) == ("ready", "")


@pytest.mark.case("PRC-06")
@pytest.mark.requirement("EXP-03")
def test_nothing_of_a_callback_that_ignores_its_end_reaches_the_next_candidate(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "STRAGGLER_SECONDS", 0.01)
    monkeypatch.setattr(trial, "CALLBACK_GRACE_SECONDS", 0.1)
    free = threading.Event()

    def deaf(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        free.wait(FOREVER)
        put(workspace, "work.sh", "#!/bin/sh\necho 1\n")
        return HypothesisOutcome()

    with begun(root, hypothesis_timeout_seconds=0.2) as controller:
        row = controller.run_iteration(h(1), deaf)
        assert (row.status, row.reason_code) == ("failed", "timed_out")
        with pytest.raises(StepIllegal, match="is still running, although it was cancelled"):
            controller.run_iteration(h(2), works_at(90))
        free.set()
        monkeypatch.setattr(controller_module, "STRAGGLER_SECONDS", FOREVER)
        kept = controller.run_iteration(h(2), writes("note.txt", "x"))
        assert (kept.metric, kept.changed_paths) == (100.0, ("note.txt",))


@pytest.mark.case("PRC-06")
def test_nothing_of_a_run_that_timed_out_reaches_the_next_candidate(tmp_path: Path) -> None:
    root = toy(tmp_path / "repo")
    late = (
        "#!/bin/sh\n(trap '' TERM HUP; sleep 600; echo METRIC ms=1 > work.sh) &\n"
        "(setsid sh -c 'sleep 600; echo 1 > ../candidate/work.sh' &)\nsleep 600\n"
    )
    with begun(root, measure_timeout_seconds=0.7) as controller:
        row = controller.run_iteration(h(1), writes("work.sh", late))
        assert (row.status, row.reason_code) == ("failed", "timed_out")
        assert not _works_in(controller.session_dir())
        assert clean(controller, root)


def _works_in(folder: str) -> list[str]:
    """Processes whose working folder is below one."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd").startswith(folder):
                found.append(name)
        except OSError:
            continue
    return found


# --- cancels


@pytest.mark.requirement("EXP-06")
def test_a_cancel_from_another_thread_kills_the_run_and_waits_for_rollback_and_completed(
    tmp_path: Path,
) -> None:
    root = toy(tmp_path / "repo")
    mark = tmp_path / "running"
    heard: list[str] = []
    with begun(root, measure_timeout_seconds=FOREVER) as controller:
        os.mkfifo(mark)

        def cancel() -> None:
            mark.read_text(encoding="utf-8")
            controller.cancellation.cancel()
            heard.append("cancel returned")

        thread = threading.Thread(target=cancel)
        thread.start()
        controller.subscribe(lambda event: heard.append(event["type"]))
        program = f"#!/bin/sh\necho run > {mark}\nsleep {FOREVER}\n"
        row = controller.run_iteration(h(1), writes("work.sh", program))
        thread.join()
        assert (row.status, row.reason_code) == ("failed", "cancelled")
        assert ended(controller) == ("completed", "cancelled")
        assert heard[-3:] == ["failed", "completed", "cancel returned"]
        assert clean(controller, root)


@pytest.mark.requirement("EXP-06")
def test_a_callback_that_cancels_the_experiment_does_not_wait_for_itself(root: Path) -> None:
    def give_up(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        workspace.cancellation.cancel()
        assert workspace.cancellation.is_cancelled
        return HypothesisOutcome()

    with begun(root) as controller:
        row = controller.run_iteration(h(1), give_up)
        assert (row.status, row.reason_code) == ("failed", "cancelled")
        assert ended(controller) == ("completed", "cancelled")


def test_a_cancel_between_two_trials_completes_at_once(root: Path) -> None:
    with begun(root) as controller:
        controller.cancellation.cancel()
        assert ended(controller) == ("completed", "cancelled")
    with begun(root) as controller:
        name = controller.experiment_id
    controller.cancellation.cancel()
    with AutoresearchController.resume(name) as again:
        assert ended(again) == ("ready", "")


@pytest.mark.requirement("EXP-06")
def test_an_interruption_ends_the_trial_and_not_the_experiment(root: Path) -> None:
    with begun(root) as controller:

        def interrupted(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            controller.interrupt()
            workspace.cancellation.wait(FOREVER)
            return HypothesisOutcome()

        row = controller.run_iteration(h(1), interrupted)
        assert (row.status, row.reason_code) == ("failed", "cancelled")
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"


@pytest.mark.requirement("EXP-06")
def test_a_persons_interrupt_rolls_back_records_and_goes_on_up(
    root: Path, request: pytest.FixtureRequest
) -> None:
    # Tests that a shell put into the background began with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with begun(root) as controller:

        def hit(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            put(workspace, "work.sh", "half")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            workspace.cancellation.wait(FOREVER)
            return HypothesisOutcome()

        with pytest.raises(KeyboardInterrupt):
            controller.run_iteration(h(1), hit)
        row = controller.state.rows[-1]
        assert (row.status, row.reason_code) == ("failed", "cancelled")
        assert clean(controller, root)
        assert controller.run_iteration(h(2), works_at(90)).status == "accepted"


# --- requests from outside


def _ask(act: str, name: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys\nfrom omx_autoresearch.journal.layout import Runtime\n"
        "from omx_autoresearch.experiments import controller as remote_control\n"
        f"asked = remote_control.{act}(Runtime.of_process(), sys.argv[1])\n"
        "print(asked.is_done, asked.holder.pid if asked.holder else 0)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, name],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )


@pytest.mark.requirement("EXP-11")
def test_another_process_may_cancel_the_trial_under_way(root: Path) -> None:
    said: list[str] = []
    with begun(root) as controller:
        name = controller.experiment_id
        asking = threading.Thread(target=lambda: said.append(_ask("request_cancel", name).stdout))

        def wait(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            asking.start()
            workspace.cancellation.wait(FOREVER)
            return HypothesisOutcome()

        row = controller.run_iteration(h(1), wait)
        assert (row.status, row.reason_code) == ("failed", "cancelled")
        assert ended(controller) == ("completed", "cancelled")
        asking.join()
        assert said == [f"True {os.getpid()}\n"]


@pytest.mark.requirement("EXP-11")
def test_another_process_may_ask_to_stop_after_the_trial(root: Path) -> None:
    with begun(root) as controller:

        def stopped(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            asked = _ask("request_stop", controller.experiment_id)
            assert asked.stdout == f"False {os.getpid()}\n", asked.stderr
            return works_at(90)(workspace)

        told = threading.Event()
        controller._watch._follow = _then(controller._follow, told)
        row = controller.run_iteration(h(1), _after(stopped, told))
        assert row.status == "accepted"
        assert ended(controller) == ("completed", "explicit")
        assert pending_request(ExperimentFolder(controller.session_dir())) == ""


def _then(act: Any, told: threading.Event) -> Any:
    def follow(request: str) -> None:
        act(request)
        told.set()

    return follow


def _after(play: Any, told: threading.Event) -> Any:
    def wait(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        outcome: HypothesisOutcome = play(workspace)
        assert told.wait(FOREVER)
        return outcome

    return wait


@pytest.mark.requirement("EXP-11")
def test_what_nobody_works_on_is_stopped_directly(root: Path) -> None:
    runtime = Runtime.of_process()
    with begun(root) as controller:
        name = controller.experiment_id
        assert controller_at_work(runtime, name) is not None
    assert controller_at_work(runtime, name) is None
    done = request_stop(runtime, name)
    assert (done.is_done, done.holder, done.state.completed_reason) == (True, None, "explicit")
    assert request_cancel(runtime, name).state.completed_reason == "explicit"


def test_what_nobody_works_on_cannot_be_stopped_while_another_experiment_holds_the_repository(
    root: Path,
) -> None:
    with begun(root) as controller:
        name = controller.experiment_id
    with begun(root) as other, pytest.raises(StepIllegal, match=other.experiment_id):
        request_stop(Runtime.of_process(), name)


def test_a_stop_does_not_weaken_a_cancel_and_a_resume_overtakes_both(root: Path) -> None:
    with begun(root) as controller:
        name, folder = controller.experiment_id, ExperimentFolder(controller.session_dir())
    put_request(folder, "cancel")
    put_request(folder, "stop")
    assert pending_request(folder) == "cancel"
    with AutoresearchController.resume(name) as again:
        assert pending_request(folder) == ""
        assert again.run_iteration(h(1), works_at(90)).status == "accepted"


@pytest.mark.parametrize("content", [b"", b"shutdown", b"\xff\xfe", b"x" * 5000])
def test_a_request_that_nobody_knows_asks_for_nothing(tmp_path: Path, content: bytes) -> None:
    folder = ExperimentFolder(str(tmp_path))
    Path(folder.request_path).write_bytes(content)
    assert pending_request(folder) == ""
