"""Candidates that fill the disk: what they left is what goes first, so that the experiment goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omx_autoresearch.experiments import startup
from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.startup import attach
from omx_autoresearch.experiments.worktrees import arm
from omx_autoresearch.experiments.worktrees.arm import save_arm
from omx_autoresearch.foundation.errors import StorageFailed
from tests.experiments.toys import begun, h, toy, works_at, writes

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def full_while(path: Path, act: Callable[..., Any]) -> Callable[..., Any]:
    """A write that fails for as long as what fills the disk is there."""

    def write(*args: Any) -> Any:
        if path.exists():
            raise StorageFailed("cannot be written: No space left on device")
        return act(*args)

    return write


@pytest.mark.requirement("EXP-03", "TREE-02")
@pytest.mark.parametrize("name", ["big", "answer.sh"])
def test_a_candidate_that_fills_the_disk_is_rolled_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fills = f"#!/bin/sh\nprintf '\\n#full' >> {name}\necho 90\n"
    with begun(toy(tmp_path / "project")) as controller:
        big = Path(controller.session_dir(), "work", "candidate", name)
        real = save_arm

        def save(*args: Any) -> None:
            if big.exists() and b"full" in big.read_bytes():
                raise StorageFailed("cannot be written: No space left on device")
            real(*args)

        monkeypatch.setattr(arm, "save_arm", save)
        controller.run_iteration(h(1), writes("work.sh", fills))
        assert not big.exists() or b"full" not in big.read_bytes()
        assert controller.run_iteration(h(2), works_at(95)).status == "accepted"


@pytest.mark.requirement("EXP-07")
def test_an_experiment_whose_candidate_filled_the_disk_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begun(toy(tmp_path / "project")) as controller:
        experiment_id = controller.experiment_id
        big = Path(controller.session_dir(), "work", "candidate", "big")
    big.write_bytes(b"x" * 4096)
    monkeypatch.setattr(startup, "attach", full_while(big, attach))
    with AutoresearchController.resume(experiment_id) as controller:
        assert not big.exists()
        assert controller.run_iteration(h(1), works_at(95)).status == "accepted"
