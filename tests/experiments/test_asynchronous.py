"""The controller to be awaited: the loop stays free, callbacks may be coroutines, a cancelled await rolls back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments.async_controller import AsyncAutoresearchController
from omx_autoresearch.experiments.judge.state import HypothesisOutcome
from omx_autoresearch.foundation.errors import WorkspaceFault
from tests.experiments.toys import configured, h, put, toy, works_at

if TYPE_CHECKING:
    from omx_autoresearch.experiments.trial import ExperimentWorkspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return toy(tmp_path / "repo")


@pytest.mark.requirement("EXP-12")
def test_a_whole_experiment_can_be_awaited_with_callbacks_of_either_kind(root: Path) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def coroutine(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        await asyncio.sleep(0)
        return works_at(90)(workspace)

    async def story() -> None:
        ticking = asyncio.create_task(tick())
        async with await AsyncAutoresearchController.start(str(root), configured()) as experiment:
            await experiment.establish_baseline()
            assert (await experiment.run_iteration(h(1), coroutine)).status == "accepted"
            assert (await experiment.run_iteration(h(2), works_at(85))).status == "accepted"
            assert (await experiment.verify_claim()).final == 85.0
            assert (await experiment.final_patch()).changed_paths == ("work.sh",)
            assert (await experiment.accept_final_patch()).is_applied
            assert experiment.state.completed_reason == "final_patch"
            name = experiment.experiment_id
        async with await AsyncAutoresearchController.resume(name) as again:
            assert (await again.complete()).completed_reason == "final_patch"
        ticking.cancel()

    asyncio.run(story())
    assert ticks > 100
    assert (root / "work.sh").read_text(encoding="utf-8") == "#!/bin/sh\necho 85\n"


@pytest.mark.requirement("EXP-12")
def test_a_coroutine_that_raises_fails_its_trial(root: Path) -> None:
    async def crash(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        await asyncio.sleep(0)
        raise ValueError("mine")

    async def story() -> None:
        async with await AsyncAutoresearchController.start(str(root), configured()) as experiment:
            await experiment.establish_baseline()
            row = await experiment.run_iteration(h(1), crash)
            assert (row.reason_code, row.reason) == ("callback_failed", "ValueError: mine")

    asyncio.run(story())


@pytest.mark.requirement("EXP-12")
def test_a_coroutine_is_cancelled_with_its_trial_and_may_clean_up(root: Path) -> None:
    cleaned: list[str] = []

    async def long(workspace: ExperimentWorkspace) -> HypothesisOutcome:
        put(workspace, "work.sh", "half")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("cleaned")
        return HypothesisOutcome()

    async def story() -> None:
        config = configured(hypothesis_timeout_seconds=0.2)
        async with await AsyncAutoresearchController.start(str(root), config) as experiment:
            await experiment.establish_baseline()
            row = await experiment.run_iteration(h(1), long)
            assert (row.status, row.reason_code) == ("failed", "timed_out")
            assert cleaned == ["cleaned"]

    asyncio.run(story())


@pytest.mark.requirement("EXP-12")
def test_a_cancelled_await_waits_for_the_rollback_and_the_experiment_may_go_on(root: Path) -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def long(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            put(workspace, "work.sh", "half")
            begun.set()
            await asyncio.Event().wait()
            return HypothesisOutcome()

        async with await AsyncAutoresearchController.start(str(root), configured()) as experiment:
            await experiment.establish_baseline()
            trial = asyncio.create_task(experiment.run_iteration(h(1), long))
            await begun.wait()
            trial.cancel()
            with pytest.raises(asyncio.CancelledError):
                await trial
            row = experiment.state.rows[-1]
            assert (row.status, row.reason_code) == ("failed", "cancelled")
            candidate = Path(experiment.session_dir(), "work", "candidate", "work.sh")
            assert candidate.read_bytes() == (root / "work.sh").read_bytes()
            assert (await experiment.run_iteration(h(2), works_at(90))).status == "accepted"

    asyncio.run(story())


@pytest.mark.requirement("EXP-12")
def test_cancelling_the_experiment_can_be_awaited(root: Path) -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def long(workspace: ExperimentWorkspace) -> HypothesisOutcome:
            begun.set()
            await asyncio.Event().wait()
            return HypothesisOutcome()

        async with await AsyncAutoresearchController.start(str(root), configured()) as experiment:
            await experiment.set_command_sandbox("none")
            await experiment.establish_baseline()
            heard: list[str] = []
            experiment.subscribe(lambda event: heard.append(event["type"]))
            trial = asyncio.create_task(experiment.run_iteration(h(1), long))
            await begun.wait()
            await experiment.cancel()
            assert heard[-2:] == ["failed", "completed"]
            assert [event["type"] for event in experiment.events()][-len(heard) :] == heard
            assert experiment.state.completed_reason == "cancelled"
            assert experiment.cancellation.is_cancelled
            assert (await trial).reason_code == "cancelled"

    asyncio.run(story())


def test_an_experiment_that_cannot_begin_says_so_to_whoever_awaits_it(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceFault):
        asyncio.run(AsyncAutoresearchController.start(str(tmp_path / "nowhere"), configured()))
