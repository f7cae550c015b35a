"""One short experiment from its begin to its end, which may be killed anywhere and told again from there.

Run as a program it kills itself: ``python story.py ROOT (before|after) NUMBER`` at the NUMBERth event,
``python story.py ROOT git NUMBER`` at the NUMBERth start of git.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from omx_autoresearch.experiments.controller import AutoresearchController
from omx_autoresearch.experiments.judge.state import ExperimentHypothesis, ExperimentState
from omx_autoresearch.experiments.store import ExperimentStore
from omx_autoresearch.journal.layout import StateHome, state_home
from tests.experiments.toys import configured, works_at, writes

PLAYS = {
    "good": works_at(90),
    "worse": works_at(95),
    "cheat": writes("measure.sh", "#!/bin/sh\necho METRIC ms=1\n"),
    "better": works_at(80),
}
"""Hypotheses by id, in their order."""


def store() -> ExperimentStore:
    """Of this process's state home."""
    return ExperimentStore(StateHome(state_home(os.environ)))


def told(root: Path) -> ExperimentState:
    """Begin the experiment or take it up, and bring it to its end; returns the state."""
    known = store().list_ids()
    opened = (
        AutoresearchController.resume(known[0]) if known else AutoresearchController(str(root), configured())
    )
    with opened as controller:
        if controller.state.phase == "started":
            controller.establish_baseline()
        tried = {row.hypothesis_id for row in controller.state.rows if row.reason_code != "interrupted"}
        for name, play in PLAYS.items():
            if name not in tried and controller.state.phase == "ready":
                controller.run_iteration(ExperimentHypothesis(name), play)
        controller.complete()
        return controller.state


def _kill_at(number: int) -> Any:
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    return step


def _arm(when: str, number: int) -> None:
    step = _kill_at(number)
    append: Any = ExperimentStore.append
    spawn: Any = os.posix_spawn

    def killing_append(self: Any, *args: Any, **options: Any) -> Any:
        if when == "before":
            step()
        entries = append(self, *args, **options)
        if when == "after":
            step()
        return entries

    def killing_spawn(path: Any, argv: Any, *args: Any, **options: Any) -> Any:
        if argv[0] == "git":
            step()
        return spawn(path, argv, *args, **options)

    if when == "git":
        os.posix_spawn = killing_spawn  # the one way in which git is started
    else:
        ExperimentStore.append = killing_append  # type: ignore[method-assign]


if __name__ == "__main__":
    _arm(sys.argv[2], int(sys.argv[3]))
    told(Path(sys.argv[1]))
